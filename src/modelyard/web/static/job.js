// The page of one job: curves that grow, and a log that is followed while its end is in sight.
import { Chart } from "./chart.js";
import { on } from "./live.js";
import { duration } from "./time.js";

const LOG_LETTERS = 400000;
const [STEP, MEAN, LEAST, MOST, TOKENS, STEPS, MEMBERS, AT] = [0, 1, 2, 3, 4, 5, 6, 7];

let rows = [];
let validation = [];

const charts = new Map();
for (const figure of document.querySelectorAll("[data-chart]")) {
  charts.set(figure.dataset.chart, new Chart(figure));
}

on("curve", (told) => {
  if (told.whole) {
    rows = [];
    validation = [];
  }
  const first = told.rows.length ? told.rows[0][STEP] : Infinity;
  const from = Math.floor((first - 1) / told.width) * told.width;
  rows = rows.filter((row) => row[STEP] <= from).concat(told.rows);
  validation = validation.concat(told.validation);
  draw();
});

function draw() {
  const began = rows.length ? rows[0][AT] : 0;
  charts.get("loss")?.show({
    x: rows.map((row) => row[STEP]),
    y: rows.map((row) => row[MEAN]),
    low: rows.map((row) => row[LEAST]),
    high: rows.map((row) => row[MOST]),
    marks: validation,
    xName: "step",
    format: (value) => value.toPrecision(4),
  });
  const tokens = rows.some((row) => row[TOKENS] > 0);
  charts.get("speed")?.show({
    x: rows.map((row) => row[STEP]),
    y: rows.map((row) => (tokens ? row[TOKENS] : row[STEPS])),
    zero: true,
    xName: "step",
    format: (value) => `${short(value)} ${tokens ? "tokens" : "steps"}/s`,
    tick: short,
  });
  charts.get("members")?.show({
    x: rows.map((row) => row[AT] - began),
    y: rows.map((row) => row[MEMBERS]),
    zero: true,
    stepped: true,
    xName: "after",
    xFormat: duration,
    format: (value) => (value === 1 ? "1 member" : `${short(value)} members`),
    tick: short,
    whole: true,
  });
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(0)}k`;
  if (size >= 1e3) return `${(value / 1e3).toFixed(1)}k`;
  return Number(value.toPrecision(3)).toString();
}

const log = document.getElementById("log");
if (log) {
  log.scrollTop = log.scrollHeight;
  on("log", ({ anew, text }) => {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
    let whole = (anew ? "" : log.textContent) + text;
    if (whole.length > LOG_LETTERS) whole = whole.slice(whole.indexOf("\n", whole.length - LOG_LETTERS) + 1);
    if (anew || whole.length > LOG_LETTERS - 1000) log.textContent = whole;
    else log.append(text);
    if (atEnd) log.scrollTop = log.scrollHeight;
  });
}

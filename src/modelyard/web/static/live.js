// One stream per page. Blocks of the page are made to match what the server sends; whatever else
// arrives goes to whoever listens with `on`. A stream that is lost is asked for again, from where it
// was; a page that nobody sees asks for nothing.
import { morph } from "./morph.js";

const HIDDEN_FOR_MS = 5000;
const SILENT_FOR_MS = 25000;
const PAUSES_MS = [1000, 2000, 4000, 8000];

const listeners = new Map();
let source = null;
let address = "";
let mark = "";
let cursor = "";
let tries = 0;
let heard = 0;
let pausing = 0;
let retrying = 0;

/** Call `listener(data)` for each message of this name. */
export function on(name, listener) {
  listeners.set(name, [...(listeners.get(name) ?? []), listener]);
  if (source) source.addEventListener(name, received);
}

/** Keep this page up to date from now on. */
export function follow(from, version) {
  address = from;
  mark = version;
  on("hello", (data) => { if (data.mark !== mark) location.reload(); });
  on("block", ({ name, html }) => replace(name, html));
  on("failed", () => lost());
  on("alive", () => {});
  document.addEventListener("visibilitychange", seen);
  setInterval(() => {
    if (source && !document.hidden && Date.now() - heard > SILENT_FOR_MS) lost();
  }, 5000);
  open();
}

function open() {
  clearTimeout(retrying);
  retrying = 0;
  const url = new URL(address, location.href);
  if (cursor) url.searchParams.set("cursor", cursor);
  source = new EventSource(url);
  heard = Date.now();
  source.onopen = () => { heard = Date.now(); tries = 0; show("on"); };
  source.onerror = () => lost();
  for (const name of listeners.keys()) source.addEventListener(name, received);
}

function received(event) {
  heard = Date.now();
  if (event.lastEventId) cursor = event.lastEventId;
  const data = JSON.parse(event.data);
  for (const listener of listeners.get(event.type) ?? []) listener(data);
}

function close() {
  source?.close();
  source = null;
}

/** The stream broke: try again, later and later; who is not logged in any more is asked to. */
async function lost() {
  if (!source || retrying) return;
  close();
  show("lost");
  const pause = PAUSES_MS[Math.min(tries++, PAUSES_MS.length - 1)];
  retrying = setTimeout(async () => {
    retrying = 0;
    if (document.hidden) return;
    try {
      const answer = await fetch("/live", { redirect: "manual", cache: "no-store" });
      if (answer.status === 401 || answer.type === "opaqueredirect") return location.reload();
      if (answer.ok) return open();
    } catch {
      // Nobody answers yet.
    }
    source ??= { close() {} };
    lost();
  }, pause);
}

/** A hidden page lets its stream go after a while, and catches up when it is looked at again. */
function seen() {
  clearTimeout(pausing);
  if (document.hidden) {
    pausing = setTimeout(() => { if (source && !retrying) { close(); show("off"); } }, HIDDEN_FOR_MS);
  } else if (!source && !retrying) {
    open();
  }
}

function show(state) {
  const sign = document.querySelector(".live");
  if (sign) {
    sign.hidden = false;
    sign.dataset.liveState = state;
    sign.lastElementChild.textContent = { on: "Live", off: "Paused", lost: "Lost" }[state];
  }
  const banner = document.querySelector(".lost");
  if (banner) banner.hidden = state !== "lost";
}

function replace(name, html) {
  for (const element of document.querySelectorAll(`[data-live="${name}"]`)) {
    morph(element, html);
    element.dispatchEvent(new CustomEvent("changed", { bubbles: true }));
  }
}

// A line over a number of steps, drawn as SVG: axes with round numbers, a band between the least and
// the most, and the values under the pointer. It is drawn anew when its size or its points change.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 190;
const EDGE = { left: 46, right: 12, top: 8, bottom: 22 };

function make(name, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  return element;
}

/** Round numbers from `low` to `high`, about `count` of them. */
export function ticks(low, high, count, whole = false) {
  const span = high - low || 1;
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  let step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw) ?? raw;
  if (whole) step = Math.max(1, Math.ceil(step));
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(at);
  return found;
}

export class Chart {
  constructor(figure) {
    this.plot = figure.querySelector(".plot");
    this.output = figure.querySelector("output");
    this.svg = make("svg", { role: "img", "aria-label": figure.querySelector("h2").textContent });
    this.svg.setAttribute("height", HEIGHT);
    this.plot.append(this.svg);
    this.data = null;
    new ResizeObserver(() => this.draw()).observe(this.plot);
    this.plot.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.plot.addEventListener("pointerleave", () => this.point(null));
  }

  show(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    const wide = this.plot.clientWidth;
    this.svg.replaceChildren();
    if (!this.data || !wide) return;
    this.svg.setAttribute("width", wide);
    this.svg.setAttribute("viewBox", `0 0 ${wide} ${HEIGHT}`);
    const { x, y, low, high, zero, marks = [] } = this.data;
    const known = x.map((_, at) => at).filter((at) => y[at] !== null);
    if (!known.length) return this.say(null);
    const every = known.flatMap((at) => [y[at], ...(low ? [low[at], high[at]] : [])])
      .concat(marks.map((one) => one[1])).filter((one) => one !== null);
    let bottom = zero ? 0 : Math.min(...every);
    let top = Math.max(...every);
    if (top - bottom < 1e-9) { top += Math.abs(top) * 0.05 || 1; if (!zero) bottom -= Math.abs(bottom) * 0.05 || 1; }
    const room = (top - bottom) * 0.06;
    top += room;
    if (!zero) bottom -= room;
    const [first, last] = [Math.min(0, x[known[0]]), x[known[known.length - 1]]];
    const acrossPixels = wide - EDGE.left - EDGE.right;
    const upPixels = HEIGHT - EDGE.top - EDGE.bottom;
    this.px = (value) => EDGE.left + ((value - first) / (last - first || 1)) * acrossPixels;
    this.py = (value) => EDGE.top + (1 - (value - bottom) / (top - bottom)) * upPixels;
    this.axes(first, last, bottom, top, wide);
    if (low) {
      const path = known.map((at, n) => `${n ? "L" : "M"}${this.px(x[at]).toFixed(1)} ${this.py(high[at] ?? y[at]).toFixed(1)}`).join("")
        + [...known].reverse().map((at) => `L${this.px(x[at]).toFixed(1)} ${this.py(low[at] ?? y[at]).toFixed(1)}`).join("") + "Z";
      this.svg.append(make("path", { class: "band", d: path }));
    }
    this.svg.append(make("path", { class: "line", d: this.line(known) }));
    for (const [step, value] of marks) {
      this.svg.append(make("circle", { class: "mark", cx: this.px(step).toFixed(1), cy: this.py(value).toFixed(1), r: 3 }));
    }
    const end = known[known.length - 1];
    this.svg.append(make("circle", { class: "end", cx: this.px(x[end]), cy: this.py(y[end]), r: 3 }));
    this.cross = make("g", { class: "cross" });
    this.svg.append(this.cross);
    this.known = known;
    this.say(end);
  }

  line(known) {
    const { x, y, stepped } = this.data;
    let path = "";
    known.forEach((at, n) => {
      const [px, py] = [this.px(x[at]).toFixed(1), this.py(y[at]).toFixed(1)];
      path += n === 0 ? `M${px} ${py}` : stepped ? `H${px}V${py}` : `L${px} ${py}`;
    });
    return path;
  }

  axes(first, last, bottom, top, wide) {
    const { tick = (value) => Number(value.toPrecision(4)).toString(), xFormat, whole } = this.data;
    for (const value of ticks(bottom, top, 4, whole)) {
      const at = this.py(value).toFixed(1);
      this.svg.append(make("path", { class: "grid", d: `M${EDGE.left} ${at}H${wide - EDGE.right}` }));
      this.svg.append(make("text", { x: EDGE.left - 8, y: at, dy: "0.32em", "text-anchor": "end" }, tick(value)));
    }
    for (const value of ticks(first, last, Math.max(2, Math.floor(wide / 110)), true)) {
      const at = this.px(value);
      const anchor = at > wide - EDGE.right - 24 ? "end" : "middle";
      const text = xFormat ? xFormat(value) : value.toLocaleString("en");
      this.svg.append(make("text", { x: at.toFixed(1), y: HEIGHT - 5, "text-anchor": anchor }, text));
    }
  }

  point(offset) {
    if (!this.cross || !this.known?.length) return;
    this.cross.replaceChildren();
    const { x, y } = this.data;
    if (offset === null) return this.say(this.known[this.known.length - 1]);
    let nearest = this.known[0];
    for (const at of this.known) {
      if (Math.abs(this.px(x[at]) - offset) < Math.abs(this.px(x[nearest]) - offset)) nearest = at;
    }
    this.cross.append(make("path", { d: `M${this.px(x[nearest])} ${EDGE.top}V${HEIGHT - EDGE.bottom}` }));
    this.cross.append(make("circle", { cx: this.px(x[nearest]), cy: this.py(y[nearest]), r: 3.5 }));
    this.say(nearest);
  }

  say(at) {
    if (at === null) { this.output.textContent = ""; return; }
    const { x, y, format, xName, xFormat } = this.data;
    const where = xFormat ? xFormat(x[at]) : x[at].toLocaleString("en");
    this.output.textContent = `${format(y[at])} · ${xName} ${where}`;
  }
}

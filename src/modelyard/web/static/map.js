// The map: say what is under the pointer or the focus, show where else the job is, and let arrow keys
// walk from job to job, so that Tab does not have to pass a thousand devices.
import { duration } from "./time.js";
import { hideTip, showTip } from "./tip.js";

const map = document.querySelector(".map");

function links() {
  return [...map.querySelectorAll("a[data-job]")];
}

/** One link of the map can be reached with Tab: the last one that was looked at. */
function rove(current) {
  const all = links();
  const chosen = current && all.includes(current) ? current : all[0];
  for (const link of all) link.setAttribute("tabindex", link === chosen ? "0" : "-1");
}

let picked = null;

function pick(job) {
  picked = job ?? null;
  map.classList.toggle("picked", Boolean(job));
  for (const element of document.querySelectorAll(".pick, .crossed")) element.classList.remove("pick", "crossed");
  if (!job) return;
  for (const element of document.querySelectorAll(`[data-job="${CSS.escape(job)}"]`)) {
    element.classList.add("pick");
  }
  // Links that the job crosses: those above a switch that has some of its devices, but not all.
  const all = map.querySelectorAll(".pick").length;
  for (const place of map.querySelectorAll(".place")) {
    const inside = place.querySelectorAll(".pick").length;
    if (inside && inside < all) place.classList.add("crossed");
  }
}

function tell(element) {
  const [head, where] = element.dataset.tip.split(/: (?=[^:]*$)/);
  const since = Number(element.dataset.since);
  if (!since) return showTip(element, head, where);
  const clock = new Date(1000 * since).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  showTip(element, head, `${where} · since ${clock}, ${duration(Date.now() / 1000 - since)}`);
}

function quiet() {
  hideTip();
  pick(null);
}

function look(event) {
  const element = event.target.closest("[data-tip]");
  if (!element) return quiet();
  pick(element.dataset.job);
  tell(element);
}

map.addEventListener("pointerover", look);
map.addEventListener("pointerleave", quiet);
map.addEventListener("focusin", (event) => { rove(event.target.closest("a[data-job]")); look(event); });
map.addEventListener("focusout", quiet);
map.addEventListener("keydown", (event) => {
  const all = links();
  const at = all.indexOf(document.activeElement?.closest("a[data-job]"));
  if (at < 0) return;
  if (event.key === "Escape") return quiet();
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const to = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : step && at + step;
  if (to === undefined || to < 0 || to >= all.length) return;
  event.preventDefault();
  all[to].focus();
});

// Whoever points at a job in the list sees its devices.
for (const list of document.querySelectorAll("[data-live=running]")) {
  list.addEventListener("pointerover", (event) => pick(event.target.closest("[data-job]")?.dataset.job));
  list.addEventListener("pointerleave", () => pick(null));
}

map.addEventListener("changed", () => {
  const focused = document.activeElement?.closest?.("a[data-job]");
  rove(focused && map.contains(focused) ? focused : null);
  pick(picked);
});
rove(null);

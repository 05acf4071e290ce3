// Say what a bar is, and show where else its job is.
import { hideTip, showTip } from "./tip.js";

const gantt = document.querySelector("[data-live=rows]");

function pick(job) {
  gantt.querySelector(".bars")?.classList.toggle("picked", Boolean(job));
  for (const element of gantt.querySelectorAll(".pick")) element.classList.remove("pick");
  if (!job) return;
  for (const element of gantt.querySelectorAll(`[data-job="${CSS.escape(job)}"]`)) {
    element.classList.add("pick");
  }
}

gantt.addEventListener("pointerover", (event) => {
  const bar = event.target.closest("[data-tip]");
  const row = event.target.closest("li")?.id.replace(/^row-/, "");
  pick(bar?.dataset.job ?? row);
  if (!bar) return hideTip();
  showTip(bar, ...bar.dataset.tip.split(/: (?=[^:]*$)/));
});
gantt.addEventListener("pointerleave", () => { pick(null); hideTip(); });
gantt.addEventListener("focusin", (event) => pick(event.target.closest("li")?.id.replace(/^row-/, "")));
gantt.addEventListener("focusout", () => pick(null));
gantt.addEventListener("click", (event) => {
  const job = event.target.closest("rect[data-job]")?.dataset.job;
  if (job) location.assign(`/jobs/${job}`);
});

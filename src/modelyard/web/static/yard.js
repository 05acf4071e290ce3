// Every page: follow what changes, let times go on, and say so when the yard does not answer.
import { follow } from "./live.js";
import { tick } from "./time.js";

const stream = document.body.dataset.stream;
// By then the page's own modules listen as well: nothing is told before.
addEventListener("DOMContentLoaded", () => {
  if (stream) follow(stream, document.body.dataset.mark);
});
tick();

// The switch of colours without a new page.
document.querySelector("form.theme")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const chosen = event.submitter.value;
  const fields = new URLSearchParams({ theme: chosen });
  const answer = await fetch("/theme", { method: "POST", body: fields, redirect: "manual" });
  if (answer.type !== "opaqueredirect" && !answer.ok) return;
  if (chosen) document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  for (const button of event.target.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", button === event.submitter ? "true" : "false");
  }
});

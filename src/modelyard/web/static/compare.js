// A trace is sent as it is, before the form, which then names it; without this it can be pasted.
const chooser = document.querySelector(".chooser");
const upload = chooser?.querySelector(".upload");
if (upload) {
  const [file, said] = [upload.querySelector("input"), upload.querySelector("[role=status]")];
  const named = chooser.querySelector("input[name=trace]");
  const go = chooser.querySelector("button.main");
  upload.hidden = false;
  file.addEventListener("change", async () => {
    named.value = "";
    const [chosen] = file.files;
    if (!chosen) return;
    if (chosen.size > chooser.dataset.most * 2 ** 20) {
      said.textContent = `This is larger than ${chooser.dataset.most} MiB.`;
      return;
    }
    go.disabled = true;
    said.textContent = "Sending…";
    try {
      const answer = await fetch("/compare/trace", { method: "POST", body: chosen });
      if (!answer.ok) throw new Error(String(answer.status));
      named.value = (await answer.json()).trace;
      said.textContent = `${chosen.name}, ${Math.ceil(chosen.size / 1024).toLocaleString()} KiB, is there.`;
    } catch {
      said.textContent = "The yard did not take it. Choose it again.";
      file.value = "";
    }
    go.disabled = false;
  });
}

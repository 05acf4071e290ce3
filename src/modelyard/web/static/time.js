// Ages go on by themselves: `<time data-age="seconds since 1970">`.

/** As the server writes it: the two largest units. */
export function duration(seconds) {
  const whole = Math.max(Math.round(seconds), 0);
  if (whole < 60) return `${whole}s`;
  const steps = [[60, "m", 1, "s", 3600], [3600, "h", 60, "m", 86400], [86400, "d", 3600, "h", Infinity]];
  for (const [large, letter, small, rest, limit] of steps) {
    if (whole >= limit) continue;
    const part = Math.floor((whole % large) / small);
    return part ? `${Math.floor(whole / large)}${letter}${part}${rest}` : `${Math.floor(whole / large)}${letter}`;
  }
}

function show() {
  if (document.hidden) return;
  const now = Date.now() / 1000;
  for (const element of document.querySelectorAll("time[data-age]")) {
    const text = duration(Math.abs(now - Number(element.dataset.age)));
    if (element.textContent !== text) element.textContent = text;
  }
}

export function tick() {
  show();
  setInterval(show, 1000);
  document.addEventListener("visibilitychange", show);
}

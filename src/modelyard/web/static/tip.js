// The one tip of a page, above whatever is pointed at or has the focus, or below it where there is no room.

const tip = document.querySelector(".tip");

export function showTip(element, head, rest) {
  tip.textContent = head;
  if (rest) {
    const small = document.createElement("small");
    small.textContent = rest;
    tip.append(small);
  }
  tip.hidden = false;
  const box = element.getBoundingClientRect();
  const wide = tip.offsetWidth, high = tip.offsetHeight;
  const left = Math.min(Math.max(box.left + box.width / 2 - wide / 2, 8), innerWidth - wide - 8);
  const top = box.top - high - 8 > 8 ? box.top - high - 8 : box.bottom + 8;
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

export function hideTip() {
  tip.hidden = true;
}

addEventListener("scroll", hideTip, { passive: true });

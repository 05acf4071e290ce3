// Make the content of an element match some HTML with as few changes as possible, so that focus,
// selection, scrolling and open popovers stay where they are.

/** `html` comes from this server's templates, which have escaped what people wrote. */
export function morph(element, html) {
  const wanted = document.createElement("template");
  wanted.innerHTML = html;
  children(element, wanted.content);
}

function children(have, want) {
  const named = new Map();
  for (const child of have.children) if (child.id) named.set(child.id, child);
  let at = have.firstChild;
  for (const next of [...want.childNodes]) {
    let match = next.id ? named.get(next.id) : at;
    if (match && !alike(match, next)) match = null;
    // Something that has a name is never made into something else.
    if (match && !next.id && match.id) match = null;
    if (!match) {
      have.insertBefore(next, at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else have.insertBefore(match, at);
    same(match, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName;
}

function same(have, want) {
  if (have.nodeType !== Node.ELEMENT_NODE) {
    if (have.nodeValue !== want.nodeValue) have.nodeValue = want.nodeValue;
    return;
  }
  // What a script keeps, or somebody is typing into, is left alone.
  if (have.hasAttribute("data-kept") || (have === document.activeElement && have.matches("input, select, textarea"))) return;
  for (const { name } of [...have.attributes]) {
    if (!want.hasAttribute(name) && name !== "tabindex") have.removeAttribute(name);
  }
  for (const { name, value } of [...want.attributes]) {
    if (have.getAttribute(name) !== value) have.setAttribute(name, value);
  }
  children(have, want);
}

// Elements are made of texts, never of markup, so that no name can become any.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : String(child).replace(UNSEEN, "\ufffd"));
  }
  return element;
}

export const name = (text) => h("bdi", null, text);

// A picture from our own server: markup of numbers and fixed words.
export function picture(text) {
  return document.importNode(new DOMParser().parseFromString(text, "text/html").body.firstElementChild, true);
}

const keyOf = (node) => (node.nodeType === 1 ? node.dataset.key : undefined);

// Makes `from` like `to` and keeps every element that stays: focus, what was typed and what was opened.
function morph(from, to) {
  if (from.nodeType === 3) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.dataset.mine !== undefined) return;
  for (const { name: attribute } of [...from.attributes]) {
    const opened = attribute === "open" && from.nodeName === "DETAILS";
    if (!to.hasAttribute(attribute) && !opened) from.removeAttribute(attribute);
  }
  for (const { name: attribute, value } of [...to.attributes]) {
    if (from.getAttribute(attribute) !== value) from.setAttribute(attribute, value);
  }
  children(from, [...to.childNodes]);
}

function children(parent, wanted) {
  const left = new Set(parent.childNodes);
  let at = parent.firstChild;
  for (const node of wanted) {
    const fits = (old) =>
      left.has(old) && old.nodeName === node.nodeName && keyOf(old) === keyOf(node);
    let found = at && fits(at) ? at : null;
    if (!found) found = [...left].find(fits) || null;
    if (found) {
      left.delete(found);
      if (found === at) at = at.nextSibling;
      else parent.insertBefore(found, at);
      morph(found, node);
    } else {
      parent.insertBefore(node, at);
    }
    while (at && !left.has(at)) at = at.nextSibling;
  }
  for (const old of left) old.remove();
}

// Shows `content` in a section without disturbing whoever is in it.
export function show(section, ...content) {
  const before = document.activeElement;
  const inside = before && before !== section && section.contains(before);
  children(section, content.flat(Infinity).filter((node) => node));
  if (!inside || document.activeElement === before) return;
  if (before.isConnected) before.focus({ preventScroll: true });
  else {
    const heading = section.querySelector("h2");
    if (heading) { heading.tabIndex = -1; heading.focus({ preventScroll: true }); }
  }
}

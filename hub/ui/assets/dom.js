// Elements without markup: nothing that comes from the hub is ever read as HTML.

/** Makes an element: its attributes and handlers, then children (nodes, texts, lists of them; nothing for null). */
export function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";

/** The same in a picture. */
export function s(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(element, child);
    else element.append(child);
  }
}

/** Makes an element hold these and nothing else. Who was in the old ones by keyboard is in the new ones, and what was scrolled stays so. */
export function put(element, ...children) {
  const focused = element.contains(document.activeElement) ? find(document.activeElement) : null;
  const scrolled = [...element.querySelectorAll("[role=region]")].map((region) => [find(region), region.scrollLeft, region.scrollTop]);
  element.replaceChildren();
  add(element, children);
  for (const [like, left, top] of scrolled) {
    if (!left && !top) continue;
    const region = like && element.querySelector(like);
    if (region) [region.scrollLeft, region.scrollTop] = [left, top];
  }
  if (focused) element.querySelector(focused)?.focus({ preventScroll: true });
  return element;
}

/** How the like of an element is found among others; nothing if it has no name. */
function find(element) {
  if (element.id) return `#${CSS.escape(element.id)}`;
  for (const key of ["aria-label", "href"]) {
    const value = element.getAttribute(key);
    if (value) return `${element.localName}[${key}="${CSS.escape(value)}"]`;
  }
  return null;
}

/** A table: headings, then rows of cells; a cell that is a row's name is a heading, too. */
export function table(caption, headings, rows, empty) {
  if (!rows.length) return h("p", { class: "quiet" }, empty || "Nothing.");
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "aside" }, caption),
      h("thead", {}, h("tr", {}, headings.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map((cells) => h("tr", {},
        cells.map((cell, at) => (at === 0 ? h("th", { scope: "row" }, cell) : h("td", {}, cell))))))));
}

/** A list of names with what they are. What is not there is left out. */
export function facts(rows) {
  const there = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, there.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** A section under a heading. */
export function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), ...children);
}

let last = 0;

/** Says something to whoever hears the page, and shows it nowhere. The newest of two seconds counts. */
export function say(text) {
  const now = Date.now();
  setTimeout(() => { document.getElementById("said").textContent = text; }, Math.max(0, last + 2000 - now));
  last = Math.max(now, last + 2000);
}

/** A link within the page. */
export function link(href, attributes, ...children) {
  return h("a", { href, "data-in": "", ...attributes }, ...children);
}

/** A question before something is done, with the command that would do the same. */
export function confirm(title, text, command, label) {
  return new Promise((done) => {
    const answer = (yes) => () => { dialog.close(); dialog.remove(); done(yes); };
    const dialog = h("dialog", { "aria-labelledby": "asked", oncancel: answer(false) },
      h("h2", { id: "asked" }, title), h("p", {}, text),
      h("p", {}, "The same by command:"), h("pre", { tabindex: "0" }, command),
      h("p", { class: "buttons" },
        h("button", { onclick: answer(false) }, "Cancel"),
        h("button", { class: "main", onclick: answer(true) }, label)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

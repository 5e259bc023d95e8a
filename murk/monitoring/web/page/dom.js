// Sets text only through textContent, since names may contain markup.

export const byId = (id) => document.getElementById(id);

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function element(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}

export function say(text) {
  setText(byId("announce"), text);
}

// Reuses a table body's rows, so that selection and scroll position survive.
export function fillRows(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, i) => fillRow(body.rows[i] ?? body.insertRow(), cells));
}

function fillRow(row, cells) {
  while (row.cells.length > cells.length) row.deleteCell(-1);
  cells.forEach((cell, i) => {
    const node = row.cells[i] ?? row.appendChild(document.createElement(cell.head ? "th" : "td"));
    if (cell.head) node.scope = "row";
    const name = cell.kind ?? "";
    if (node.className !== name) node.className = name;
    if (cell.label) node.dataset.label = cell.label;
    if (cell.link) setLink(node, cell);
    else if (cell.bar === undefined) setText(node, cell.text);
    else setBar(node, cell.bar);
  });
}

function setLink(cell, { link, text }) {
  const node = cell.firstElementChild ?? cell.appendChild(element("a"));
  if (node.getAttribute("href") !== link) node.setAttribute("href", link);
  setText(node, text);
}

// A bar from 0 to 1; every positive value stays visible.
function setBar(cell, part) {
  const bar = cell.firstElementChild ?? cell.appendChild(element("span", "bar"));
  bar.style.width = `${100 * part}%`;
  bar.classList.toggle("some", part > 0);
}

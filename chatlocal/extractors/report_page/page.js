"use strict";
// Everything of the documents is put into the page as text, never as HTML. Offsets count UTF-16 units.
const report = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const PAGE = 200; // rows that are drawn at once
const REVIEW = "to review";

function make(tag, text = "", options = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  Object.assign(element, options);
  return element;
}
const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const percent = (value) => (value === null ? "" : `${(100 * value).toFixed(value > 0.995 && value < 1 ? 1 : 0)} %`);

// One row for each value of each record, in the order of documents and records.
const severalKinds = new Set(report.documents.flatMap((one) => one.records.map((record) => record.kind))).size > 1;
const fields = new Map(); // label -> {label, hue, count, hidden}
const rows = [];
function labelOf(record, pointer) {
  const names = pointer.split("/").slice(1).map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
  const label = names.reduce((path, name) => (/^\d+$/.test(name) ? `${path}[]` : path ? `${path}.${name}` : name), "");
  return (severalKinds ? `${record.kind}: ` : "") + (label || record.kind);
}
report.documents.forEach((one, d) => {
  one.rows = [];
  one.records.forEach((record, r) => {
    record.rows = record.fields.map((field) => {
      const label = labelOf(record, field.pointer);
      if (!fields.has(label)) fields.set(label, { label, hue: (fields.size * 137.508) % 360, count: 0, hidden: false });
      fields.get(label).count += 1;
      const place = field.start === undefined ? "absent" : field.match;
      const row = { number: rows.length, d, r, record, field, label, place, value: shown(field.value) };
      row.state = [place === "absent" ? "not found" : place, ...field.flags].join(", ");
      row.search = `${row.value}\n${label}\n${one.id}\n${record.kind}`.toLowerCase();
      rows.push(row);
      one.rows.push(row);
      return row;
    });
  });
});
const review = rows.filter((row) => row.field.flags.length).length;
const failed = report.documents.filter((one) => one.failures.length);
const tint = (element, label) => element.style.setProperty("--hue", fields.get(label).hue);
const plural = (count, name) => `${count.toLocaleString("en")} ${name}${count === 1 ? "" : "s"}`;

// The text of a document, cut where any value begins or ends.
let current = -1;
let marks = []; // the elements of the document that is shown, each with the rows that cover it
function open(d) {
  if (d === current) return;
  current = d;
  hide();
  const one = report.documents[d];
  $("name").textContent = one.id;
  $("chosen").value = String(d);
  for (const [other, entry] of [...$("documents").children].entries()) {
    entry.firstChild.setAttribute("aria-current", String(other === d));
    if (other === d) entry.scrollIntoView({ block: "nearest" });
  }
  const placed = one.rows.filter((row) => row.field.start !== undefined);
  const cuts = [...new Set([0, one.text.length, ...placed.flatMap((row) => [row.field.start, row.field.end])])].sort((a, b) => a - b);
  const starting = new Map();
  for (const row of placed) starting.set(row.field.start, [...(starting.get(row.field.start) ?? []), row]);
  const content = document.createDocumentFragment();
  marks = [];
  let covering = [];
  for (let i = 0; i + 1 < cuts.length; i++) {
    covering = covering.filter((row) => row.field.end > cuts[i]).concat(starting.get(cuts[i]) ?? []);
    const piece = one.text.slice(cuts[i], cuts[i + 1]);
    content.append(covering.length ? marked(piece, covering) : piece);
  }
  if (!one.text) content.append(make("span", one.failures.length ? "This document could not be read." : "This document is empty.", { className: "empty" }));
  $("text").replaceChildren(content);
  $("reading").scrollTop = 0;
  colour();
  if ($("of-document").value) list();
}
function marked(piece, covering) {
  const mark = make("mark", piece, { tabIndex: 0 });
  // The shortest value on top: a word inside of a phrase stays visible.
  mark.rows = [...covering].sort((a, b) => a.field.end - a.field.start - (b.field.end - b.field.start));
  mark.dataset.rows = mark.rows.map((row) => row.number).join(" ");
  marks.push(mark);
  return mark;
}
function colour() {
  for (const mark of marks) {
    const top = mark.rows.find((row) => !fields.get(row.label).hidden);
    mark.className = top ? `${top.place} ${mark.rows.some((row) => row.field.flags.length) ? "review" : ""}` : "off";
    if (top) tint(mark, top.label);
  }
}

// The card of a value: its record, confidence and match.
function show(mark) {
  const parts = mark.rows.map((row) => {
    const part = make("section");
    part.append(make("div", `${row.label}: ${row.value}`, { className: "this" }));
    const how = row.place === "fuzzy" ? `found nearly (${percent(row.field.score)} alike)` : `found ${row.place === "exact" ? "exactly" : row.place}`;
    const sure = row.field.confidence === null ? "" : `, confidence ${percent(row.field.confidence)}`;
    part.append(make("div", how + sure));
    if (row.field.flags.length) part.append(make("div", row.field.flags.join(", "), { className: "flag" }));
    const whole = make("dl");
    for (const other of row.record.rows) whole.append(make("dt", other.label), make("dd", other.value));
    part.append(make("div", `${row.record.kind} ${row.r + 1}`, { className: "empty" }), whole);
    return part;
  });
  const card = $("card");
  card.replaceChildren(...parts.slice(0, 3), ...(parts.length > 3 ? [make("div", `and ${parts.length - 3} more`, { className: "empty" })] : []));
  card.hidden = false;
  const at = mark.getClientRects()[0];
  const size = card.getBoundingClientRect();
  card.style.left = `${Math.max(8, Math.min(at.left, innerWidth - size.width - 8))}px`;
  card.style.top = `${at.bottom + 6 + size.height < innerHeight ? at.bottom + 6 : Math.max(8, at.top - size.height - 6)}px`;
  const records = new Set(mark.rows.map((row) => row.record));
  for (const other of marks) other.classList.toggle("record", other.rows.some((row) => records.has(row.record)));
}
function hide() {
  $("card").hidden = true;
  for (const mark of marks) mark.classList.remove("record");
}
const markAt = (event) => (event.target instanceof Element ? event.target.closest("mark") : null);
for (const name of ["mouseover", "focusin", "click"]) $("text").addEventListener(name, (event) => (markAt(event) ? show(markAt(event)) : hide()));
for (const name of ["mouseleave", "focusout"]) $("text").addEventListener(name, hide);
// A card stays with the value that has the focus as long as that can be seen.
$("reading").addEventListener("scroll", () => {
  const mark = document.activeElement.closest("mark");
  const [view, at] = [$("reading").getBoundingClientRect(), mark?.getBoundingClientRect()];
  if (mark && at.bottom > view.top && at.top < view.bottom) show(mark);
  else hide();
});
addEventListener("keydown", (event) => event.key === "Escape" && hide());

// The table.
const COLUMNS = [
  ["Document", "document", (row) => report.documents[row.d].id],
  ["Record", "number", (row) => row.r + 1],
  ["Field", "field", (row) => row.label],
  ["Value", "value", (row) => (typeof row.field.value === "number" ? row.field.value : row.value)],
  ["Confidence", "number", (row) => row.field.confidence ?? -1],
  ["Match", "state", (row) => row.state],
];
let order = { column: -1, down: false };
let found = rows;
let drawn = 0;
let selected = null;
const compared = new Intl.Collator(undefined, { numeric: true }).compare;
function compare(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : compared(String(a), String(b));
}
function list() {
  const words = $("query").value.toLowerCase().split(/\s+/).filter(Boolean);
  const [field, state, here] = [$("of-field").value, $("of-state").value, $("of-document").value];
  found = rows.filter(
    (row) =>
      (!here || row.d === current) &&
      (!field || row.label === field) &&
      (!state || (state === "review" ? row.field.flags.length > 0 : row.place === state)) &&
      words.every((word) => row.search.includes(word)),
  );
  if (order.column >= 0) {
    const key = COLUMNS[order.column][2];
    const sign = order.down ? -1 : 1;
    found = found.map((row) => [key(row), row]).sort((a, b) => sign * compare(a[0], b[0]) || a[1].number - b[1].number).map((pair) => pair[1]);
  }
  $("count").textContent = found.length === rows.length ? plural(rows.length, "value") : `${found.length.toLocaleString("en")} of ${plural(rows.length, "value")}`;
  drawn = 0;
  document.querySelector("tbody").replaceChildren();
  draw();
  $("scroll").scrollTop = 0;
}
function draw() {
  const next = found.slice(drawn, drawn + PAGE);
  drawn += next.length;
  document.querySelector("tbody").append(...next.map(drawnRow));
  $("more").hidden = drawn >= found.length;
}
function drawnRow(row) {
  const line = make("tr", "", { tabIndex: 0 });
  line.row = row;
  line.dataset.row = row.number;
  line.setAttribute("aria-selected", String(row === selected));
  for (const [, name] of COLUMNS) line.append(make("td", "", { className: name }));
  const [inDocument, number, field, value, confidence, state] = line.children;
  inDocument.textContent = report.documents[row.d].id;
  number.textContent = row.r + 1;
  const dot = make("span", "", { className: "dot" });
  tint(dot, row.label);
  field.append(dot, row.label);
  value.textContent = row.value;
  confidence.textContent = percent(row.field.confidence);
  state.append(row.place === "absent" ? "not found" : row.place);
  if (row.field.flags.length) state.append(" ", make("span", row.field.flags.join(", "), { className: "flag" }));
  return line;
}
function choose(row) {
  selected = row;
  for (const line of document.querySelectorAll("tbody tr")) line.setAttribute("aria-selected", String(line.row === row));
  open(row.d);
  let first = null;
  for (const mark of marks) {
    const target = mark.rows.includes(row);
    mark.classList.toggle("target", target);
    first ??= target ? mark : null;
  }
  if (first) {
    first.scrollIntoView({ block: "center" });
    first.focus({ preventScroll: true });
    show(first);
  } else hide();
}
const lineAt = (event) => event.target.closest("tbody tr");
document.querySelector("tbody").addEventListener("click", (event) => lineAt(event) && choose(lineAt(event).row));
document.querySelector("tbody").addEventListener("keydown", (event) => event.key === "Enter" && lineAt(event) && choose(lineAt(event).row));
for (const [column, [title]] of COLUMNS.entries()) {
  const head = make("th", "", { scope: "col" });
  const button = make("button", title, { type: "button" });
  button.addEventListener("click", () => {
    // Up, down, and back to the order of the documents.
    order = order.column !== column ? { column, down: false } : order.down ? { column: -1, down: false } : { column, down: true };
    for (const [other, cell] of [...head.parentNode.children].entries()) {
      cell.setAttribute("aria-sort", other !== order.column ? "none" : order.down ? "descending" : "ascending");
    }
    list();
  });
  head.append(button);
  document.querySelector("thead tr").append(head);
}
$("more").addEventListener("click", draw);
$("scroll").addEventListener("scroll", () => {
  if (!$("more").hidden && $("scroll").scrollTop + $("scroll").clientHeight > $("scroll").scrollHeight - 200) draw();
});
$("filters").addEventListener("input", list);
$("filters").addEventListener("submit", (event) => event.preventDefault());

// What is there once.
const records = report.documents.reduce((sum, one) => sum + one.records.length, 0);
$("summary").textContent = [
  plural(report.documents.length, "document"),
  plural(records, "record"),
  plural(rows.length, "value"),
  ...(review ? [`${plural(review, "value")} ${REVIEW}`] : []),
  ...(failed.length ? [`${plural(failed.length, "document")} with failures`] : []),
].join(" · ");
for (const field of fields.values()) {
  const button = make("button", `${field.label} ${field.count}`, { type: "button" });
  button.setAttribute("aria-pressed", "true");
  tint(button, field.label);
  button.addEventListener("click", () => {
    field.hidden = !field.hidden;
    button.setAttribute("aria-pressed", String(!field.hidden));
    colour();
  });
  $("legend").append(button);
  $("of-field").append(make("option", field.label, { value: field.label }));
}
report.documents.forEach((one, d) => {
  const entry = make("button", "", { type: "button" });
  entry.append(make("span", one.id, { className: "id" }));
  if (one.failures.length) entry.append(make("span", "failed", { className: "failed" }));
  entry.append(make("span", one.records.length, { className: "number", title: plural(one.records.length, "record") }));
  entry.addEventListener("click", () => open(d));
  const item = make("li");
  item.append(entry);
  $("documents").append(item);
  $("chosen").append(make("option", `${one.id} (${one.records.length}${one.failures.length ? ", failed" : ""})`, { value: String(d) }));
});
$("chosen").addEventListener("change", () => open(Number($("chosen").value)));
if (failed.length) {
  $("failures").hidden = false;
  document.querySelector("#failures summary").textContent = `${plural(failed.length, "document")} with failures`;
  for (const one of failed) {
    for (const failure of one.failures) {
      const item = make("li");
      const link = make("button", one.id, { type: "button", className: "link" });
      link.addEventListener("click", () => open(report.documents.indexOf(one)));
      const where = failure.end ? `, characters ${failure.start} to ${failure.end}` : "";
      item.append(link, `${where}: ${failure.error}: ${failure.message}`);
      if (failure.raw) {
        const raw = make("details");
        raw.append(make("summary", "The model's answer"), make("pre", failure.raw));
        item.append(raw);
      }
      document.querySelector("#failures ul").append(item);
    }
  }
}
list();
if (report.documents.length) open(0);
else $("text").append(make("span", "There are no documents.", { className: "empty" }));

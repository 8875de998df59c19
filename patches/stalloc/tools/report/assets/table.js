// Tables: heads are buttons that sort, by mouse or keyboard; a search over all rows, of which only the first ones become
// elements; what was found as CSV.
// columns: {name, text (sorts as text), long (elided: `title` has all), path (elided in front), wrap (sentences), value(row),
// show(row) -> text or element, searched(row): text that is searched instead of `value`}

const cellsOf = (columns, row) => columns.map((column) => {
  const content = column.show ? column.show(row) : String(column.value(row));
  const kind = column.path ? "text long name" : column.long ? "text long" : column.wrap ? "text wrap" : column.text ? "text" : null;
  const shown = Array.isArray(content) ? content : [content];
  // The end of a path is the most specific: it is elided in front, so the cell runs from right to left, and its text does not.
  return element("td", { class: kind, title: column.title ? column.title(row) : null }, ...(column.path ? [element("bdi", {}, ...shown)] : shown));
});

// Bytes and times as numbers, texts as they are shown.
const csvOf = (columns, rows) => {
  const quoted = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const plain = (column, row) => {
    const shown = column.text && column.show ? column.show(row) : null;
    return quoted(String((typeof shown === "string" ? shown : column.value(row)) ?? ""));
  };
  const lines = [columns.map((column) => quoted(column.name)), ...rows.map((row) => columns.map((column) => plain(column, row)))];
  return `${lines.map((cells) => cells.join(",")).join("\n")}\n`;
};
const download = (name, text) => {
  const link = element("a", { download: name, href: URL.createObjectURL(new Blob([text], { type: "text/csv" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

const table = (columns, rows, { search = null, label = search, sort = 0, total = null, best = null } = {}) => {
  let by = sort, falling = true, shown = ROWS_SHOWN, words = "", found = rows;
  const body = element("tbody");
  const heads = columns.map((column, index) =>
    element("th", { class: column.long ? "text long" : column.text ? "text" : null, scope: "col" }, element("button", { onclick: () => {
      falling = by === index ? !falling : !column.text;
      by = index;
      fill();
    } }, column.name)));
  const summary = element("span", { class: "right" });
  const more = element("button", { onclick: () => { shown += 1000; fill(); } }, "more rows");
  const save = element("button", { title: "these rows as CSV: bytes, nanoseconds", onclick: () =>
    download(`${data.title.replace(/[^\w.-]+/g, "_")}-${save.closest("section")?.id ?? "table"}.csv`, csvOf(columns, found)) }, "CSV");
  const texts = search === null ? [] : rows.map((row) =>
    columns.filter((column) => column.text).map((column) => (column.searched ?? column.value)(row)).join(" ").toLowerCase());
  const fill = () => {
    const wanted = words.split(/\s+/).filter(Boolean);
    found = rows.filter((row, index) => wanted.every((word) => texts[index].includes(word)));
    if (by !== null) {
      const value = columns[by].value;
      found.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        return (x < y ? -1 : x > y ? 1 : 0) * (falling ? -1 : 1);
      });
    }
    heads.forEach((head, index) => head.setAttribute("aria-sort", index !== by ? "none" : falling ? "descending" : "ascending"));
    body.replaceChildren(...found.slice(0, shown).map((row) =>
      element("tr", { class: best !== null && best(row) ? "best" : null }, ...cellsOf(columns, row))));
    more.hidden = found.length <= shown;
    summary.textContent = total === null ? counted(found.length, "row") : total(found);
  };
  fill();
  const field = search === null ? null : element("input", { type: "search", placeholder: search, "aria-label": label,
    oninput: (event) => { words = event.target.value.toLowerCase(); shown = ROWS_SHOWN; fill(); } });
  return element("div", {}, element("div", { class: "row" }, field, more, summary, rows.length ? save : null),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body)));
};
const TIP_LINES = 40;
const tipped = (text) => {
  const lines = (text ?? "").split("\n");
  return lines.length <= TIP_LINES ? text : `${lines.slice(0, TIP_LINES).join("\n")}\n… and ${count(lines.length - TIP_LINES)} more`;
};
const bytesColumn = (name, value) => ({ name, value, show: (row) => size(value(row)), title: (row) => `${count(value(row) ?? 0)} bytes` });

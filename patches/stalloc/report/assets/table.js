// Tables.

// A table that sorts by a click on its head and searches in all of its rows; only the first ones become elements.
// columns: {name, text (sorts as text), long (may be cut off: `title` has all), wrap (sentences), value(row), show(row) -> text or element,
// searched(row): text that is searched instead of `value`}
const table = (columns, rows, { search = null, label = search, sort = 0, total = null, best = null } = {}) => {
  let by = sort, falling = true, shown = ROWS_SHOWN, words = "";
  const body = element("tbody");
  const heads = columns.map((column, index) =>
    element("th", { class: column.text ? "text" : null, scope: "col", onclick: () => {
      falling = by === index ? !falling : !column.text;
      by = index;
      fill();
    } }, column.name));
  const told = element("span", { class: "right" });
  const more = element("button", { onclick: () => { shown += 1000; fill(); } }, "more rows");
  const texts = search === null ? [] : rows.map((row) =>
    columns.filter((column) => column.text).map((column) => (column.searched ?? column.value)(row)).join(" ").toLowerCase());
  const fill = () => {
    const wanted = words.split(/\s+/).filter(Boolean);
    const found = rows.filter((row, index) => wanted.every((word) => texts[index].includes(word)));
    if (by !== null) {
      const value = columns[by].value;
      found.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        return (x < y ? -1 : x > y ? 1 : 0) * (falling ? -1 : 1);
      });
    }
    heads.forEach((head, index) =>
      index === by ? head.setAttribute("aria-sort", falling ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
    body.replaceChildren(...found.slice(0, shown).map((row) =>
      element("tr", { class: best !== null && best(row) ? "best" : null }, ...columns.map((column) => {
        const content = column.show ? column.show(row) : String(column.value(row));
        return element("td", { class: column.long ? "text long" : column.wrap ? "text wrap" : column.text ? "text" : null, title: column.title ? column.title(row) : null },
          ...(Array.isArray(content) ? content : [content]));
      }))));
    more.hidden = found.length <= shown;
    told.textContent = total === null ? counted(found.length, "row") : total(found);
  };
  fill();
  const field = search === null ? null : element("input", { type: "search", placeholder: search, "aria-label": label,
    oninput: (event) => { words = event.target.value.toLowerCase(); shown = ROWS_SHOWN; fill(); } });
  return element("div", {}, element("div", { class: "row" }, field, more, told),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body)));
};
const TIP_LINES = 40;
const tipped = (text) => {
  const lines = (text ?? "").split("\n");
  return lines.length <= TIP_LINES ? text : `${lines.slice(0, TIP_LINES).join("\n")}\n… and ${count(lines.length - TIP_LINES)} more`;
};
const bytesColumn = (name, value) => ({ name, value, show: (row) => size(value(row)), title: (row) => `${count(value(row) ?? 0)} bytes` });

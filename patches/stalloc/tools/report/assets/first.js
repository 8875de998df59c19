// The first screen: how much, when and where, what to do about it, and what another trace would show.

// "iter 1, B 0 chunk 2" in words; what is no pass stays.
const whenTold = (phase) => {
  const [, iteration, pass, number, chunk] = /^iter (\d+), ([FB]) (\d+)(?: chunk (\d+))?$/.exec(phase) ?? [];
  if (!pass) return phase.replace(/^iter /, "iteration ");
  return `${pass === "F" ? "forward" : "backward"} pass, iteration ${iteration}, micro-batch ${number}${chunk ? `, chunk ${chunk}` : ""}`;
};

// The innermost part of the tree that holds most of the largest class: where to look.
const MOST = 0.6;
const whereMost = (root) => {
  let at = root.children[0];
  const path = [];
  while (at) {
    path.push(at);
    const held = at.bytes;
    at = at.children.find((child) => child.bytes >= MOST * held && child.children.length);
  }
  return path;
};

const card = (label, value, ...more) => element("div", { class: "card" }, element("span", {}, label), element("b", {}, value), ...more.filter(Boolean));
const line = (text) => element("span", {}, text);

const heldCard = (figures) => {
  const held = (name) => figures.allocators.find((row) => row.name === name);
  const native = held("PyTorch native"), ran = held("stalloc, last run (Alloc)"), plan = ran ?? held("stalloc, planned");
  if (!native) return null;
  if (!plan) return card("held by PyTorch's allocator (simulated)", size(native.held_bytes), line(`E ${share(native.efficiency)}; stalloc plan computes what a plan would hold`));
  const change = plan.held_bytes - native.held_bytes;
  return card(ran ? "held by stalloc, last run" : "held with the plan (predicted)", size(plan.held_bytes),
    line(`PyTorch's allocator: ${size(native.held_bytes)} (simulated), ${change > 0 ? "+" : "−"}${(100 * Math.abs(change / native.held_bytes)).toFixed(1)} % with stalloc`));
};

// What to set may be lines of code: two of them here, all in the tip and in the table of changes.
const changeCard = (row) => card(row.grows ? "this run grows in every iteration" : row.of_live ? "what lowers the peak" : "what lowers what is held",
  row.grows ? `+${size(row.grows)}` : `−${size(row.saves_bytes)}`,
  element("span", { class: "change" }, row.what), line(`${row.at_least ? "at least so much; " : ""}cost: ${row.cost}`),
  row.how_to ? element("a", { class: "set", href: "#advice", title: row.how_to }, row.how_to) : null);

const firstLook = (view, device, index) => {
  const figures = view.figures[index], path = whereMost(moduleTree(peakRows(view, device)));
  const inner = path[path.length - 1], changes = view.best_changes[index], hints = view.hints[index];
  const where = path.length ? card(`where: ${path[0].label}`, size(path[0].bytes), line(`${share(path[0].bytes / device.peak.live_bytes)} of the peak`),
    path.length > 1 ? element("span", { title: inner.title }, `${inner.bytes === path[0].bytes ? "all" : size(inner.bytes)} of it ${inner.title.startsWith("in no module") ? "" : "in "}${path.slice(1).map((part) => part.label).join(".")}`) : null) : null;
  const grown = view.inside[index] ? element("p", { class: "hint" }, view.inside[index]) : null;
  return element("div", { id: "first" }, element("p", { class: "worth" }, device.worth), grown, element("div", { class: "cards" },
    card("peak of live bytes", size(device.peak.live_bytes), line(whenTold(figures.peak_phase)), view.peak_often[index] ? line(view.peak_often[index]) : null, line(`event ${count(device.peak.event)}, after ${time(device.peak.ns)}`)),
    where, ...changes.map(changeCard), heldCard(figures)),
    hints.length ? element("p", { class: "hint more" }, hints.join(" ")) : null);
};

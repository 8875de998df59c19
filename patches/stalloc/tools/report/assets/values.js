// The data, values as text, and elements. Bytes and nanoseconds throughout; docs/report-json.md has the keys.

const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = {
  weights: "#4269d0", gradients: "#e09f12", "optimizer state": "#9a5ff0", "casts of weights": "#a97142", activations: "#2f9e4f",
  inputs: "#19a7b8", temporaries: "#f0603f", dynamic: "#e673ac", other: "#8b93a1",
};
// From the bottom of the stack: what stays lies below what comes and goes.
const STACK = [
  "weights", "optimizer state", "gradients", "casts of weights", "inputs", "activations", "dynamic", "temporaries", "other",
];
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const ROWS_SHOWN = 60;
const state = { view: 0, device: 0, axis: "event", span: "timeline", tree: "icicle", treeBy: "modules", segment: null, round: 0 };

// -- Values as text

const unitOf = (most) => {
  let unit = 0;
  while (most >= 1024 ** (unit + 1) && unit + 1 < UNITS.length) unit += 1;
  return { name: UNITS[unit], bytes: 1024 ** unit };
};
const size = (bytes) => {
  if (bytes === null || bytes === undefined) return "–";
  const unit = unitOf(Math.abs(bytes));
  return unit.bytes === 1 ? `${bytes} B` : `${(bytes / unit.bytes).toFixed(2)} ${unit.name}`;
};
const share = (value) => (value ? `${(100 * value).toFixed(2)} %` : "–");
const count = (value) => value.toLocaleString("en-US");
const counted = (value, what) => `${count(value)} ${what}${value === 1 ? "" : "s"}`;
const time = (ns) => (ns >= 1e9 ? `${(ns / 1e9).toFixed(3)} s` : ns >= 1e6 ? `${(ns / 1e6).toFixed(2)} ms` : `${(ns / 1e3).toFixed(1)} µs`);

// -- Elements

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
};
const dot = (name) => element("span", { class: "dot", style: `background:${COLOURS[name] ?? "transparent"}` });
const choice = (options, chosen, choose) =>
  element("span", { class: "row", role: "group", style: "margin:0" },
    ...options.map(([value, label]) =>
      element("button", { "aria-pressed": String(value === chosen), onclick: () => choose(value) }, label)));

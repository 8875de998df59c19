// Two runs side by side (stalloc diff --html).

// -- Two runs side by side (stalloc diff --html)

const changeColumns = (name) => [
  { name, text: true, value: (row) => row.name },
  bytesColumn("A", (row) => row.before), bytesColumn("B", (row) => row.after), changeColumn,
];
const changeColumn = { name: "B − A", value: (row) => row.change, show: (row) => `${row.change > 0 ? "+" : row.change < 0 ? "−" : ""}${size(Math.abs(row.change))}` };

const curveSection = (difference) => {
  const box = plotBox(460), runs = [["A", difference.curves[0], COLOURS.weights], ["B", difference.curves[1], COLOURS.temporaries]];
  later.push(() => {
    const unit = unitOf(Math.max(...runs.flatMap(([, curve]) => curve.live)));
    draw(box, runs.map(([name, curve, colour]) => ({
      x: curve.iteration, y: curve.live.map((value) => value / unit.bytes), name: `${name}: ${curve.name}`, mode: "lines",
      line: { shape: "hv", width: 1.5, color: colour }, hovertemplate: `%{y:.3f} ${unit.name}<extra>${name}</extra>`,
    })), { hovermode: "x", xaxis: { title: { text: "iteration (from −1: the set-up)" } }, yaxis: { title: { text: `live (${unit.name})` } } });
  });
  return section("curves", "Live memory of both runs", "Each iteration is as wide in both, however many requests it has. Least and greatest moments of each stretch.", box);
};

const buildDifference = () => {
  later = [];
  const found = data.difference, peak = found.peak_live_bytes;
  const dark = document.documentElement.dataset.theme === "dark";
  const part = (id, title, name, rows) => (rows.some((row) => row.change)
    ? section(id, title, "", table(changeColumns(name), rows.filter((row) => row.change), { sort: null, search: `search ${name}` }))
    : section(id, title, "Nothing differs."));
  const blocks = table([changeColumn, { name: "blocks", value: (row) => row.after - row.before, show: (row) => `${row.before} → ${row.after}` }, bytesColumn("block", (row) => row.bytes), classColumn,
    { name: "layer", text: true, long: true, path: true, value: (row) => row.layer || "–", title: (row) => row.layer }, { name: "phase", text: true, value: (row) => row.phase }], found.blocks, { sort: null, search: "search class, layer, phase" });
  const sections = [curveSection(found), part("classes", "Classes at the peak", "class", found.by_class), section("blocks", "Blocks at the peak", "Alike in class, layer, phase and size.", blocks),
    part("layers", "Layers at the peak", "layer", found.by_layer),
    ...(found.by_call_site.length ? [part("sites", "Call sites at the peak", "call site", found.by_call_site)] : []), part("phases", "Peaks of phases", "phase", found.phases), part("allocators", "What allocators hold", "allocator", found.allocators)];
  document.getElementById("report").replaceChildren(
    element("header", {}, element("h1", {}, data.title), element("span", { class: "facts" }, `stalloc ${data.version}`), element("div", { class: "tools" },
      element("button", { onclick: () => { document.documentElement.dataset.theme = dark ? "light" : "dark"; buildDifference(); } }, dark ? "light" : "dark"))),
    element("div", { class: "cards" }, ...[["peak of A", size(peak.before), found.peak_phase.before], ["peak of B", size(peak.after), found.peak_phase.after],
      ["B − A", changeColumn.show(peak), `${((100 * peak.change) / peak.before).toFixed(1)} %`]].map(([label, value, more]) =>
      element("div", { class: "card" }, element("span", {}, label), element("b", {}, value), element("span", {}, more)))),
    found.not_compared.length ? element("ul", { class: "notes" }, ...found.not_compared.map((line) => element("li", {}, `Not compared: ${line}.`))) : "", ...sections);
  drawAll(later);
};

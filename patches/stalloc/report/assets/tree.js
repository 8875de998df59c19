// The peak as a tree.

// class > layer path or phase > size. Values are totals, so that plotly need not sum rounded numbers.
const treeNodes = (rows, device) => {
  const nodes = new Map();
  const add = (path, bytes, colour) => {
    const id = path.join("\u0001");
    const node = nodes.get(id) ?? { id, label: path[path.length - 1], parent: path.slice(0, -1).join("\u0001"), bytes: 0, colour };
    node.bytes += bytes;
    nodes.set(id, node);
  };
  for (const row of rows) {
    const layer = row.layer ? row.layer.split(".") : [];
    const layers = layer.length ? [layer.length > 3 ? layer.slice(0, 3).join(".") : row.layer] : [];
    const leaf = row.tensor ? [row.tensor] : [row.phase, `${row.count} × ${size(row.bytes)}`];
    const path = ["live at the peak", row.class, ...layers, ...leaf];
    for (let depth = 1; depth <= path.length; depth += 1) add(path.slice(0, depth), row.together, depth === 1 ? css("--line") : COLOURS[row.class]);
  }
  return [...nodes.values()];
};

const treeSection = (view, device) => {
  const left = plotBox(560), tools = element("div", { class: "row" }), whole = device.peak.live_bytes;
  const legend = element("div", { class: "row legend" }, ...classTotals(peakRows(view, device)).map(([name, bytes]) =>
    element("span", { class: "hint", style: "margin:0" }, dot(name), `${name} ${size(bytes)}, ${share(bytes / whole)}`)));
  const render = () => {
    const nodes = treeNodes(peakRows(view, device), device);
    draw(left, [{
      type: state.tree, ids: nodes.map((node) => node.id), labels: nodes.map((node) => node.label), parents: nodes.map((node) => node.parent),
      values: nodes.map((node) => node.bytes), branchvalues: "total", maxdepth: state.tree === "sunburst" ? 3 : 4,
      marker: { colors: nodes.map((node) => node.colour), line: { width: 1, color: css("--card") } },
      text: nodes.map((node) => `${size(node.bytes)}, ${share(node.bytes / whole)}`), textinfo: "label+text", hovertemplate: "%{label}<br>%{text}<extra></extra>",
      insidetextorientation: "auto", leaf: { opacity: 0.85 }, tiling: { pad: 2 }, pathbar: { visible: true },
      textfont: { size: 13 }, outsidetextfont: { color: css("--text") },
    }], { margin: { l: 8, r: 8, t: 28, b: 8 }, uniformtext: { minsize: 11, mode: "hide" } });
  };
  const refresh = () => {
    tools.replaceChildren(choice([["sunburst", "sunburst"], ["treemap", "treemap"]], state.tree, (value) => { state.tree = value; refresh(); }));
    render();
  };
  later.push(refresh);
  return section("tree", "The peak as a tree", "Class, then layer where the trace knows it, then the tensor by name, else the phase that allocated and the size. A click opens a part.", tools, legend, left);
};

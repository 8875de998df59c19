// What is live at the peak as a tree: by class and module, or by call stack. A node is
// { label, title, bytes, rows, children }; `rows` are those of the peak's table below it. Parts stand by size.

// A path's parts as they come in, each with the rows that end there.
const trie = (path = []) => ({ path, rows: [], inside: new Map() });
const plant = (root, parts, row) => {
  let at = root;
  for (const part of parts) {
    if (!at.inside.has(part)) at.inside.set(part, trie([...at.path, part]));
    at = at.inside.get(part);
  }
  at.rows.push(row);
};
const rowsBelow = (at) => [...at.rows, ...[...at.inside.values()].flatMap(rowsBelow)];
const together = (rows) => rows.reduce((sum, row) => sum + row.together, 0);
const sorted = (nodes) => nodes.sort((a, b) => b.bytes - a.bytes);
const nodeOf = (label, title, rows, children = []) => ({ label, title, rows, bytes: together(rows), children: sorted(children) });

// Layers are alike where the same parts of them have memory, about as much in all: parts of a fiftieth do not count.
const shapeOf = (twigs) => {
  const parts = new Map();
  let bytes = 0;
  const walk = (at, path) => {
    const own = together(at.rows);
    bytes += own;
    if (own) parts.set(path, (parts.get(path) ?? 0) + own);
    at.inside.forEach((inner, name) => walk(inner, `${path}.${name}`));
  };
  twigs.forEach((twig) => walk(twig, ""));
  const large = [...parts].filter(([, own]) => own * 50 >= bytes).map(([path]) => path).sort().join("\n");
  return { bytes, large };
};
const alike = (a, b) => a.large === b.large && Math.abs(a.bytes - b.bytes) <= 0.1 * Math.max(a.bytes, b.bytes);

// [0, 1, 2, 5] -> "0–2, 5"; "*" where these are all there are.
const rangeOf = (numbers, all) => {
  if (numbers.length === all) return "*";
  const runs = [];
  for (const number of numbers) {
    const last = runs[runs.length - 1];
    if (last && last[1] + 1 === number) last[1] = number; else runs.push([number, number]);
  }
  const shown = runs.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`));
  return shown.length > 4 ? `${shown.slice(0, 4).join(", ")}, …` : shown.join(", ");
};

// Numbered parts that are alike, together: [name, number of parts, their twigs].
const groupAlike = (inside) => {
  const numbers = [...inside.keys()].filter((name) => /^\d+$/.test(name)).map(Number).sort((a, b) => a - b);
  const groups = [];
  for (const number of numbers) {
    const twigs = inside.get(String(number)), shape = shapeOf(twigs);
    const same = groups.find((group) => alike(group.shape, shape));
    if (same) { same.numbers.push(number); same.twigs.push(...twigs); } else groups.push({ numbers: [number], twigs, shape });
  }
  const others = [...inside].filter(([name]) => !/^\d+$/.test(name)).map(([name, twigs]) => [name, 1, twigs]);
  return [...others, ...groups.map(({ numbers: found, twigs }) =>
    [found.length === 1 ? String(found[0]) : rangeOf(found, numbers.length), found.length, twigs])];
};

// In what a path differs from others of its kind, and the part before: "layers.3" of "model.layers.3.mlp".
const apart = (path, all) => {
  const parts = path.split("."), others = all.map((other) => other.split("."));
  const shared = (at) => others.every((other) => at(other) === at(parts));
  let first = 0, last = 0;
  while (first < parts.length - 1 && shared((of) => of[first])) first += 1;
  while (last < parts.length - first - 1 && shared((of) => of[of.length - 1 - last])) last += 1;
  return parts.slice(Math.max(0, first - 1), parts.length - last).join(".");
};

// Blocks of a module: those with one name, or of one size and phase. Of several modules, each is below.
const leaves = (rows) => {
  const kinds = new Map();
  for (const row of rows) {
    const key = row.tensor ? ownName(row) : `${row.bytes} ${row.role}`;
    kinds.set(key, [...(kinds.get(key) ?? []), row]);
  }
  const blocks = (of) => of.reduce((sum, row) => sum + row.count, 0);
  const label = (of) => {
    const number = blocks(of), name = of[0].tensor ? ownName(of[0]) : size(of[0].bytes);
    return of[0].tensor ? (number > 1 ? `${name} × ${count(number)}` : name) : `${count(number)} × ${name}`;
  };
  return [...kinds.values()].map((of) => {
    const layers = [...new Set(of.map((row) => row.layer))];
    const title = `${label(of)}, allocated in ${[...new Set(of.map((row) => row.role))].join(", ")}`;
    return nodeOf(label(of), title, of, layers.length < 2 ? [] : layers.map((layer) => {
      const own = of.filter((row) => row.layer === layer);
      return nodeOf(apart(layer, layers), `${layer}: ${label(own)}`, own);
    }));
  });
};

// Of twigs that are alike one node, their parts merged by name. A part that holds all of its module is one node with it.
const moduleNode = (parts, times, twigs, outer) => {
  const inside = new Map();
  for (const twig of twigs) twig.inside.forEach((inner, name) => inside.set(name, [...(inside.get(name) ?? []), inner]));
  const own = twigs.flatMap((twig) => twig.rows), groups = groupAlike(inside);
  if (!own.length && groups.length === 1) {
    const [name, number, inner] = groups[0];
    return moduleNode([...parts, name], times * number, inner, outer);
  }
  const last = parts[parts.length - 1];
  const label = (/^[\d*]/.test(parts[0]) && outer ? `${outer}.` : "") + parts.join(".") + (times > 1 ? ` × ${times}` : "");
  const rows = twigs.flatMap(rowsBelow), paths = twigs.map((twig) => twig.path.join("."));
  const title = paths.length === 1 ? paths[0] : `${label}: ${paths[0]} … ${paths[paths.length - 1]}`;
  const children = groups.map(([name, number, inner]) => moduleNode([name], number, inner, last));
  return nodeOf(label, title, rows, [...children, ...leaves(own)]);
};

const moduleTree = (rows) => {
  const classes = classTotals(rows).map(([name]) => {
    const own = rows.filter((row) => row.class === name), root = trie();
    for (const row of own) plant(root, row.layer ? row.layer.split(".") : [], row);
    const inside = [...root.inside].map(([part, twig]) => moduleNode([part], 1, [twig], ""));
    const phases = [...new Set(root.rows.filter((row) => !row.tensor).map((row) => row.role))].map((role) => {
      const of = root.rows.filter((row) => !row.tensor && row.role === role);
      return nodeOf(`in no module, ${role}`, `in no module, allocated in ${role}`, of, leaves(of));
    });
    return nodeOf(name, name, own, [...inside, ...phases, ...leaves(root.rows.filter((row) => row.tensor))]);
  });
  return nodeOf("live at the peak", "live at the peak", rows, classes);
};

// What torch puts around every module's forward says nothing.
const isPlumbing = (call) => /torch\/nn\/modules\/module\.py:\d+ Module\._(?:wrapped_)?call_impl|^<frozen /.test(call);
const shortCall = (call) => call.slice(call.lastIndexOf("/") + 1);

// Outermost first; calls that hold one other call alone are one node with it.
const callNode = (twig) => {
  const calls = [twig.path[twig.path.length - 1]];
  let at = twig;
  while (!at.rows.length && at.inside.size === 1) {
    at = [...at.inside.values()][0];
    calls.push(at.path[at.path.length - 1]);
  }
  const [first, last] = [shortCall(calls[0]), shortCall(calls[calls.length - 1])];
  const label = calls.length === 1 ? last : `${last} ‹ ${calls.length > 2 ? "… ‹ " : ""}${first}`;
  return nodeOf(label, [...calls].reverse().join("\n"), rowsBelow(at), [...[...at.inside.values()].map(callNode), ...leaves(at.rows)]);
};
const callTree = (rows) => {
  const root = trie(), without = rows.filter((row) => !row.calls);
  for (const row of rows) {
    if (row.calls) plant(root, row.calls.split("\n").reverse().filter((call) => !isPlumbing(call)), row);
  }
  const classes = classTotals(without).map(([name]) => {
    const own = without.filter((row) => row.class === name);
    return nodeOf(`${name}, no stack recorded`, `${name}, no stack recorded`, own, leaves(own));
  });
  return nodeOf("live at the peak", "live at the peak", rows, [...[...root.inside.values()].map(callNode), ...classes]);
};

// The class that most of its bytes are of.
const classOf = (node) => classTotals(node.rows).reduce((most, of) => (of[1] > most[1] ? of : most), ["other", -1])[0];

// As plotly wants it.
const flattened = (root) => {
  const nodes = [];
  const walk = (node, parent, at) => {
    const id = parent === "" ? "0" : `${parent}.${at}`;
    nodes.push({ ...node, id, parent, colour: parent === "" ? css("--line") : COLOURS[classOf(node)] });
    node.children.forEach((child, i) => walk(child, id, i));
  };
  walk(root, "", 0);
  return nodes;
};

// Characters of a label that fit into the innermost circle; longer labels are shown whole above the plot.
const LABEL_LENGTH = 26;
const elided = (label) => (label.length <= LABEL_LENGTH ? label : label.includes(":") ? `${label.slice(0, LABEL_LENGTH - 1)}…` : `…${label.slice(1 - LABEL_LENGTH)}`);

const treePlot = (box, readout, root, kind) => {
  const nodes = flattened(root), whole = root.bytes || 1, byId = new Map(nodes.map((node) => [node.id, node]));
  const path = (node) => (node.parent ? `${path(byId.get(node.parent))} › ${node.label}` : node.label);
  const show = (node) => { readout.textContent = `${path(node)}: ${size(node.bytes)}, ${share(node.bytes / whole)} of the peak`; };
  draw(box, [{
    type: kind, ids: nodes.map((node) => node.id), labels: nodes.map((node) => elided(node.label)), parents: nodes.map((node) => node.parent),
    values: nodes.map((node) => node.bytes), branchvalues: "total", maxdepth: kind === "sunburst" ? 4 : 3,
    marker: { colors: nodes.map((node) => node.colour), line: { width: 1, color: css("--card") } }, sort: false,
    text: nodes.map((node) => `${size(node.bytes)}, ${share(node.bytes / whole)}`), textinfo: "label+text",
    customdata: nodes.map((node) => node.title.replaceAll("\n", "<br>")), hovertemplate: "%{customdata}<br>%{text}<extra></extra>",
    insidetextorientation: "auto", leaf: { opacity: 0.85 }, tiling: { pad: 2 }, pathbar: { visible: true },
    textfont: { size: 13 }, outsidetextfont: { color: css("--text") },
  }], { margin: { l: 8, r: 8, t: 28, b: 8 }, uniformtext: { minsize: 11, mode: "hide" } });
  show(nodes[0]);
  box.on(`plotly_${kind}click`, (event) => show(byId.get(event.nextLevel ?? nodes[0].id) ?? nodes[0]));
};

const treeSection = (view, device) => {
  const rows = peakRows(view, device), stacks = rows.some((row) => row.calls);
  const tools = element("div", { class: "row" }), holder = element("div"), roots = {};
  const rootOf = (by) => (roots[by] ??= by === "calls" ? callTree(rows) : moduleTree(rows));
  const legend = element("div", { class: "row legend" }, ...classTotals(rows).map(([name, bytes]) =>
    element("span", { class: "hint", style: "margin:0" }, dot(name), `${name} ${size(bytes)}, ${share(bytes / device.peak.live_bytes)}`)));
  const refresh = () => {
    const by = stacks ? state.treeBy : "modules";
    tools.replaceChildren(
      choice([["icicle", "icicle"], ["sunburst", "sunburst"], ["treemap", "treemap"]], state.tree, (value) => { state.tree = value; refresh(); }),
      ...(stacks ? [choice([["modules", "by module"], ["calls", "by call stack"]], by, (value) => { state.treeBy = value; refresh(); })] : []));
    if (state.tree === "icicle") return holder.replaceChildren(icicle(rootOf(by)));
    const box = plotBox(narrow() ? 420 : 620), readout = element("div", { class: "readout" });
    holder.replaceChildren(readout, box);
    treePlot(box, readout, rootOf(by), state.tree);
  };
  later.push(refresh);
  return section("tree", "The peak as a tree",
    `Class, then modules to their full depth, then tensors, or blocks by number and size; layers that are alike are one part, "layers.* × 32", which opens. ${
      stacks ? "By call stack: outermost call on top." : "Record with STALLOC_TRACE_STACKS=1 for a tree by call stack."} A click opens a part.`, tools, legend, holder);
};

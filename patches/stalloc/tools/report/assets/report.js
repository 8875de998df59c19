// The report of one run.

// -- Sections: each returns an element; what needs to be in the document to be drawn goes into `later`

let later = [];
const section = (id, title, hint, ...children) =>
  element("section", { id }, element("h2", {}, title), hint ? element("p", { class: "hint" }, hint) : null, ...children);

const boundaries = (phases, from, to, key) => {
  const shapes = [], labels = [];
  const starts = phases.segment.map((segment, i) => (i === 0 || segment !== phases.segment[i - 1] ? i : -1)).filter((i) => i >= 0);
  const every = Math.ceil(starts.length / (narrow() ? 5 : 24));
  const place = (i) => (key === "event" ? phases.event[i] : phases.ns[i] / 1e9);
  const drawn = document.documentElement.clientWidth - (narrow() ? 90 : 180); // of the plot, about
  const width = (name) => (key === "event" ? to - from : place(starts[starts.length - 1]) - place(starts[0])) * ((7 * name.length + 8) / drawn);
  starts.forEach((i, number) => {
    if (phases.event[i] < from || phases.event[i] > to) return;
    const name = phases.name[i].split(",")[0];
    const x = place(i), next = starts[Math.min(number + every, starts.length - 1)], tight = number + 1 < starts.length && place(next) - x < width(name);
    shapes.push({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: css("--soft"), width: 1, dash: "dot" } });
    if (number % every === 0 && !tight) {
      labels.push({ x, yref: "paper", ...(narrow() ? { y: 1, yanchor: "bottom" } : { y: 0.995, yanchor: "top" }), xanchor: "left", text: name, showarrow: false,
        font: { size: 12, color: css("--soft") }, bgcolor: css("--card"), opacity: 0.85 });
    }
  });
  return { shapes, labels };
};

// Phases of one iteration as bands, each with its name where it fits.
const bands = (phases, x, from, to, key) => {
  const shapes = [], labels = [];
  const place = (i) => (key === "event" ? phases.event[i] : phases.ns[i] / 1e9);
  // Also the one in which the series begins.
  const inside = phases.event.map((event, i) => i).filter((i) => (phases.event[i + 1] ?? Infinity) > from && phases.event[i] <= to);
  const begin = x[0], end = x[x.length - 1], whole = end - begin;
  inside.forEach((i, number) => {
    const x0 = Math.max(place(i), begin), x1 = number + 1 < inside.length ? place(inside[number + 1]) : end;
    if (number % 2 === 0) {
      shapes.push({ type: "rect", x0, x1, yref: "paper", y0: 0, y1: 1, line: { width: 0 }, fillcolor: css("--soft"), opacity: 0.09, layer: "below" });
    }
    const name = phases.name[i].includes(", ") ? phases.name[i].split(", ").slice(1).join(", ") : phases.name[i];
    if (x1 - x0 > whole * 0.012 * Math.max(3, name.length * 0.62)) {
      labels.push({ x: (x0 + x1) / 2, yref: "paper", y: 0.995, yanchor: "top", text: name, showarrow: false, font: { size: 12, color: css("--soft") } });
    }
  });
  return { shapes, labels };
};

// What was held from the first to the last event that is drawn; no line where the trace has nothing of it.
const heldLine = (held, [from, to], x, key, unit) => {
  if (!held.bytes.some((bytes) => bytes > 0)) return [];
  const inside = held.event.map((event, i) => i).filter((i) => held.event[i] >= from && held.event[i] <= to);
  const before = lastAt(held.event, from);
  const points = held.event[before] < from ? [before, ...inside] : inside;
  const end = x[x.length - 1];
  const place = (i) => Math.min(end, Math.max(x[0], key === "event" ? held.event[i] : held.ns[i] / 1e9));
  const levels = points.map((i) => held.bytes[i] / unit.bytes);
  return [{
    x: [...points.map(place), end], y: [...levels, levels[levels.length - 1]], name: "held on the device while tracing", mode: "lines",
    line: { shape: "hv", width: 2, color: css("--text"), dash: "dash" }, hoverinfo: "none",
  }];
};

const timelineSection = (view, device) => {
  const box = plotBox(460), readout = element("div", { class: "readout" }, "Point at the curve: phase and classes appear here.");
  const render = () => {
    const series = device[state.span], key = state.axis;
    const x = key === "event" ? series.event : series.ns.map((ns) => ns / 1e9);
    const most = Math.max(device.peak.live_bytes, ...device.held.bytes);
    const unit = unitOf(most);
    const traces = STACK.map((name) => [name, series.by_class[view.classes.indexOf(name)]])
      .filter(([, bytes]) => bytes.some((value) => value > 0))
      .map(([name, bytes]) => ({
        x, y: bytes.map((value) => value / unit.bytes), name, stackgroup: "live", line: { shape: "hv", width: 0 },
        fillcolor: COLOURS[name], hoverinfo: "none",
      }));
    const from = series.event[0], to = series.event[series.event.length - 1];
    traces.push(...heldLine(device.held, [from, to], x, key, unit));
    const lines = state.span === "timeline" ? boundaries(device.phases, from, to, key) : bands(device.phases, x, from, to, key);
    lines.labels.push({
      x: key === "event" ? device.peak.event : device.peak.ns / 1e9, y: device.peak.live_bytes / unit.bytes, ay: narrow() ? -12 : -32, ax: 46,
      text: `peak ${size(device.peak.live_bytes)}`, font: { size: 13, color: css("--text") }, arrowcolor: css("--text"), bgcolor: css("--card"),
    });
    draw(box, traces, {
      hovermode: "x", shapes: lines.shapes, annotations: lines.labels,
      xaxis: { title: { text: key === "event" ? "event (allocation, free or mark)" : "time since the first event (s)" } },
      yaxis: { title: { text: `live (${unit.name})` }, range: [0, (most / unit.bytes) * (narrow() ? 1.12 : 1.2)] },
    });
    box.removeAllListeners?.("plotly_hover");
    box.on("plotly_hover", (event) => {
      const i = lastAt(x, event.points[0].x);
      const classes = STACK.map((name) => [name, series.by_class[view.classes.indexOf(name)][i]]).filter(([, bytes]) => bytes);
      const live = classes.reduce((sum, [, bytes]) => sum + bytes, 0);
      readout.textContent = `event ${count(series.event[i])}, ${time(series.ns[i])}, ${device.phases.name[lastAt(device.phases.event, series.event[i])]}: ` +
        `${size(live)} live; ${classes.map(([name, bytes]) => `${name} ${size(bytes)}`).join(", ")}`;
    });
  };
  const tools = element("div", { class: "row" });
  const refresh = () => {
    tools.replaceChildren(
      choice([["timeline", "whole run"], ["peak_timeline", "iteration of the peak"], ["near_peak", "around the peak"]], state.span, (value) => { state.span = value; refresh(); }),
      choice([["event", "by event"], ["ns", "by time"]], state.axis, (value) => { state.axis = value; refresh(); }));
    render();
  };
  later.push(refresh);
  return section("timeline", "Live memory over the run",
    "Each block counts from its allocation to its free, rounded up to 512 bytes. A long run is drawn by the least and the greatest moment of each " +
    `stretch, so no peak is lost; around the peak every allocation and free is.${touched() ? "" : " Drag to zoom, double-click to go back."}`, tools, box, readout);
};

const peakRows = (view, device) => device.peak.bytes.map((bytes, i) => ({
  bytes, count: device.peak.count[i], together: bytes * device.peak.count[i], class: view.classes[device.peak.class[i]],
  layer: device.layers[device.peak.layer[i]], phase: device.peak.phase[i], freed: device.peak.freed_in[i] || "never",
  role: device.roles[device.peak.role[i]], stream: device.peak.stream[i], request: device.peak.request[i],
  tensor: device.peak.name[i], kind: device.peak.tensor[i], names: device.peak.names[i], ...called(device, device.peak.stack[i]),
}));
const called = (device, stack) => ({ site: device.stacks.call_site[stack], calls: device.stacks.calls[stack] });
// "weight" of "blocks.0.up.weight" next to the layer "blocks.0.up".
const ownName = (row) => (!row.names && row.layer && row.tensor.startsWith(`${row.layer}.`) ? row.tensor.slice(row.layer.length + 1) : row.tensor);
// Where the trace knows names or stacks. A block can hold many tensors: all are in the tip, and are searched.
const tensorColumn = (rows) => (rows.some((row) => row.tensor)
  ? [{ name: "tensor", text: true, long: true, path: true, value: (row) => ownName(row) || "–", title: (row) => tipped(row.names || row.tensor), searched: (row) => `${row.kind ?? ""} ${row.names || row.tensor}` }] : []);
const siteColumn = (rows) => (rows.some((row) => row.site)
  ? [{ name: "call site", text: true, long: true, value: (row) => row.site || "–", title: (row) => tipped(row.calls), searched: (row) => row.calls }] : []);
const layerColumn = (device) => (device.layers.length > 1 ? [{ name: "layer", text: true, long: true, path: true, value: (row) => row.layer || "–", title: (row) => row.layer }] : []);
const searchable = (columns) => `search ${columns.filter((column) => column.text).map((column) => column.name).join(", ")}`;
const classColumn = { name: "class", text: true, value: (row) => row.class, show: (row) => [dot(row.class), row.class] };

const peakSection = (view, device) => {
  const rows = peakRows(view, device);
  const columns = [
    bytesColumn("together", (row) => row.together), bytesColumn("block", (row) => row.bytes),
    { name: "blocks", value: (row) => row.count, show: (row) => count(row.count) }, classColumn,
    { name: "allocated in", text: true, value: (row) => row.phase }, { name: "freed in", text: true, value: (row) => row.freed },
    ...layerColumn(device), ...tensorColumn(rows), ...siteColumn(rows),
    ...(rows.some((row) => row.stream !== rows[0].stream) ? [{ name: "stream", value: (row) => row.stream }] : []), { name: "first request", value: (row) => row.request, show: (row) => count(row.request) },
  ];
  const omitted = device.peak.omitted_bytes ? ` ${count(device.peak.omitted_blocks)} small blocks (${size(device.peak.omitted_bytes)}) are left out.` : "";
  return section("peak", `The peak: ${size(device.peak.live_bytes)} in ${device.peak.at_phase}`,
    `Everything that is live at event ${count(device.peak.event)}; blocks that are alike share a row.${omitted}`,
    table(columns, rows, { search: searchable(columns), label: "search the peak",
      total: (found) => `${counted(found.length, "row")}, ${counted(found.reduce((sum, row) => sum + row.count, 0), "block")}, ${size(found.reduce((sum, row) => sum + row.together, 0))}` }));
};

// In the order of the stack; those that have something.
const classTotals = (rows) => STACK.map((name) => [name, rows.filter((row) => row.class === name).reduce((sum, row) => sum + row.together, 0)])
  .filter(([, bytes]) => bytes > 0);

const topSection = (view, device) => {
  const top = device.top_blocks;
  const rows = top.bytes.map((bytes, i) => ({
    bytes, count: top.count[i], class: view.classes[top.class[i]], role: device.roles[top.role[i]], layer: device.layers[top.layer[i]],
    longest: top.longest_ns[i], cost: top.byte_seconds[i], tensor: top.name[i], ...called(device, top.stack[i]),
  }));
  const whole = top.all_byte_seconds;
  const columns = [
    { name: "size × lifetime", value: (row) => row.cost, show: (row) => `${size(Math.round(row.cost))}·s` },
    { name: "share", value: (row) => row.cost, show: (row) => share(row.cost / whole) },
    bytesColumn("block", (row) => row.bytes), { name: "blocks", value: (row) => row.count, show: (row) => count(row.count) },
    { name: "longest life", value: (row) => row.longest, show: (row) => time(row.longest) }, classColumn,
    { name: "phase", text: true, value: (row) => row.role }, ...layerColumn(device), ...tensorColumn(rows), ...siteColumn(rows),
  ];
  return section("top", "What costs most", "Blocks of the whole run, alike in size, class, layer, call site and phase; those that are largest, and those with most bytes × seconds. Click a head to sort.",
    table(columns, rows, { search: searchable(columns), label: "search what costs most" }));
};

const unusedSection = (view, device) => {
  const held = device.unused, live = device.peak.live_bytes;
  const rows = held.kind.map((kind, i) => ({
    kind, bytes: held.bytes[i], count: held.count[i], class: view.classes[held.class[i]], role: device.roles[held.role[i]],
    layer: device.layers[held.layer[i]], layers: held.layers[i], tensor: held.name[i], before: held.before[i], after: held.after[i],
    ns: held.ns[i], cost: held.byte_seconds[i], atPeak: held.at_peak[i], saves: live - held.peak[i], ...called(device, held.stack[i]),
  }));
  const columns = [
    bytesColumn("lowers the peak by", (row) => row.saves), { name: "how", text: true, value: (row) => row.kind },
    bytesColumn("block", (row) => row.bytes), { name: "times", value: (row) => row.count, show: (row) => count(row.count) },
    { name: "longest", value: (row) => row.ns, show: (row) => time(row.ns) }, { name: "used before by", text: true, long: true, value: (row) => row.before, title: (row) => row.before },
    { name: "used next by", text: true, long: true, value: (row) => row.after, title: (row) => row.after }, classColumn, { name: "phase", text: true, value: (row) => row.role },
    ...layerColumn(device), ...tensorColumn(rows), ...siteColumn(rows), bytesColumn("of the peak", (row) => row.atPeak),
  ];
  const peaks = [["every block allocated at its first use", held.early_peak], ["freed after its last", held.late_peak],
    ["both", held.early_and_late_peak], ["away where it is idle for long", held.idle_peak]].map(([what, bytes]) => `${what}: ${size(bytes)}`).join(" · ");
  return section("unused", "What is held without use", `Blocks allocated early, freed late, or idle for long, by the operations that used them. The peak of ${size(live)} with ${peaks}.`,
    table(columns, rows, { search: searchable(columns), label: "search what is held without use" }));
};

const phaseSection = (view, device) => {
  const phases = device.phases;
  const holder = element("div"), tools = element("div", { class: "row" });
  const peakSegment = phases.segment[lastAt(phases.event, device.peak.event)];
  const segments = [...new Set(phases.segment)];
  const refresh = () => {
    const chosen = state.segment ?? peakSegment;
    const rows = phases.name.map((name, i) => ({
      name, order: -i, begin: phases.begin_live[i], peak: phases.peak_live[i], end: phases.end_live[i], spike: phases.spike[i],
      requests: phases.requests[i], requested: phases.requested[i], segment: phases.segment[i],
      ns: (i + 1 < phases.ns.length ? phases.ns[i + 1] : device.end_ns) - phases.ns[i],
    })).filter((row) => chosen === -1 || row.segment === chosen);
    tools.replaceChildren(element("select", { "aria-label": "iteration", onchange: (event) => { state.segment = Number(event.target.value); refresh(); } },
      element("option", { value: -1, selected: chosen === -1 }, "all iterations"),
      ...segments.map((segment) => element("option", { value: segment, selected: segment === chosen },
        `${phases.name[phases.segment.indexOf(segment)].split(",")[0]}${segment === peakSegment ? " (peak)" : ""}`))));
    holder.replaceChildren(table([
      { name: "phase", text: true, value: (row) => row.order, show: (row) => row.name }, bytesColumn("live before", (row) => row.begin),
      bytesColumn("peak inside", (row) => row.peak), bytesColumn("live after", (row) => row.end), bytesColumn("spike above both", (row) => row.spike),
      { name: "net", value: (row) => row.end - row.begin, show: (row) => (row.end >= row.begin ? "+" : "−") + size(Math.abs(row.end - row.begin)) },
      { name: "requests", value: (row) => row.requests, show: (row) => count(row.requests) }, bytesColumn("requested", (row) => row.requested),
      { name: "time", value: (row) => row.ns, show: (row) => time(row.ns) },
    ], rows));
  };
  refresh();
  return section("phases", "Phases", "Seen at every event: the spike is what measurements before and after a phase do not see.", tools, holder);
};

// A bar of classes, whose bytes are in the tip.
const sharesColumn = (name, parts) => ({ name, value: (row) => parts(row)[0][1],
  title: (row) => parts(row).filter(([, bytes]) => bytes > 0).map(([of, bytes]) => `${of}: ${size(bytes)}`).join("\n"),
  show: (row) => [element("span", { class: "bar" }, ...parts(row).filter(([, bytes]) => bytes > 0).map(([of, bytes]) =>
    element("span", { style: `background:${COLOURS[of]};flex:${bytes} 0 0` })))] });

const layerSection = (view, device) => {
  const rows = device.layer_table.layer.map((layer, i) => Object.fromEntries(Object.entries(device.layer_table).map(([key, values]) => [key, values[i]])));
  if (!rows.length) {
    return section("layers", "Layers", "The trace has no layer marks: record with STALLOC_TRACE_MODULES=1, or mark layers with stalloc.layer().");
  }
  return section("layers", "Layers", "Greatest of all visits. Rise: above what was live on entering. Spike: above both ends, gone when the layer ends. Net: what it leaves live. By class: what the device had live; point at a bar for the bytes.",
    table([
      bytesColumn("rise", (row) => row.most_rise), { name: "layer", text: true, long: true, path: true, value: (row) => device.layers[row.layer], title: (row) => device.layers[row.layer] },
      { name: "pass", text: true, value: (row) => row.pass || "–" }, bytesColumn("spike", (row) => row.most_spike),
      { name: "net", value: (row) => row.most_net, show: (row) => (row.most_net < 0 ? "−" : "+") + size(Math.abs(row.most_net)) },
      bytesColumn("device live inside", (row) => row.peak_live), sharesColumn("by class", (row) => STACK.map((name) => [name, row.peak_by_class[view.classes.indexOf(name)]])),
      { name: "visits", value: (row) => row.visits, show: (row) => count(row.visits) },
      { name: "requests", value: (row) => row.requests, show: (row) => count(row.requests) }, bytesColumn("requested", (row) => row.requested),
    ], rows, { search: "search layer" }));
};

const adviceSection = (view, index) => {
  const rows = view.advice[index], leaks = view.leaks[index];
  const leaking = leaks.groups.length
    ? `Every iteration leaves ${size(leaks.bytes_per_iteration)} more live: ${leaks.groups.slice(0, 3).map((group) => `${group.blocks_per_iteration} × ${size(group.bytes)} (${group.class}, ${group.layer || group.phase})`).join(", ")}.`
    : leaks.enough_iterations ? `No leak in ${leaks.iterations} iterations.` : `Too few iterations to look for leaks (${leaks.needed_iterations} are needed).`;
  return section("advice", "What would lower the peak", `Each line replays the traced run with that change; a peak that only moves elsewhere saves nothing. Savings do not add up. ${leaking}`,
    rows.length ? table([bytesColumn("saves", (row) => row.saves_bytes), { name: "change", text: true, wrap: true, value: (row) => row.what + (row.at_least ? " (a lower bound)" : "") }, bytesColumn("live then", (row) => row.of_live ? row.peak_bytes : null), bytesColumn("held then", (row) => row.of_live ? null : row.peak_bytes), { name: "set", text: true, wrap: true, value: (row) => row.how_to },
      { name: "cost", text: true, wrap: true, value: (row) => row.cost }, { name: "known from", text: true, wrap: true, value: (row) => row.how_known }], rows, { total: () => "" })
      : element("p", {}, "Nothing was found that lowers the peak by 1 % or more."));
};

const poolSection = (device, lines) => {
  const pools = device.graph_pools;
  const rows = pools.pool.map((_, i) => Object.fromEntries(["pool", "role", "most", "end", "idle_then", "requests"].map((key) => [key, pools[key][i]])));
  return section("graphs", "Pools of captured graphs", `A pool keeps the most that it ever held: graphs have recorded the addresses. Without lending, at least ${size(pools.held)} are held when ${size(pools.live_then)} are live. ${lines.join(". ")}`,
    table([{ name: "pool", value: (row) => row.pool, show: (row) => row.pool ? String(row.pool) : "not distinguished" }, { name: "first request in", text: true, value: (row) => device.roles[row.role] },
      bytesColumn("live in it, at most", (row) => row.most), bytesColumn("at the end", (row) => row.end), bytesColumn("idle when most is held", (row) => row.idle_then),
      { name: "requests", value: (row) => row.requests, show: (row) => count(row.requests) }], rows, { sort: 2 }));
};

const cardSection = (card) => {
  const rows = [...card.rows, { name: "together", bytes: card.sum_bytes }, { name: "free", bytes: card.free_bytes }];
  return section("card", "Every byte of the GPU", card.sentence,
    table([{ name: "what", text: true, wrap: true, value: (row) => row.name }, bytesColumn("bytes", (row) => row.bytes)], rows, { sort: null, total: () => "" }));
};

const mix = (from, to, part) => {
  const parts = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const [a, b] = [parts(from), parts(to)];
  return `rgb(${a.map((value, i) => Math.round(value + (b[i] - value) * part)).join(",")})`;
};

const planSection = (view, device) => {
  const plan = device.plan;
  if (plan === null) return section("plan", "The plan", "There is none in output/plan: run stalloc plan.");
  const map = plan.map, box = plotBox(620), legend = element("div", { class: "row legend" });
  const readout = element("div", { class: "readout" }, "Point at the map: address, request and class appear here.");
  const unit = unitOf(plan.arena_bytes), step = map.positions / map.columns, high = plan.arena_bytes / map.rows;
  const used = view.classes.filter((name, i) => map.classes.includes(String(i)));
  legend.append(...used.map((name) => element("span", { class: "hint", style: "margin:0" }, dot(name), name)), element("span", { class: "hint", style: "margin:0" }, "empty: idle"));
  const phaseAt = (position) => {
    const i = lastAt(map.phases.position, position);
    return map.phases.name[i];
  };
  later.push(() => {
    const empty = css("--card"), scale = [], levels = view.classes.length * 10;
    view.classes.forEach((name, c) => {
      for (let full = 0; full < 10; full += 1) {
        const colour = mix(empty, COLOURS[name], 0.2 + 0.8 * (full / 9)), at = c * 10 + full;
        scale.push([at / levels, colour], [(at + 1) / levels, colour]);
      }
    });
    const z = Array.from({ length: map.rows }, (_, row) => Array.from({ length: map.columns }, (__, column) => {
      const at = row * map.columns + column;
      return map.classes[at] === "." ? null : Number(map.classes[at]) * 10 + Number(map.fullness[at]) + 0.5;
    }));
    const x = Array.from({ length: map.columns }, (_, i) => (i + 0.5) * step);
    const top = plan.arena_bytes / unit.bytes;
    const big = map.phases.position.map((position, i) => i).filter((i) => /set-up|warm-up|steady/.test(map.phases.name[i]));
    const load = (bytes) => bytes.map((value) => value / unit.bytes);
    draw(box, [
      { type: "heatmap", x, y: Array.from({ length: map.rows }, (_, i) => ((i + 0.5) * high) / unit.bytes), z, zmin: 0, zmax: levels, colorscale: scale,
        showscale: false, hoverinfo: "none", xaxis: "x", yaxis: "y" },
      { x, y: load(map.planned), name: "planned", stackgroup: "use", xaxis: "x", yaxis: "y2", line: { width: 0, shape: "hvh" }, fillcolor: COLOURS.activations, hoverinfo: "none" },
      { x, y: load(map.unplanned), name: "without a slot (expected)", stackgroup: "use", xaxis: "x", yaxis: "y2", line: { width: 0, shape: "hvh" }, fillcolor: COLOURS.dynamic, hoverinfo: "none" },
      { x: [0, map.positions], y: [top, top], name: "arena", mode: "lines", xaxis: "x", yaxis: "y2", line: { color: css("--text"), dash: "dash", width: 1.5 }, hoverinfo: "none" },
    ], {
      xaxis: { title: { text: narrow() ? "request" : "request (set-up and warm-up, then one steady iteration)" }, range: [0, map.positions], anchor: "y2", showgrid: false },
      yaxis: { title: { text: narrow() ? `address (${unit.name})` : `address (${unit.name} from the arena's base)` }, domain: [0.31, 1], range: [0, top], showgrid: false },
      yaxis2: { title: { text: narrow() ? "in use" : `bytes in use (${unit.name})` }, domain: [0, 0.25], gridcolor: css("--line"), rangemode: "tozero" },
      ...(narrow() ? {} : { legend: { orientation: "h", x: 0, y: 0.252, yanchor: "bottom", font: { size: 12 } } }),
      shapes: big.map((i) => ({ type: "line", x0: map.phases.position[i], x1: map.phases.position[i], yref: "paper", y0: 0, y1: 1, line: { color: css("--soft"), width: 1, dash: "dot" } })),
      annotations: big.filter((i, n) => n === big.length - 1 || map.phases.position[big[n + 1] ?? 0] - map.phases.position[i] > map.positions * 0.07)
        .map((i) => ({ x: map.phases.position[i], yref: "paper", y: 1, yanchor: "bottom", xanchor: "left", text: map.phases.name[i], showarrow: false, font: { size: 12, color: css("--soft") } })),
    });
    box.on("plotly_hover", (event) => {
      const column = Math.min(map.columns - 1, Math.floor(event.points[0].x / step)), position = Math.floor(event.points[0].x);
      if (event.points[0].data.type !== "heatmap") {
        readout.textContent = `request ${count(position)} (${phaseAt(position)}): ${size(map.planned[column])} in slots, ${size(map.unplanned[column])} without`;
        return;
      }
      const row = Math.min(map.rows - 1, Math.floor((event.points[0].y * unit.bytes) / high)), cell = row * map.columns + column;
      const what = map.classes[cell] === "." ? "idle" : `${view.classes[Number(map.classes[cell])]}, ${Math.round((Number(map.fullness[cell]) / 9) * 100)} % full`;
      readout.textContent = `address ${size(Math.round(row * high))}, request ${count(position)} (${phaseAt(position)}): ${what}`;
    });
  });
  const above = plan.arena_bytes - plan.lower_bound_bytes;
  return section("plan", `The plan: ${size(plan.arena_bytes)} of addresses`,
    `${count(plan.slots)} slots; ${above > 0 ? `${size(above)} above the proved lower bound` : "at the proved lower bound"}; ${share(plan.idle_share)} of ` +
    "addresses × steady iteration is idle, and serves what has no slot. Each cell shows the class that takes most of it; paler is emptier.", legend, box, readout);
};

const allocatorSection = (view, device, figures) => {
  const rows = figures.allocators, box = plotBox(104 + 44 * rows.length);
  const least = Math.min(...rows.map((row) => row.held_bytes));
  later.push(() => {
    const unit = unitOf(figures.peak_live_bytes), names = rows.map((row) => row.name);
    draw(box, [
      { type: "bar", orientation: "h", y: names, x: rows.map((row) => Math.min(row.held_bytes, figures.peak_live_bytes) / unit.bytes), name: "live at the peak", marker: { color: COLOURS.weights }, hoverinfo: "none" },
      { type: "bar", orientation: "h", y: names, x: rows.map((row) => Math.max(0, row.held_bytes - figures.peak_live_bytes) / unit.bytes), name: "held beyond it", marker: { color: COLOURS.temporaries },
        ...(narrow() ? {} : { text: rows.map((row) => `${size(row.held_bytes)}, E ${share(row.efficiency)}`), textposition: "outside", cliponaxis: false }), hoverinfo: "none" },
    ], { barmode: "stack", ...(narrow() ? { margin: { l: 150, r: 8, t: 8, b: 44 }, legend: { orientation: "h", y: -0.55, yanchor: "top", x: 0 } } : { margin: { l: 190, r: 170, t: 60, b: 44 } }), xaxis: { title: { text: narrow() ? `held (${unit.name})` : `held on the device (${unit.name})` } }, yaxis: { autorange: "reversed", gridcolor: "rgba(0,0,0,0)" } });
  });
  return section("allocators", "What allocators hold for this run", "E is the peak of live bytes over the peak of bytes held on the device.",
    table([{ name: "allocator", text: true, value: (row) => row.name }, bytesColumn("holds", (row) => row.held_bytes),
      bytesColumn("beyond live", (row) => Math.max(0, row.held_bytes - figures.peak_live_bytes)), { name: "E", value: (row) => row.efficiency, show: (row) => share(row.efficiency) },
      { name: "how it is known", text: true, value: (row) => row.how }], rows, { sort: null, best: (row) => row.held_bytes === least, total: () => "" }), box);
};

const estimateSection = (view) => {
  if (view.estimate === null) {
    return section("estimate", "Estimate", "The command line of the traced run is not one of Megatron-LM's, or lacks something, as the vocabulary: stalloc report DIR -- OPTIONS takes what is missing.");
  }
  const off = (row) => row.estimate - row.measured;
  const known = view.estimate.some((row) => row.name === "weights" && row.measured !== null);
  return section("estimate", "Estimate against measured", "What the configuration should need, by formulas, against the peak of this trace." +
    (known ? "" : " Without names of tensors, buffers made at set-up are weights to a trace, so state is compared as a whole."),
    table([{ name: "", text: true, value: (row) => row.name }, bytesColumn("estimate", (row) => row.estimate), bytesColumn("measured", (row) => row.measured),
      { name: "off", value: (row) => (row.measured === null ? 0 : off(row)), show: (row) => (row.measured === null ? "–" : off(row) === 0 ? size(0) : `${off(row) < 0 ? "−" : "+"}${size(Math.abs(off(row)))}${row.measured ? ` (${((100 * Math.abs(off(row))) / row.measured).toFixed(1)} %)` : ""}`) },
      { name: "what it is", text: true, wrap: true, value: (row) => row.why },
    ], view.estimate, { sort: null, total: () => "", best: (row) => row.name === "peak" }));
};

const tokenColumns = [
  { name: "tokens in experts, most", value: (row) => row.tokens ?? -1, show: (row) => (row.tokens === null ? "–" : count(row.tokens)) },
  { name: "busiest expert / mean", value: (row) => row.uneven ?? -1, show: (row) => (row.uneven === null ? "–" : row.uneven.toFixed(2)) },
];

const dynamicSection = (view, index) => {
  const rows = view.iterations[index], related = view.correlation[index], box = plotBox(260);
  if (!rows.some((row) => row.dynamic_peak > 0)) {
    return section("dynamic", "What varies", "Nothing does: every block is there in each iteration, with the same size.");
  }
  later.push(() => {
    const unit = unitOf(Math.max(...rows.map((row) => row.dynamic_peak))), x = rows.map((row) => row.iteration);
    const known = rows.filter((row) => row.tokens !== null);
    draw(box, [
      { type: "bar", x, y: rows.map((row) => row.dynamic_peak / unit.bytes), name: `dynamic, most (${unit.name})`, marker: { color: COLOURS.dynamic }, hoverinfo: "x+y" },
      ...(known.length ? [{ x: known.map((row) => row.iteration), y: known.map((row) => row.tokens), name: "tokens in experts", yaxis: "y2", mode: "lines+markers",
        line: { color: css("--text"), width: 2 }, hoverinfo: "x+y" }] : []),
    ], { xaxis: { title: { text: "iteration" }, dtick: rows.length > 24 ? undefined : 1 }, yaxis: { title: { text: `dynamic, most (${unit.name})` } },
      yaxis2: { overlaying: "y", side: "right", rangemode: "tozero", showgrid: false, title: { text: "tokens" } }, ...(narrow() || !known.length ? {} : { margin: { l: 76, r: 76, t: 60, b: 52 } }) });
  });
  return section("dynamic", "What varies, by iteration", "Blocks whose size or presence depends on the data: experts, variable lengths. " +
    (related === null ? "Tokens of experts are known of Megatron-LM's runs: written next to the trace, or by its --save-tokens-per-expert-interval (--tokens)." : `Correlation of tokens and bytes: ${related.toFixed(2)}.`),
    table([{ name: "iteration", value: (row) => row.iteration }, bytesColumn("peak", (row) => row.peak_live), bytesColumn("dynamic, most", (row) => row.dynamic_peak),
      bytesColumn("dynamic requested", (row) => row.dynamic_requested), ...(rows.some((row) => row.tokens !== null) ? tokenColumns : [])], rows, { sort: null }), box);
};

const rankSection = () => {
  const rows = data.ranks, peaks = rows.map((row) => row.peak_live_bytes);
  const mean = peaks.reduce((sum, value) => sum + value, 0) / peaks.length;
  const box = plotBox(320);
  if (rows.length > 1) {
    later.push(() => {
      const unit = unitOf(Math.max(...peaks)), names = rows.map((row) => `rank ${row.rank}`);
      draw(box, STACK.filter((name) => rows.some((row) => row.by_class[name])).map((name) => ({
        type: "bar", x: names, y: rows.map((row) => row.by_class[name] / unit.bytes), name, marker: { color: COLOURS[name] },
        hovertemplate: `%{x}: %{y:.3f} ${unit.name} ${name}<extra></extra>`,
      })), { barmode: "stack", yaxis: { title: { text: `live at the peak (${unit.name})` } } });
    });
  }
  return section("ranks", rows.length === 1 ? "Rank" : `Ranks: ${rows.length}, greatest / mean ${(Math.max(...peaks) / mean).toFixed(3)}`,
    rows.length === 1 ? "" : `Peaks from ${size(Math.min(...peaks))} to ${size(Math.max(...peaks))}. Dynamic: the most that was alive of blocks whose size or presence varies (experts, variable lengths).`,
    table([
      { name: "rank", value: (row) => row.rank, show: (row) => `${row.rank}${row.device > 0 ? ` (device ${row.device})` : ""}` },
      ...(rows.some((row) => row.place) ? [{ name: "place", text: true, value: (row) => row.place || "–" }] : []), bytesColumn("peak live", (row) => row.peak_live_bytes),
      { name: "against the mean", value: (row) => row.peak_live_bytes, show: (row) => `${row.peak_live_bytes >= mean ? "+" : "−"}${(100 * Math.abs(row.peak_live_bytes / mean - 1)).toFixed(1)} %` },
      bytesColumn("native holds", (row) => row.native_bytes), bytesColumn("expandable holds", (row) => row.expandable_segments_bytes),
      bytesColumn("held when traced", (row) => row.traced_bytes), bytesColumn("plan holds", (row) => row.planned_bytes),
      ...(rows.some((row) => row.run_bytes) ? [bytesColumn("last run held", (row) => row.run_bytes)] : []), bytesColumn("dynamic, most", (row) => row.dynamic_bytes),
      ...(rows.some((row) => row.tokens !== null) ? tokenColumns : []),
      { name: "requests an iteration", value: (row) => row.requests, show: (row) => count(row.requests) }, { name: "peak in", text: true, value: (row) => row.peak_phase },
    ], rows, { sort: null, total: () => "" }), rows.length > 1 ? box : null);
};

const notesSection = (view, device, index) => {
  const report = view.rank.devices[index];
  const list = (texts) => element("ul", { class: "notes" }, ...texts.map((text) => element("li", {}, text)));
  return section("notes", "Notes and raw data", "", list([...view.rank.warnings, ...report.warnings, ...view.rank.notes, ...report.notes]),
    element("details", {}, element("summary", {}, "what was traced"), element("pre", {}, JSON.stringify({ ...view.rank, devices: undefined }, null, 2))),
    element("details", {}, element("summary", {}, "streams and segments"), element("pre", {}, JSON.stringify({ streams: report.streams, segments: report.segments }, null, 1))));
};

// -- The page

const build = () => {
  later = [];
  const view = data.views[state.view];
  state.device = Math.min(state.device, view.devices.length - 1);
  const device = view.devices[state.device], figures = view.figures[state.device], print = view.rank.fingerprint;
  const dark = document.documentElement.dataset.theme === "dark";
  const tools = element("div", { class: "tools" },
    data.views.length > 1 ? element("select", { "aria-label": "rank", onchange: (event) => { state.view = Number(event.target.value); state.segment = null; build(); } },
      ...data.views.map((entry, i) => element("option", { value: i, selected: i === state.view }, `rank ${entry.rank.rank}`))) : null,
    view.devices.length > 1 ? element("select", { "aria-label": "device", onchange: (event) => { state.device = Number(event.target.value); state.segment = null; build(); } },
      ...view.devices.map((entry, i) => element("option", { value: i, selected: i === state.device }, entry.device < 0 ? "cpu" : `device ${entry.device}`))) : null,
    element("button", { onclick: () => { document.documentElement.dataset.theme = dark ? "light" : "dark"; build(); } }, dark ? "light" : "dark"));
  const facts = [`rank ${view.rank.rank} of ${print.world_size || 1}${view.place ? ` (${view.place})` : ""}`, device.device < 0 ? "cpu" : print.device_name || `device ${device.device}`,
    print.torch_version ? `torch ${print.torch_version}` : null, counted(device.events, "event"), time(device.end_ns),
    print.trace_mode === "fake" ? "of fake tensors: times are those of making the trace" : null,
    view.rank.trace_complete ? null : "trace not ended in order", `stalloc ${data.version}`].filter(Boolean).join(" · ");
  const sections = [timelineSection(view, device), adviceSection(view, state.device), treeSection(view, device), peakSection(view, device), layerSection(view, device),
    topSection(view, device), ...(device.unused ? [unusedSection(view, device)] : []), phaseSection(view, device), dynamicSection(view, state.device),
    allocatorSection(view, device, figures), planSection(view, device), ...(view.card[state.device] ? [cardSection(view.card[state.device])] : []), ...(device.graph_pools ? [poolSection(device, view.graphs[state.device].told)] : []), estimateSection(view), rankSection(),
    notesSection(view, device, state.device)].filter(Boolean);
  document.getElementById("report").replaceChildren(
    element("header", {}, element("h1", {}, data.title), element("span", { class: "facts" }, facts), tools),
    element("nav", {}, ...sections.map((made) => element("a", { href: `#${made.id}` }, made.querySelector("h2").textContent.split(":")[0]))),
    firstLook(view, device, state.device), ...sections);
  drawAll(later);
};

// Figures and tables are shown before plotly's script is read: a second in which they can be read already.
const timing = document.documentElement.dataset;
const withPlotly = (draw) => {
  if (window.Plotly) return draw();
  timing.readableAfterMs ??= Math.round(performance.now());
  let waiting = true;
  const load = () => {
    if (!waiting) return;
    waiting = false;
    if (!window.Plotly) {
      const script = element("script");
      script.textContent = document.getElementById("plotly").textContent;
      document.head.append(script);
    }
    draw();
  };
  requestAnimationFrame(() => setTimeout(load));
  setTimeout(load, 1000); // nothing is painted where the page cannot be seen
};

// The first plot at once; the others one by one, between which the page answers. None of them where another rank,
// device or theme was chosen since.
const drawAll = (plots) => {
  const round = (state.round += 1);
  withPlotly(() => round === state.round && drawInTurn(plots, round));
};
const drawInTurn = ([first, ...others], round) => {
  first();
  timing.drawn = "first";
  timing.drawnAfterMs = Math.round(performance.now());
  const next = () => {
    if (round !== state.round) return;
    if (others.length) {
      others.shift()();
      setTimeout(next);
    } else {
      timing.drawn = "all";
      timing.allDrawnAfterMs = Math.round(performance.now());
    }
  };
  setTimeout(next);
};

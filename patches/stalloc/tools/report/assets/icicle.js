// A tree drawn from the top down: each row holds the parts of the one above, as wide as their bytes. A click (or
// Enter) opens a part; one above closes it again. Arrow keys move.

const LEAST_SHARE = 0.0015; // of the width: narrower parts are not drawn

const icicle = (root) => {
  const box = element("div", { class: "icicle", role: "tree", "aria-label": "parts of the peak" });
  const readout = element("div", { class: "readout" });
  const parents = new Map();
  const link = (node) => node.children.forEach((child) => { parents.set(child, node); link(child); });
  link(root);
  const above = (node) => (parents.has(node) ? [...above(parents.get(node)), parents.get(node)] : []);
  const show = (node) => {
    const path = [...above(node), node].slice(1).map((part) => part.label).join(" › ") || node.label;
    readout.textContent = `${path}: ${size(node.bytes)}, ${share(node.bytes / root.bytes)} of the peak`;
  };
  const cell = (node, depth, from, width, open) => {
    const made = element("div", {
      class: `cell${node.children.length ? "" : " leaf"}`, role: "treeitem", tabindex: -1, "aria-level": depth + 1,
      "aria-expanded": node.children.length ? "true" : null,
      title: `${node.title}\n${size(node.bytes)}, ${share(node.bytes / root.bytes)}\n${classTotals(node.rows).map(([of, bytes]) => `${of}: ${size(bytes)}`).join("\n")}`,
      style: `left:${100 * from}%;width:${100 * width}%;top:${24 * depth}px;--part:${node === root ? css("--line") : COLOURS[classOf(node)]}`,
      onclick: () => node.children.length && open(node), onmousemove: (event) => (event.movementX || event.movementY) && show(node), onfocus: () => show(node),
    }, element("span", {}, node.label), element("small", {}, size(node.bytes)));
    made.node = node;
    return made;
  };
  const open = (focus, refocus = true) => {
    const cells = above(focus).map((node, depth) => cell(node, depth, 0, 1, open));
    let deepest = cells.length;
    const place = (node, depth, from, width) => {
      cells.push(cell(node, depth, from, width, open));
      deepest = Math.max(deepest, depth);
      let at = from;
      for (const child of node.children) {
        const wide = node.bytes ? (width * child.bytes) / node.bytes : 0;
        if (wide >= LEAST_SHARE) place(child, depth + 1, at, wide);
        at += wide;
      }
    };
    place(focus, cells.length, 0, 1);
    box.style.height = `${24 * (deepest + 1)}px`;
    box.replaceChildren(...cells);
    const here = cells.find((made) => made.node === focus);
    here.tabIndex = 0;
    if (refocus) here.focus({ preventScroll: true });
    show(focus);
  };
  const besides = (node, step) => {
    const all = parents.get(node)?.children ?? [node];
    return all[all.indexOf(node) + step];
  };
  box.addEventListener("keydown", (event) => {
    const node = event.target.node;
    const wanted = { ArrowDown: () => node.children[0], ArrowUp: () => parents.get(node), ArrowLeft: () => besides(node, -1), ArrowRight: () => besides(node, 1) }[event.key];
    if (event.key === "Enter" && node.children.length) open(node);
    if (!wanted && event.key !== "Enter") return;
    event.preventDefault();
    const next = wanted && [...box.children].find((made) => made.node === wanted());
    if (next) { event.target.tabIndex = -1; next.tabIndex = 0; next.focus(); }
  });
  open(root, false);
  return element("div", {}, readout, element("div", { class: "icicle-space" }, box));
};

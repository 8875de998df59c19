// What all plots have in common.

const narrow = () => document.documentElement.clientWidth < 720;
// Where fingers point, a swipe over a plot scrolls the page, and a tool bar would lie over labels.
const touched = () => narrow() || matchMedia("(pointer: coarse)").matches;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const layout = (more) => ({
  modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--accent") }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: css("--text"), size: 13 },
  hoverlabel: { font: { size: 13 } },
  // Where the page is narrow, legends wrap and stand clear below the axis.
  ...(narrow()
    ? { margin: { l: 54, r: 8, t: 24, b: 52 }, legend: { orientation: "h", y: -0.36, yanchor: "top", x: 0, font: { size: 12 } } }
    : { margin: { l: 76, r: 20, t: 60, b: 52 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 13 } } }),
  ...(touched() ? { dragmode: false } : {}),
  ...more,
  xaxis: { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), ...more.xaxis },
  yaxis: { gridcolor: css("--line"), zerolinecolor: css("--line"), rangemode: "tozero", ...more.yaxis },
});
const draw = (target, traces, more) =>
  Plotly.newPlot(target, traces, layout(more), { responsive: true, displaylogo: false, displayModeBar: touched() ? false : "hover", modeBarButtonsToRemove: ["lasso2d", "select2d"] });
const plotBox = (height) => element("div", { class: "plot", style: `height:${height}px` });

// The index of the last of ascending `starts` that is not above `value`.
const lastAt = (starts, value) => {
  let low = 0, high = starts.length;
  while (low + 1 < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= value) low = middle; else high = middle;
  }
  return low;
};

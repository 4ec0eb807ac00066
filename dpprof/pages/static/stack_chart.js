// Step areas, stacked by category over the time of a step, drawn with uPlot. Of two runs the second goes downwards, on the same axes.
// A run has `ms`; `layers`, cumulative MiB for each of `names`, each of which holds until the next of `ms`; `colors`; `phases` as
// [name, start, end]; and `peak` as the index of the moment.

// What an element of the page holds: JSON, packed by gzip, in base64.
async function unpack(element) {
  const bytes = Uint8Array.from(atob(element.textContent.trim()), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// As `fixed` of the package's formats: what the decimals would hide has two significant digits.
function fixed(value, digits = 2) {
  const least = 10 ** Math.min(1 - digits, 0);
  if (value && Math.abs(Number(value.toFixed(digits))) < least) return String(Number(value.toPrecision(2)));
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function make(tag, className = "", ...content) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...content);
  return element;
}

function swatch(color) {
  const mark = make("span", "swatch");
  mark.style.background = color;
  return mark;
}

// The last index at which a sorted list is at most a value; -1 if none.
function lastAtMost(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function total(run, i) {
  return run.layers.length ? run.layers[run.layers.length - 1][i] : 0;
}

// Where a run is highest between two times; the level that it had before them counts too.
function highest(run, from, to) {
  let found = Math.max(0, lastAtMost(run.ms, from));
  for (let i = found + 1; i < run.ms.length && run.ms[i] <= to; i++) if (total(run, i) > total(run, found)) found = i;
  return found;
}

// The category that a run draws at a height, as its index; -1 above the areas.
function categoryAt(run, i, mib) {
  return run.layers.findIndex((layer, c) => mib <= layer[i] && layer[i] > (c ? run.layers[c - 1][i] : 0));
}

// The runs on one list of times, each as columns; null where a run has ended.
function joined(runs) {
  const count = runs.reduce((sum, run) => sum + run.ms.length, 0);
  const at = runs.map(() => -1), x = new Float64Array(count);
  const y = runs.map(run => run.layers.map(() => new Array(count).fill(null)));
  for (let i = 0; i < count; i++) {
    const next = runs.reduce((best, run, r) => {
      if (at[r] + 1 >= run.ms.length) return best;
      return best < 0 || run.ms[at[r] + 1] < runs[best].ms[at[best] + 1] ? r : best;
    }, -1);
    x[i] = runs[next].ms[++at[next]];
    runs.forEach((run, r) => {
      if (at[r] < 0 || (at[r] === run.ms.length - 1 && r !== next)) return;
      y[r].forEach((column, c) => { column[i] = (r ? -1 : 1) * run.layers[c][at[r]]; });
    });
  }
  return { x, y };
}

function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

// Bands of the phases, every other one shaded: above the axis for the first run, below for the second.
function shadePhases(plot, runs) {
  const { ctx, bbox } = plot, zero = plot.valToPos(0, "y", true);
  ctx.save();
  ctx.fillStyle = themed("band");
  runs.forEach((run, r) => run.phases.forEach(([, start, end], i) => {
    if (i % 2 === 0) return;
    const [left, right] = clipped(plot, start, end);
    const top = r ? zero : bbox.top, bottom = r || runs.length === 1 ? bbox.top + bbox.height : zero;
    if (right > left) ctx.fillRect(left, top, right - left, bottom - top);
  }));
  ctx.restore();
}

function clipped(plot, start, end) {
  const { left, width } = plot.bbox;
  return [start, end].map(ms => Math.min(left + width, Math.max(left, plot.valToPos(ms, "x", true))));
}

// The phases' names where there is room, across or else upright, and a line where a phase ends.
function namePhases(plot, runs) {
  const { ctx, bbox } = plot, dpr = uPlot.pxRatio;
  ctx.save();
  ctx.font = `${11 * dpr}px system-ui, sans-serif`;
  ctx.lineJoin = "round";
  runs.forEach((run, r) => run.phases.forEach(([name, start, end]) => {
    const [left, right] = clipped(plot, start, end), width = ctx.measureText(name).width;
    if (right - left < 13 * dpr) return;
    ctx.save();
    ctx.translate((left + right) / 2, r ? bbox.top + bbox.height - 4 * dpr : bbox.top + 4 * dpr);
    ctx.textAlign = "center";
    ctx.textBaseline = r ? "bottom" : "top";
    if (width + 6 * dpr > right - left) {
      ctx.rotate(-Math.PI / 2);
      ctx.textAlign = r ? "left" : "right";
      ctx.textBaseline = "middle";
    }
    ctx.strokeStyle = themed("page");
    ctx.lineWidth = 3 * dpr;
    ctx.strokeText(name, 0, 0);
    ctx.fillStyle = themed("ink");
    ctx.fillText(name, 0, 0);
    ctx.restore();
  }));
  ctx.restore();
}

function areas(runs) {
  const step = { paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } };
  return runs.flatMap(run => [
    ...run.colors.map(color => ({ ...step, width: 1, stroke: color, fill: color, fillTo: () => 0 })).reverse(),
    { ...step, width: 1, stroke: () => themed("ink") },
  ]);
}

function axis(label, values, size) {
  const line = { stroke: () => themed("grid"), width: 1 };
  return { label, values, size, labelSize: 18, labelGap: 0, stroke: () => themed("ink"), grid: line, ticks: line,
    font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif" };
}

// Draws runs into an element. `tip(ms, mib)` gives what to say under the pointer, `chosen(ms, slack)` is told of a click; slack is the
// time that a pixel takes; `decorate(plot)` draws more. Gives the plot and the ways to move through it.
function stackChart(box, runs, { height, tip, chosen = () => {}, decorate = () => {} }) {
  const end = Math.max(...runs.map(run => run.ms[run.ms.length - 1])) || 1;
  const top = 1.2 * Math.max(...runs.map(run => total(run, run.peak))) || 1;
  const { x, y } = joined(runs);
  const label = make("div", "tip");
  label.hidden = true;
  const plain = (_, values) => values.map(value => value.toLocaleString("en", { maximumSignificantDigits: 6 }));
  const plot = new uPlot({
    width: box.clientWidth, height, legend: { show: false }, padding: [6, 10, 0, 0],
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
    scales: { x: { time: false, range: (_, min, max) => [min ?? 0, max ?? end] }, y: { range: [runs.length > 1 ? -top : 0, top] } },
    axes: [axis("time in the step [ms]", plain, 30), axis("alive [MiB]", (_, values) => plain(_, values.map(Math.abs)), (_, shown) => 18 + 6.5 * Math.max(3, ...(shown ?? []).map(text => text.length)))],
    series: [{}, ...areas(runs)],
    hooks: {
      drawClear: [plot => shadePhases(plot, runs)],
      draw: [plot => { namePhases(plot, runs); decorate(plot); }],
      setCursor: [plot => showTip(plot, label, tip)],
    },
  }, [x, ...y.flatMap(columns => [...columns].reverse().concat(columns.length ? [columns[columns.length - 1]] : [x.map(() => 0)]))], box);
  plot.over.append(label);
  const slack = () => slackOf(plot);
  plot.over.addEventListener("click", () => chosen(plot.posToVal(plot.cursor.left, "x"), slack()));
  const resized = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height }));
  resized.observe(box);
  const dark = matchMedia("(prefers-color-scheme: dark)"), redraw = () => plot.redraw();
  dark.addEventListener("change", redraw);
  const show = (min, max) => {
    const width = Math.min(end, Math.max(end / 1e5, max - min)), from = Math.min(end - width, Math.max(0, min));
    plot.setScale("x", { min: from, max: from + width });
  };
  return {
    plot, end, slack, show,
    zoom(factor, around) {
      const { min, max } = plot.scales.x;
      show(around - factor * (around - min), around + factor * (max - around));
    },
    // Brings a time into view.
    around(ms) {
      const { min, max } = plot.scales.x;
      if (ms < min || ms > max) show(ms - (max - min) / 2, ms + (max - min) / 2);
    },
    stop() {
      resized.disconnect();
      dark.removeEventListener("change", redraw);
      plot.destroy();
    },
  };
}

// Calls what a key of the focused element is for.
function onKeys(box, keys) {
  box.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}

// Keys that zoom and move a chart, around the middle of what it shows.
function zoomByKeys(box, chart) {
  const zoom = factor => () => { const { min, max } = chart().plot.scales.x; chart().zoom(factor, (min + max) / 2); };
  const move = by => () => { const { min, max } = chart().plot.scales.x; chart().show(min + by * (max - min), max + by * (max - min)); };
  const all = () => chart().show(0, chart().end);
  onKeys(box, { "+": zoom(0.5), "=": zoom(0.5), "-": zoom(2), ArrowLeft: move(-0.1), ArrowRight: move(0.1), 0: all, Escape: all });
}

function slackOf(plot) {
  return plot.posToVal(1, "x") - plot.posToVal(0, "x");
}

function showTip(plot, label, tip) {
  const { left, top } = plot.cursor;
  label.hidden = left < 0;
  if (label.hidden) return;
  label.replaceChildren(...tip(plot.posToVal(left, "x"), plot.posToVal(top, "y"), slackOf(plot)));
  const { width, height } = plot.over.getBoundingClientRect();
  const x = left > width / 2 ? left - label.offsetWidth - 12 : left + 12;
  label.style.transform = `translate(${Math.max(0, Math.min(x, width - label.offsetWidth))}px, ${Math.max(0, Math.min(top + 12, height - label.offsetHeight))}px)`;
}

// A button at a run's peak, which stays there when the chart is zoomed.
function markPeak(chart, run, text, press, below = false) {
  const { plot } = chart, button = make("button", below ? "peak below" : "peak", text);
  button.type = "button";
  button.addEventListener("click", event => { event.stopPropagation(); press(); });
  button.addEventListener("mousedown", event => event.stopPropagation());
  const place = () => {
    const left = plot.valToPos(run.ms[run.peak], "x"), width = plot.over.clientWidth;
    button.hidden = !(left >= -1 && left <= width + 1);
    button.classList.toggle("early", left < 90);
    button.classList.toggle("late", left > width - 90);
    button.style.left = `${left}px`;
    button.style.top = `${plot.valToPos((below ? -1 : 1) * total(run, run.peak), "y")}px`;
  };
  plot.hooks.draw.push(place);
  plot.over.append(button);
  place();
  return button;
}

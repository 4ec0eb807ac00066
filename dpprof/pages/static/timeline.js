// The page of one step: its chart, what is alive at the chosen moment, and all of its tensors. Moment 0 is the step's start; moment i
// the level after event i - 1.
const MIB = 2 ** 20;

function readStep(data) {
  const levels = data.names.map(() => new Float64Array(data.ms.length)), now = [...data.start];
  const note = i => { let sum = 0; now.forEach((bytes, c) => { sum += bytes; levels[c][i] = sum / MIB; }); };
  note(0);
  data.bytes.forEach((bytes, i) => {
    now[data.category[i]] += data.moved[i] < 0 ? bytes : -bytes;
    if (data.moved[i] >= 0) now[data.moved[i]] += bytes;
    note(i + 1);
  });
  note(data.ms.length - 1);
  return { ...data, layers: levels };
}

// The storages alive at a moment, with the bytes and the category that they then have.
function aliveAt(step, moment) {
  const { storages, present, storage, bytes, moved } = step, held = new Map(), category = new Map();
  for (let s = 0; s < present; s++) held.set(s, storages.bytes[s]);
  for (let i = 0; i < Math.min(moment, storage.length); i++) {
    if (moved[i] < 0) held.set(storage[i], (held.get(storage[i]) ?? 0) + bytes[i]);
    else category.set(storage[i], moved[i]);
  }
  const alive = [];
  for (const [s, size] of held) if (size > 0) alive.push({ s, bytes: size, category: category.get(s) ?? storages.category[s] });
  return alive.sort((a, b) => b.bytes - a.bytes);
}

// Of every storage: the moments of its birth and death, the most bytes that it had, and its categories.
function lives(step) {
  const { storages, present, storage, bytes, moved } = step;
  const found = storages.bytes.map((size, s) => ({ s, born: 0, died: null, now: s < present ? size : 0, most: s < present ? size : 0, seen: [storages.category[s]] }));
  storage.forEach((s, i) => {
    const life = found[s];
    if (moved[i] >= 0) { life.seen.push(moved[i]); return; }
    if (life.now === 0) { life.born = i + 1; life.died = null; }
    life.now += bytes[i];
    life.most = Math.max(life.most, life.now);
    if (life.now === 0) life.died = i + 1;
  });
  return found;
}

function phaseAt(step, moment) {
  const event = Math.min(moment, step.bytes.length) - 1;
  const found = step.phases.find(([, , , first, end]) => (event < 0 ? first === 0 : first <= event && event < end));
  return found ? found[0] : "between phases";
}

function made({ storages }, s) {
  const phase = storages.phase[s], by = storages.operator[s];
  return `made ${/^(before|between) /.test(phase) ? phase : "in " + phase}${by ? " by " + by : ""}`;
}

// The moment that a place along the axis stands for, the highest within the slack, and its time.
function momentAt(step, ms, slack) {
  const moment = highest(step, ms - slack, ms + slack);
  return { moment, ms: step.ms[moment] < ms - slack ? ms : step.ms[moment] };
}

function tip(step, { moment, ms }, mib) {
  const line = (...content) => make("p", "", ...content), sum = total(step, moment);
  const lines = [line(`${fixed(ms)} ms, ${phaseAt(step, moment)}`), line(make("b", "", `${fixed(sum)} MiB`), " alive")];
  const c = categoryAt(step, moment, mib);
  if (c >= 0) {
    const held = step.layers[c][moment] - (c ? step.layers[c - 1][moment] : 0);
    lines.push(line(swatch(step.colors[c]), `${step.words[c]} `, make("b", "", `${fixed(held)} MiB`)));
  }
  const largest = aliveAt(step, moment).find(one => c < 0 || one.category === c);
  if (largest) {
    const owner = step.storages.owner[largest.s];
    lines.push(line(`largest: ${fixed(largest.bytes / MIB)} MiB, ${owner ? owner + ", " : ""}${made(step, largest.s)}`));
  }
  return lines;
}

// Keys of the focused chart. `choose` takes a moment and its time, `chosen` gives the time that is chosen.
function listenToKeys(box, chart, step, choose, chosen) {
  const at = moment => ({ moment, ms: step.ms[moment] });
  const move = by => {
    const { min, max } = chart.plot.scales.x;
    choose(momentAt(step, Math.min(chart.end, Math.max(0, chosen() + by * (max - min))), chart.slack()));
  };
  const keys = {
    ArrowLeft: () => move(-0.02), ArrowRight: () => move(0.02), PageUp: () => move(-0.5), PageDown: () => move(0.5),
    Home: () => choose(at(0)), End: () => choose(at(step.ms.length - 1)), p: () => choose(at(step.peak)),
    "+": () => chart.zoom(0.5, chosen()), "=": () => chart.zoom(0.5, chosen()), "-": () => chart.zoom(2, chosen()),
    0: () => chart.show(0, chart.end), Escape: () => chart.show(0, chart.end),
  };
  onKeys(box, keys);
  for (const button of document.querySelectorAll("[data-key]")) button.addEventListener("click", () => keys[button.dataset.key]());
}

function momentMark(plot, ms) {
  const { ctx, bbox } = plot, x = plot.valToPos(ms, "x", true);
  if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) return;
  ctx.save();
  ctx.strokeStyle = themed("focus");
  ctx.lineWidth = 2 * uPlot.pxRatio;
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}

function tensorCells(step, s, bytes, category, words) {
  const { storages } = step;
  return [
    { text: fixed(bytes / MIB), value: bytes },
    { text: words, value: words, node: () => make("span", "", swatch(step.colors[category]), words) },
    storages.owner[s], storages.shape[s], storages.dtype[s], storages.phase[s], storages.operator[s],
  ];
}

function listAlive(step) {
  const heading = document.getElementById("alive-heading"), summary = document.getElementById("alive-summary");
  const table = dataTable(document.getElementById("tensors"), { limit: 20, sort: { column: 0, descending: true }, summary: () => {} });
  return ({ moment, ms }) => {
    const alive = aliveAt(step, moment), sum = alive.reduce((bytes, one) => bytes + one.bytes, 0);
    heading.textContent = moment === step.peak ? "Alive at the peak" : `Alive at ${fixed(ms)} ms`;
    summary.textContent = `${alive.length.toLocaleString("en")} tensors, ${fixed(sum / MIB)} MiB, ${fixed(ms)} ms into the step, in ${phaseAt(step, moment)}.`;
    table.fill(alive.map(one => tensorCells(step, one.s, one.bytes, one.category, step.words[one.category])));
  };
}

function listAll(step, choose) {
  const summary = document.getElementById("all-summary"), search = document.getElementById("search");
  const table = dataTable(document.getElementById("all-tensors"), {
    limit: 20, sort: { column: 0, descending: true },
    summary: (found, count) => { summary.textContent = `${found.length.toLocaleString("en")} of ${count.toLocaleString("en")} tensors`; },
  });
  const moment = i => ({
    text: i === null ? "" : fixed(step.ms[i]), value: i ?? "",
    node: i === null ? undefined : () => {
      const button = make("button", "moment", fixed(step.ms[i]));
      button.type = "button";
      button.title = "choose this moment";
      button.addEventListener("click", () => choose({ moment: i, ms: step.ms[i] }));
      return button;
    },
  });
  table.fill(lives(step).map(life => [
    ...tensorCells(step, life.s, life.most, life.seen[0], [...new Set(life.seen)].map(c => step.words[c]).join(", then ")),
    life.born ? moment(life.born) : { text: "before", value: 0 }, moment(life.died),
  ]));
  search.addEventListener("input", () => table.search(search.value));
}

async function showTimeline() {
  const step = readStep(await unpack(document.getElementById("step"))), box = document.getElementById("memory");
  document.body.classList.add("scripted");
  const peak = { moment: step.peak, ms: step.ms[step.peak] };
  let chosen = peak;
  const choose = place => {
    chosen = place;
    chart.around(place.ms);
    chart.plot.redraw(false);
    listed(place);
  };
  const chart = stackChart(box, [step], {
    height: 420,
    tip: (ms, mib, slack) => tip(step, momentAt(step, ms, slack), mib),
    chosen: (ms, slack) => choose(momentAt(step, ms, slack)),
    decorate: plot => momentMark(plot, chosen.ms),
  });
  markPeak(chart, step, `peak ${fixed(total(step, step.peak))} MiB`, () => choose(peak));
  listenToKeys(box, chart, step, choose, () => chosen.ms);
  const listed = listAlive(step);
  listAll(step, choose);
  listed(chosen);
  window.timelineChart = chart;
}
showTimeline();

// Two runs that the reader chooses, on one axis: the first upwards, the second downwards.
function readRun(label, { trainer, ms, mib, words, colors, phases, peak }) {
  const sum = new Float64Array(ms.length);
  const layers = Object.values(mib).map(alive => Float64Array.from(alive, (value, i) => { sum[i] += value; return sum[i]; }));
  return { label, trainer, ms, layers, words, colors, phases, peak };
}

function sayRun(run, ms, slack, mib) {
  const line = (...content) => make("p", "", ...content);
  if (ms > run.ms[run.ms.length - 1]) return [line(`${run.label}: its step has ended`)];
  const i = highest(run, ms - slack, ms + slack), phase = run.phases.find(([, start, end]) => start <= run.ms[i] && run.ms[i] <= end);
  const lines = [line(`${run.label}${phase ? ", " + phase[0] : ""}: `, make("b", "", `${fixed(total(run, i))} MiB`))];
  const c = categoryAt(run, i, mib);
  if (c >= 0) lines.push(line(swatch(run.colors[c]), `${run.words[c]} ${fixed(run.layers[c][i] - (c ? run.layers[c - 1][i] : 0))} MiB`));
  return lines;
}

// Each run's peak as a dashed line in the other's half, where the two can be compared.
function otherPeaks(plot, runs) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = themed("ink");
  ctx.lineWidth = uPlot.pxRatio;
  ctx.setLineDash([6 * uPlot.pxRatio, 4 * uPlot.pxRatio]);
  runs.forEach((run, r) => {
    const y = plot.valToPos((r ? 1 : -1) * total(run, run.peak), "y", true);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
  });
  ctx.restore();
}

async function showTwoRuns() {
  const found = Object.entries(await unpack(document.getElementById("two-runs-data"))).map(([label, run]) => readRun(label, run));
  const section = document.getElementById("two-runs"), box = document.getElementById("two-runs-chart");
  const selects = ["upper-run", "lower-run"].map(id => document.getElementById(id)), legend = document.getElementById("two-runs-legend");
  let chart = null;
  section.hidden = false;
  selects.forEach((select, i) => {
    select.append(...found.map((run, r) => new Option(run.label, r)));
    select.selectedIndex = i;
    select.addEventListener("change", draw);
  });
  function draw() {
    const runs = selects.map(select => found[select.value]);
    chart?.stop();
    chart = stackChart(box, runs, {
      height: 520, decorate: plot => otherPeaks(plot, runs),
      tip: (ms, mib, slack) => runs.flatMap((run, r) => sayRun(run, ms, slack, r ? -mib : mib)),
    });
    runs.forEach((run, r) => markPeak(chart, run, `${run.trainer}: peak ${fixed(total(run, run.peak), 1)} MiB`, () => chart.around(run.ms[run.peak]), r === 1));
    const entries = new Map(runs.flatMap(run => run.words.map((word, c) => [word, run.colors[c]])));
    legend.replaceChildren(...[...entries].flatMap(([word, color]) => [make("span", "entry", swatch(color), word), " "]));
    window.twoRunsChart = chart;
  }
  document.getElementById("swap-runs").addEventListener("click", () => {
    [selects[0].value, selects[1].value] = [selects[1].value, selects[0].value];
    draw();
  });
  zoomByKeys(box, () => chart);
  draw();
}
showTwoRuns();

// Loss above cumulative cost on one axis of time, drawn by uPlot; numbers stand in a table below.
/* global uPlot */
const drawn = new Map();

const style = (token) => getComputedStyle(document.documentElement).getPropertyValue(token).trim();
const font = "13px system-ui, sans-serif";

function hatch(ratio) {
  const size = Math.round(8 * ratio);
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.strokeStyle = style("--idle");
  pen.lineWidth = 1.5 * ratio;
  pen.beginPath();
  for (const shift of [-size, 0, size]) { pen.moveTo(shift, size); pen.lineTo(shift + size, 0); }
  pen.stroke();
  return pen.createPattern(tile, "repeat");
}

// Words stand out from whatever line they are written on.
function write(pen, text, x, y, token) {
  pen.lineWidth = 4 * devicePixelRatio;
  pen.lineJoin = "round";
  pen.strokeStyle = style("--page");
  pen.strokeText(text, x, y);
  pen.fillStyle = style(token);
  pen.fillText(text, x, y);
}

function tinted(job) {
  return (plot) => {
    if (job.since === null) return;
    const { ctx: pen, bbox: box } = plot;
    const from = Math.max(box.left, plot.valToPos(job.since, "x", true));
    const right = box.left + box.width;
    if (from >= right) return;
    pen.save();
    pen.globalAlpha = 0.13;
    pen.fillStyle = style("--idle");
    pen.fillRect(from, box.top, right - from, box.height);
    pen.restore();
  };
}

// What was found, at the beginning of its span.
function verdict(job, words) {
  return (plot) => {
    if (job.since === null || !words) return;
    const { ctx: pen, bbox: box } = plot, ratio = devicePixelRatio;
    const from = Math.max(box.left, plot.valToPos(job.since, "x", true));
    const late = from > box.left + 0.6 * box.width;
    pen.save();
    pen.font = `600 ${13 * ratio}px system-ui, sans-serif`;
    pen.textAlign = late ? "right" : "left";
    pen.textBaseline = "top";
    write(pen, words, from + (late ? -6 : 6) * ratio, box.top + 2 * ratio, "--idle");
    pen.restore();
  };
}

function labelled(words) {
  return (plot) => {
    const { ctx: pen, bbox: box } = plot, ratio = devicePixelRatio;
    let taken = [];
    words.forEach(([at, word, token]) => {
      const values = plot.data[at];
      let last = values.length - 1;
      while (last >= 0 && (values[last] === null || values[last] === undefined)) last--;
      if (last < 0) return;
      const x = plot.valToPos(plot.data[0][last], "x", true);
      let y = plot.valToPos(values[last], "y", true) - 8 * ratio;
      while (taken.some((other) => Math.abs(other - y) < 15 * ratio)) y -= 15 * ratio;
      y = Math.max(y, box.top + 14 * ratio);
      taken.push(y);
      pen.save();
      pen.font = `${13 * ratio}px system-ui, sans-serif`;
      pen.textAlign = x > box.left + box.width / 2 ? "right" : "left";
      write(pen, word, x, y, token);
      pen.restore();
    });
  };
}

function titled(words) {
  return (plot) => {
    const { ctx: pen, bbox: box } = plot, ratio = devicePixelRatio;
    pen.save();
    pen.font = `${13 * ratio}px system-ui, sans-serif`;
    pen.textAlign = "left";
    pen.textBaseline = "top";
    write(pen, words, box.left + 6 * ratio, box.top + 2 * ratio, "--ink");
    pen.restore();
  };
}

function axes(values, zone, dated) {
  const common = { stroke: style("--soft"), font, ticks: { stroke: style("--line"), size: 4 } };
  const time = new Intl.DateTimeFormat("en-GB", { timeZone: zone, hour: "2-digit", minute: "2-digit" });
  const day = new Intl.DateTimeFormat("en-GB", { timeZone: zone, day: "numeric", month: "short" });
  const moments = (plot, splits, axis, space, step) =>
    splits.map((at) => (at === null ? "" : (step >= 43200 ? day : time).format(at * 1000)));
  return [
    { ...common, grid: { show: false }, values: dated ? moments : () => [], size: dated ? 32 : 8, space: 80 },
    { ...common, grid: { stroke: style("--line"), width: 1 }, values, size: 64, space: 40 },
  ];
}

function options(job, all, height, more) {
  return {
    width: 400, height, ...more,
    legend: { show: false },
    cursor: { sync: { key: job.job }, drag: { x: true, y: false }, points: { size: 6 } },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), all.timezone),
    padding: [8, 24, 0, 0],
  };
}

const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const read = (plot, values) => values.map((value) => (value === null ? "" : short.format(value)));

function loss(job, all) {
  const { "train.loss": train, "eval.loss": validation } = job.curves;
  const given = [[train, "training", "--hue", []], [validation, "validation", "--medium", [6, 4]]].filter(([curve]) => curve);
  if (!given.length) return null;
  const finite = given.flatMap(([curve]) => curve.values).filter((value) => value !== null);
  const log = finite.length && Math.min(...finite) > 0 && Math.max(...finite) >= 10 * Math.min(...finite);
  const data = uPlot.join(given.map(([curve]) => [curve.times, curve.values]));
  const series = given.map(([, label, token, dash]) => ({ label, stroke: style(token), width: 1.5, dash, points: { show: false } }));
  const words = given.map(([, label, token], at) => [at + 1, label, token]);
  return [options(job, all, 176, {
    scales: { x: { range: () => span(job) }, y: { distr: log ? 3 : 1 } },
    series: [{}, ...series],
    axes: axes(read, all.timezone, !job.curves.cost),
    hooks: { drawClear: [tinted(job)], draw: [labelled(words), verdict(job, job.policy)] },
  }), data];
}

function cost(job, all) {
  const curve = job.curves.cost;
  if (!curve) return null;
  const digits = Math.max(...curve.values.filter((value) => value !== null), 0) < 10 ? 2 : 0;
  const money = new Intl.NumberFormat("en", { style: "currency", currency: all.currency, maximumFractionDigits: digits, minimumFractionDigits: digits });
  const wasted = curve.times.map((at, n) => (job.wastes && job.since !== null && at >= job.since ? curve.values[n] : null));
  return [options(job, all, 136, {
    scales: { x: { range: () => span(job) }, y: { range: (plot, low, high) => [0, (high || 1) * 1.08] } },
    series: [
      {},
      { label: "cost", stroke: style("--hue"), width: 1.5, fill: style("--empty"), points: { show: false } },
      { label: "wasted", stroke: style("--idle"), width: 1.5, fill: () => hatch(devicePixelRatio), points: { show: false } },
    ],
    axes: axes((plot, values) => values.map((value) => money.format(value)), all.timezone, true),
    hooks: { drawClear: [tinted(job)], draw: [titled("cost so far"), verdict(job, job.curves["train.loss"] || job.curves["eval.loss"] ? null : job.policy)] },
  }), [curve.times, curve.values, wasted]];
}

function span(job) {
  const ends = Object.values(job.curves).flatMap((curve) => [curve.times[0], curve.times[curve.times.length - 1]]);
  const low = Math.min(...ends), high = Math.max(...ends);
  return high > low ? [low, high] : [low - 60, high + 60];
}

function draw(place, job, all, made) {
  let old = drawn.get(place);
  if (old) old.destroy();
  const ready = made(job, all);
  place.hidden = !ready;
  if (!ready) { drawn.delete(place); return; }
  ready[0].width = Math.max(200, place.clientWidth);
  drawn.set(place, new uPlot(ready[0], ready[1], place));
}

new ResizeObserver(() => {
  for (const [place, plot] of drawn) {
    if (!place.isConnected) { plot.destroy(); drawn.delete(place); continue; }
    const width = Math.max(200, place.clientWidth);
    if (plot.width !== width) plot.setSize({ width, height: plot.height });
  }
}).observe(document.documentElement);

export function drawCharts(section, all) {
  for (const job of all.jobs) {
    const article = [...section.querySelectorAll(".job")].find((item) => item.dataset.key === job.job);
    if (!article) continue;
    draw(article.querySelector(".loss"), job, all, loss);
    draw(article.querySelector(".cost"), job, all, cost);
  }
}

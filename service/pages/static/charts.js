// Draws all charts of a page with uPlot, from the data block that the server wrote.
/* global uPlot */

const HEIGHT = { wide: 240, narrow: 168 };
const AXIS = 58;
const TIMES = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function time(value) {
  for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"]]) {
    if (value >= unit) return `${plain.format(Number((value / unit).toPrecision(3)))} ${name}`;
  }
  return value ? `${plain.format(Number((value * 1e6).toPrecision(3)))} µs` : "0";
}

function bytes(value) {
  for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "KB"]]) {
    if (value >= unit) return `${plain.format(Number((value / unit).toPrecision(3)))} ${name}`;
  }
  return `${whole.format(value)} B`;
}

/** Whether a number is shown without an exponent, by the same thresholds as in the server's tables. */
function isPlain(value) {
  const size = Math.abs(value);
  return !size || (size >= 1e-4 && size < 1e9);
}

function number(value) {
  return isPlain(value) ? plain.format(value) : value.toExponential(3).replace(/e(.)(\d)$/, "e$10$2");
}

function tick(value) {
  if (!isPlain(value)) return Number(value.toPrecision(3)).toExponential();
  return Math.abs(value) >= 1e4 ? compact.format(value) : plain.format(value);
}

/** Allowed distances between the ticks of an axis of whole numbers. */
const WHOLE = Array.from({ length: 16 }, (_, i) => [1, 2, 5].map((one) => one * 10 ** i)).flat();

const units = {
  number: { axis: tick, value: number },
  share: { axis: (v) => `${plain.format(v * 100)} %`, value: (v) => `${(v * 100).toFixed(1)} %` },
  count: { axis: (v) => compact.format(v), value: (v) => whole.format(v), incrs: WHOLE },
  size: { axis: bytes, value: bytes, incrs: WHOLE },
  duration: { axis: time, value: time, incrs: [...TIMES.flatMap((one) => (one < 0.5 ? [one, 2 * one, 5 * one] : [one])), 172800, 604800, 2592000] },
};

function read(page) {
  return JSON.parse(page.getElementById("data").textContent);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function series(tone) {
  const stroke = () => colour(tone === "points" ? "own" : tone);
  const isPoints = tone === "points";
  const filter = isPoints || tone === "edge" ? undefined : lone;
  const points = { show: isPoints, size: isPoints ? 7 : 5, fill: stroke, filter };
  if (isPoints) return { stroke, width: 1.5, points };
  if (tone === "rival" || tone === "bound") return { stroke, width: 1.5, dash: tone === "bound" ? [2, 4] : [6, 4], points };
  return { stroke, width: tone === "edge" ? 0 : 1.75, points };
}

/** Indices of isolated numbers, which no stroke would show. Undefined values belong to rounds of other lines. */
function lone(plot, line) {
  const values = [...plot.data[line].entries()].filter(([, y]) => y !== undefined);
  const isKnown = (i) => typeof values[i]?.[1] === "number";
  return values.filter((_, i) => isKnown(i) && !isKnown(i - 1) && !isKnown(i + 1)).map(([at]) => at);
}

/** The divisor of the values: uPlot draws no ticks on an axis whose numbers have very many digits. */
function scaleOf(data, { unit, lines }) {
  const most = Math.max(...lines.flatMap(([, y]) => data.columns[y].map(Math.abs)));
  return unit === "number" && most && (most > 1e12 || most < 1e-12) ? Number(`1e${Math.floor(Math.log10(most))}`) : 1;
}

function table(data, lines, scale) {
  const scaled = (y) => (scale === 1 ? y : y.map((one) => one && one / scale));
  const columns = lines.map(([x, y]) => [data.columns[x], scaled(data.columns[y])]);
  const isOne = lines.every(([x]) => x === lines[0][0]);
  return isOne ? [columns[0][0], ...columns.map(([, y]) => y)] : uPlot.join(columns);
}

/** The range of the vertical axis: from zero if no value is negative, so that heights are comparable, unless zoomed. */
function range(low, high, isZoomed) {
  if (low === null || low === undefined) return [0, 1];
  if (isZoomed) {
    const pad = (high - low) * 0.5 || 0.05;
    return [low - pad, high + pad];
  }
  const pad = (high - Math.min(low, 0)) * 0.08 || 1;
  return [low >= 0 ? 0 : low - pad, high + pad];
}

class Drawing {
  #chart;
  #data;
  #plot = null;
  #face = 0;
  #scale = 1;

  constructor(chart, data, redraw) {
    this.#chart = chart;
    this.#data = data;
    this.node = document.getElementById(`plot-${chart.id}`);
    this.outputs = [...document.querySelectorAll(`#legend-${chart.id} output`)];
    for (const radio of document.getElementsByName(`face-${chart.id}`)) {
      radio.addEventListener("change", () => {
        this.#face = Number(radio.value);
        this.draw();
      });
      if (radio.checked) this.#face = Number(radio.value);
    }
    redraw.observe(this.node);
    this.draw();
  }

  get #shown() {
    return this.#chart.faces[this.#face];
  }

  /** Draws new data of the same chart. The names and the order of its lines may have changed. */
  update(chart, data, page) {
    this.#chart = chart;
    this.#data = data;
    const legend = document.getElementById(`legend-${chart.id}`);
    legend.replaceChildren(...document.adoptNode(page.getElementById(legend.id)).childNodes);
    this.outputs = [...legend.querySelectorAll("output")];
    this.draw();
  }

  draw() {
    this.#plot?.destroy();
    this.#scale = scaleOf(this.#data, this.#shown);
    this.#plot = new uPlot(this.#options(), table(this.#data, this.#shown.lines, this.#scale), this.node);
    this.#tell(null);
  }

  /** Frees the plot, which uPlot keeps for as long as its cursor is in step with those of others. */
  stop(redraw) {
    redraw.unobserve(this.node);
    this.#plot.destroy();
  }

  resize() {
    const width = this.node.clientWidth;
    if (width && this.#plot && this.#plot.width !== width) this.#plot.setSize({ width, height: this.#plot.height });
  }

  #options() {
    const { square, zoomed, band, tones, id } = this.#chart;
    const isWide = document.getElementById(`chart-${id}`).classList.contains("wide");
    const unit = units[this.#shown.unit];
    const mark = (v) => unit.axis(v * this.#scale);
    const axis = { stroke: () => colour("muted"), font: "11px system-ui, sans-serif", ticks: { show: false } };
    const grid = { stroke: () => colour("grid"), width: 1 };
    const along = square ? units.share : units.count;
    const rounds = { incrs: along.incrs, values: (_, all) => all.map(along.axis) };
    return {
      width: this.node.clientWidth || 320,
      height: isWide ? HEIGHT.wide : HEIGHT.narrow,
      padding: [10, 20, 0, 0],
      legend: { show: false },
      cursor: {
        drag: { x: false, y: false },
        points: { size: 7, width: 0 },
        y: false,
        sync: square || this.#shown.lines[0][0] !== "t" ? undefined : { key: "rounds" },
      },
      scales: {
        x: { time: false, range: square ? () => [0, 1] : undefined },
        y: { range: square ? () => [0, 1] : (_, low, high) => range(low, high, zoomed) },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 26, space: 64, ...rounds },
        { ...axis, grid, size: AXIS, space: 36, incrs: unit.incrs, values: (_, all) => all.map(mark) },
      ],
      series: [{}, ...tones.slice(0, this.#shown.lines.length).map(series)],
      bands: band ? [{ series: [band[1] + 1, band[0] + 1], fill: () => colour("band") }] : [],
      hooks: {
        draw: [(plot) => this.#chart.marks && this.#mark(plot)],
        setCursor: [(plot) => this.#tell(plot.cursor.idx)],
      },
    };
  }

  /** Draws dotted lines at the alarms. */
  #mark(plot) {
    const { ctx, bbox, scales } = plot;
    ctx.save();
    ctx.strokeStyle = colour("warn");
    ctx.fillStyle = colour("warn");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const { t } of this.#data.marks) {
      if (t < scales.x.min || t > scales.x.max) continue;
      const x = Math.round(plot.valToPos(t, "x", true));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.beginPath();
      ctx.arc(x, bbox.top, 3 * devicePixelRatio, 0, 2 * Math.PI);
      ctx.fill();
    }
    ctx.restore();
  }

  /** Shows the numbers at the cursor in the legend, or else the latest ones, which a calibration does not have. */
  #tell(at) {
    const [, ...columns] = this.#plot?.data ?? table(this.#data, this.#shown.lines, this.#scale);
    const { value } = units[this.#shown.unit];
    this.outputs.forEach((output, i) => {
      const column = columns[i] ?? [];
      const latest = this.#chart.square ? null : column.findLast((one) => one !== null && one !== undefined);
      const found = at === null || at === undefined ? latest : column[at];
      output.textContent = found === null || found === undefined ? "" : value(found * this.#scale);
    });
  }
}

/** What tells one figure of the grid from another: its chart, its title, and the views that it can switch between. */
function identity(figure) {
  return [figure.id, ...[...figure.querySelectorAll("h3, .switch span")].map((one) => one.textContent)].join();
}

/** Adds and removes figures until the grid has those of the new one. The others, and what is focused in them, stay in place. */
function arrange(grid, fresh) {
  const wanted = [...fresh.children];
  const kept = new Set(wanted.map(identity));
  for (const one of [...grid.children]) if (!kept.has(identity(one))) one.remove();
  for (const [i, one] of wanted.entries()) {
    const here = grid.children[i] ?? null;
    if (!here || identity(here) !== identity(one)) grid.insertBefore(document.adoptNode(one), here);
  }
}

/** Draws all charts of the page. Returns a function that redraws them from a new document. */
export function drawCharts() {
  const drawings = new Map();
  const sizes = new ResizeObserver(() => drawings.forEach((one) => one.resize()));

  function draw(page) {
    const data = read(page);
    for (const chart of data.charts) {
      const drawing = drawings.get(chart.id);
      if (drawing) drawing.update(chart, data, page);
      else drawings.set(chart.id, new Drawing(chart, data, sizes));
    }
  }

  draw(document);
  const redraw = () => drawings.forEach((one) => one.draw());
  matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", redraw);

  return (page) => {
    const grid = document.getElementById("charts");
    const fresh = page.getElementById("charts");
    if (fresh.children.length) grid.parentElement.querySelector(".empty")?.remove();
    arrange(grid, fresh);
    for (const [id, drawing] of drawings) {
      if (drawing.node.isConnected) continue;
      drawing.stop(sizes);
      drawings.delete(id);
    }
    draw(page);
  };
}

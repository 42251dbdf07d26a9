// Utility and goodput over the last minutes, drawn by uPlot. The history is this page's own: nobody keeps it for us.
import { byId, clockTime } from "./elements.js";

const KEPT_S = 600;
const NUM_COLORS = 8;
const times = [];
const utility = [];
const slots = Array.from({ length: NUM_COLORS }, () => ({ name: null, values: [] }));
let charts = [];

// The colour of a client, the same as long as it is there; null for those that come when all are taken.
export function colorOf(name) {
  const slot = slots.findIndex((slot) => slot.name === name);
  return slot < 0 ? null : `var(--c${slot})`;
}

export function record(snapshot) {
  if (snapshot.at < times.at(-1) - 1) for (const values of [times, utility, ...slots.map((slot) => slot.values)]) values.length = 0; // the clock was set back
  times.push(snapshot.at);
  utility.push(snapshot.utility);
  assignColors(snapshot.clients);
  const goodputs = new Map(snapshot.clients.filter((row) => row.activity === "writing").map((row) => [row.name, row.goodput]));
  for (const slot of slots) slot.values.push(goodputs.get(slot.name) ?? null);
  forget(snapshot.at - KEPT_S);
}

// A gap: the verify node was away.
export function interrupt() {
  if (!times.length) return;
  times.push(times[times.length - 1] + 0.001);
  for (const values of [utility, ...slots.map((slot) => slot.values)]) values.push(null);
}

export function draw() {
  if (!charts.length) charts = [create("utility-chart", ["--accent"]), create("goodput-chart", colors())];
  charts[0].setData([times, utility]);
  charts[1].setData([times, ...slots.map((slot) => slot.values)]);
}

function assignColors(clients) {
  const names = new Set(clients.map((row) => row.name));
  for (const slot of slots) if (!names.has(slot.name)) Object.assign(slot, { name: null, values: slot.values.map(() => null) });
  for (const name of names) {
    const free = slots.find((slot) => slot.name === null);
    if (free && !slots.some((slot) => slot.name === name)) free.name = name;
  }
}

function forget(before) {
  while (times[0] < before) for (const values of [times, utility, ...slots.map((slot) => slot.values)]) values.shift();
}

const colors = () => slots.map((_, i) => `--c${i}`);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function create(id, strokes) {
  const place = byId(id);
  const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: `12px ${getComputedStyle(document.body).fontFamily}` };
  const options = {
    ...sizeOf(place),
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 4, 0, 0],
    scales: { y: { range } },
    axes: [{ ...axis, space: 90, size: 26, values: clockTimes }, { ...axis, size: 40 }],
    series: [{}, ...strokes.map((name) => ({ stroke: color(name), width: 1.75, points: { show: false }, spanGaps: false }))],
  };
  const chart = new uPlot(options, [times, ...strokes.map(() => [])], place);
  new ResizeObserver(() => chart.setSize(sizeOf(place))).observe(place);
  return chart;
}

const clockTimes = (_, moments) => moments.map(clockTime);

// Some air around the lines, also while all values are alike.
function range(_, low, high) {
  if (low === null) return [0, 1];
  const air = Math.max(0.1 * (high - low), 0.05 * Math.abs(high), 0.1);
  return [low - air, high + air];
}

const sizeOf = (place) => ({ width: place.clientWidth, height: place.clientHeight });

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts) chart.destroy();
  charts = [];
  if (times.length) draw();
});

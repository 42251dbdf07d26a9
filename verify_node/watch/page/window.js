// The live page: listens to snapshots, shows the newest, and says so when there are none.
import { bar, byId, clockTime, count, duration, element, fixed, keep, percent, setBar, setText } from "./elements.js";
import { colorOf, draw, interrupt, record } from "./charts.js";
import { showSources } from "./drafting.js";
import { look } from "./recent.js";
import { term } from "./terms.js";

const PHASES = { receive: "waiting for drafts", forward: "forward pass", verify: "verification", schedule: "scheduling", send: "sending" };
const PATIENCE_MS = 5000; // without news for so long, we ask anew
const RETRY_MS = 1500;

let source = null;
let watchdog = 0;
let heardAt = null;

function connect() {
  source?.close();
  source = new EventSource("events");
  source.onmessage = (message) => hear(JSON.parse(message.data));
  source.onerror = () => {
    away();
    if (source.readyState === EventSource.CLOSED) later(RETRY_MS);
  };
  later(PATIENCE_MS);
}

function later(milliseconds) {
  clearTimeout(watchdog);
  watchdog = setTimeout(() => {
    away();
    connect();
  }, milliseconds);
}

function hear(snapshot) {
  later(PATIENCE_MS);
  heardAt = Date.now();
  document.body.classList.remove("away");
  setText(byId("line-text"), "live");
  snapshot.clients.sort((left, right) => left.name.localeCompare(right.name, "en", { numeric: true }));
  record(snapshot);
  show(snapshot);
  draw();
}

function away() {
  if (!document.body.classList.contains("away")) interrupt();
  document.body.classList.add("away");
  sayAway();
}

function sayAway() {
  if (!document.body.classList.contains("away")) return;
  setText(byId("line-text"), heardAt === null ? "connecting" : `away for ${duration((Date.now() - heardAt) / 1000)}, reconnecting`);
}

function show(snapshot) {
  const { node } = snapshot;
  const rates = look(snapshot);
  setText(byId("model"), node.model);
  setText(byId("policy"), `${node.policy} policy`);
  setText(byId("rounds"), `${node.rounds} rounds`);
  setText(byId("version"), `version ${node.version}`);
  setText(byId("num-clients"), count(snapshot.num_clients));
  setText(byId("tokens-per-s"), fixed(rates.tokens_per_s, 1));
  setText(byId("rounds-per-s"), fixed(rates.rounds_per_s, 1));
  setText(byId("drafted-per-round"), fixed(rates.drafted_per_round, 1));
  setText(byId("utility"), snapshot.utility === null ? "–" : fixed(snapshot.utility, 2));
  setText(byId("budget"), count(node.budget));
  setText(byId("num-tokens"), count(snapshot.num_tokens));
  showClients(snapshot, rates.clients);
  showSources(snapshot);
  showSplit(rates);
  showPool(snapshot.pool);
  showRefusals(snapshot.refusals);
  keep(byId("events"), snapshot.events, (event) => `${event.kind} ${event.client} ${event.what} ${event.at}`, makeEvent, showEvent);
}

function showClients(snapshot, recent) {
  const most = Math.max(1, ...snapshot.clients.filter((row) => row.activity === "writing").map((row) => row.goodput));
  const context = { at: snapshot.at, budget: snapshot.node.budget, most, recent };
  keep(byId("clients").tBodies[0], snapshot.clients, (row) => row.name, makeRow, (tr, row) => showRow(tr, row, context));
  const firstLabel = (tr, i) => tr.querySelectorAll(".label").forEach((label) => (label.tabIndex = i ? -1 : 0)); // one stop for each column
  [...byId("clients").tBodies[0].rows].forEach(firstLabel);
  byId("nobody").hidden = snapshot.clients.length > 0;
  const hidden = snapshot.num_clients - snapshot.clients.filter((row) => row.state !== "lost").length;
  byId("more").hidden = hidden <= 0;
  setText(byId("more"), `and ${count(hidden)} more`);
}

function makeRow(row) {
  const cell = (label, word, classes, ...content) => element("td", classes, term(label, word, "label"), ...content);
  return element(
    "tr", "",
    element("td", "name", element("span", "swatch"), row.name, element("small")),
    element("td", "state", element("span"), element("small")),
    cell("Drafted / round", "drafted", "drafted", bar()),
    cell("Next draft", "next-draft", "number length", element("span")),
    cell("Acceptance rate", "acceptance", "acceptance", bar()),
    cell("Goodput", "goodput", "goodput", bar()),
    cell("Share", "share", "share", bar()),
    cell("Tokens", "tokens", "number tokens", element("span")),
    cell("Weight", "weight", "number weight", element("span")),
  );
}

function showRow(tr, row, { at, budget, most, recent }) {
  const lost = row.state === "lost";
  const { drafted_per_round, share } = recent.get(row.name);
  const writes = !lost && row.activity === "writing"; // else the estimates are those of its last text
  tr.className = lost ? "lost" : row.activity;
  tr.querySelector(".swatch").style.background = (!lost && colorOf(row.name)) || "";
  setText(tr.querySelector("small"), row.draft_models.join(", "));
  const state = tr.querySelector(".state");
  state.className = `state ${row.state}`;
  setText(state.querySelector("span"), row.state === "silent" ? "silent" : `${row.state} ${duration(at - row.since)}${lost ? " ago" : ""}`);
  setText(state.querySelector("small"), lost ? "" : activity(row, at));
  showBar(tr, ".drafted", fixed(drafted_per_round, 1), drafted_per_round / budget, !lost);
  showNumber(tr, ".length", writes ? `≤ ${count(row.may_draft)}` : "–");
  showBar(tr, ".acceptance", fixed(row.acceptance_rate, 2), row.acceptance_rate, writes);
  showBar(tr, ".goodput", fixed(row.goodput, 2), row.goodput / most, writes);
  showBar(tr, ".share", percent(share), share, !lost);
  showNumber(tr, ".tokens", count(row.num_tokens));
  showNumber(tr, ".weight", String(row.weight));
  tr.querySelector(".weight").classList.toggle("usual", row.weight === 1);
}

function activity(row, at) {
  if (row.activity === "idle") return "idle";
  if (row.activity === "stalled") return `no progress for ${duration(at - row.moved)}`;
  return `writing ${count(row.num_sessions)} ${row.num_sessions === 1 ? "text" : "texts"}`;
}

function showNumber(tr, name, text) {
  setText(tr.querySelector(name).querySelector("span"), text);
}

function showBar(tr, name, text, share, isKnown) {
  setBar(tr.querySelector(name), isKnown ? text : "–", isKnown ? share : 0);
}

function showSplit({ wall_s, over_s, rounds_per_s }) {
  const total = Object.values(wall_s).reduce((sum, seconds) => sum + seconds, 0);
  setText(byId("split-about"), rounds_per_s ? `in the last ${Math.round(over_s)} s` : "no round lately");
  const parts = Object.entries(PHASES).map(([phase, what]) => ({ phase, what, share: rounds_per_s ? wall_s[phase] / total : 0 }));
  const key = (part) => part.phase;
  keep(byId("split"), parts, key, (part) => element("span", part.phase), (span, part) => {
    span.style.width = `${100 * part.share}%`;
  });
  const entry = (part) => element("li", "", element("span", `swatch ${part.phase}`), term(part.what, part.phase), " ", element("b"));
  keep(byId("split-legend"), parts, key, entry, (li, part) => setText(li.querySelector("b"), percent(part.share)));
}

function showPool({ num_pages, num_used, page_size }) {
  setText(byId("pool-about"), `${count(num_used)} of ${count(num_pages)} pages of ${page_size} tokens`);
  byId("pool").style.width = `${(100 * num_used) / num_pages}%`;
}

function showRefusals(refusals) {
  const entries = Object.entries(refusals).map(([code, number]) => ({ code, number }));
  const none = entries.length ? [] : [{ code: "none", number: null }];
  keep(
    byId("refusals"), [...entries, ...none], (one) => one.code,
    (one) => element("li", one.number === null ? "muted" : "", `${one.code.replaceAll("_", " ")} `, element("b")),
    (li, one) => setText(li.querySelector("b"), one.number === null ? "" : count(one.number)),
  );
}

function makeEvent(event) {
  const time = element("time", "", clockTime(event.at));
  return element("li", "", time, element("em", event.kind, event.kind), element("span"));
}

// Before a draft node's Hello, its name is only known where there are keys.
const HELLO_FIRST =
  "hello first (this node has started anew, has heard nothing of it for its lease, " +
  "or its key's enrolment was changed; it connects again by itself)";

function showEvent(li, event) {
  const times = event.num_times > 1 ? ` × ${count(event.num_times)}` : "";
  const code = event.what === "hello_first" ? HELLO_FIRST : event.what.replaceAll("_", " ");
  const what = event.kind === "refused" ? code + (event.why ? ` (${event.why})` : "") : event.what;
  setText(li.querySelector("span"), `${event.client || "a draft node without a name"}${what && `: ${what}`}${times}`);
}

setInterval(sayAway, 1000);
connect();

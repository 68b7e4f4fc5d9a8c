// The console: polls the cluster view of one node and draws it. No state outlives the page.
"use strict";

const POLL_MS = 2000;
const SPANS_MS = [60_000, 300_000, 600_000];
const SPAN_MS_MAX = 600_000;
const $ = (id) => document.getElementById(id);

const samples = new Map(); // node -> [{ at, view }], oldest first
const hidden = new Set();

// ---- Numbers with units ----

function count(value) {
  if (value == null) return "–";
  if (value >= 1e9) return `${(value / 1e9).toFixed(2)} G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return Math.round(value).toLocaleString("en");
}

function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

function micros(value) {
  if (value == null) return "–";
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} s`;
  if (value >= 1e3) return `${(value / 1e3).toFixed(1)} ms`;
  return `${Math.round(value)} µs`;
}

function duration(ms) {
  if (ms == null) return "–";
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${s % 60 && s < 600 ? (s / 60).toFixed(1) : Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const CHARTS = [
  { title: "Requests", unit: "per second", of: (n) => n.commands_per_second, show: count },
  { title: "Latency p50", unit: "time", of: (n) => n.latency_p50_us, show: micros },
  { title: "Latency p99", unit: "time", of: (n) => n.latency_p99_us, show: micros },
  { title: "Keys", unit: "count", of: (n) => n.keys, show: count },
  { title: "Data", unit: "bytes", of: (n) => n.bytes, show: bytes },
  { title: "Memory", unit: "bytes, resident", of: (n) => n.memory_bytes, show: bytes },
  { title: "Free disk", unit: "bytes", of: (n) => n.disk_free_bytes, show: bytes },
  { title: "Ring in use", unit: "bytes", of: (n) => n.ring_used_bytes, show: bytes },
];

// ---- Elements ----

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text != null) made.textContent = text;
  return made;
}

const color = (index) => `var(--node-${index % 9})`;
const swatch = (index) => element("span", { class: "swatch", style: `background:${color(index)}` });

// ---- Cluster ----

function stateKind(node) {
  if (!node.up) return "bad";
  return node.state === "ready" ? "good" : "warn";
}

function showState(cluster) {
  const all = cluster.nodes.length;
  const good = cluster.serving && cluster.ready === all && !cluster.warnings.length;
  $("state").className = `pill ${cluster.serving ? (good ? "good" : "warn") : "bad"}`;
  $("state").textContent = cluster.serving ? (good ? "healthy" : "degraded") : "no quorum";
  const failures = cluster.tolerates === 1 ? "failure" : "failures";
  $("summary").textContent = cluster.serving
    ? `${cluster.ready} of ${all} nodes ready, tolerates ${cluster.tolerates} more ${failures}`
    : `${cluster.ready} of ${all} nodes ready, ${cluster.quorum} needed`;
  $("asked").textContent = `as node ${cluster.asked} sees it`;
  $("warnings").replaceChildren(...cluster.warnings.map((text) => element("li", {}, text)));
}

function showNodes(cluster) {
  const rows = cluster.nodes.map((node, index) => {
    const cell = (label, content, kind) =>
      element("td", { "data-label": label, class: kind || "" }, content);
    const name = element("td", {}, swatch(index), `${node.node}`, element("span", { class: "dim" },
      ` ${node.address}${node.is_self ? " (this)" : ""}`));
    const seen = node.up || node.last_seen_ms_ago == null ? "" : `, ${duration(node.last_seen_ms_ago)} ago`;
    const left = node.recovery_left ? `, ${count(node.recovery_left)} left` : "";
    const live = (value) => (node.up ? value : "–");
    return element("tr", { class: node.up ? "" : "down", "data-node": node.node },
      name,
      cell("State", `${node.state}${seen}${left}`, stateKind(node)),
      cell("Writes", live(node.writes || "–"), node.up && node.writes && node.writes !== "ok" ? "bad" : ""),
      cell("Requests/s", live(count(node.commands_per_second)), "number"),
      cell("p50", live(micros(node.latency_p50_us)), "number"),
      cell("p99", live(micros(node.latency_p99_us)), "number"),
      cell("Keys", count(node.keys), "number"),
      cell("Data", bytes(node.bytes), "number"),
      cell("Memory", live(bytes(node.memory_bytes)), "number"),
      cell("Free disk", bytes(node.disk_free_bytes), "number"),
      cell("Clients", live(count(node.clients)), "number"),
      cell("Round trip", live(node.is_self ? "–" : micros(node.round_trip_us)), "number"),
      cell("Up", live(duration(node.uptime_ms)), "number"),
      cell("Version", node.version || "–"));
  });
  document.querySelector("#nodes tbody").replaceChildren(...rows);
}

// ---- Databases ----

// "1, 2" for full members, "3 (shadow)" for one whose copy is not whole yet.
function membersOf(group) {
  if (!group.members.length) return "–";
  return group.members.map(({ node, role }) => (role === "full" ? `${node}` : `${node} (${role})`)).join(", ");
}

// Databases in use: the first, those with keys, those with a protocol of their own.
function showDatabases({ databases }) {
  const [first, ...others] = databases;
  const used = others.filter((it) => it.keys || it.group || it.protocol !== first.protocol || it.durability !== first.durability);
  const rows = [first, ...used].map(({ index, protocol, durability, keys, bytes: length, group }) => {
    const cell = (label, content, kind) => element("td", { "data-label": label, class: kind || "" }, content);
    const full = group ? group.members.filter(({ role }) => role === "full").length : 0;
    const kind = !group || (group.state === "active" && full === group.wanted) ? "good" : group.state === "lost" ? "bad" : "warn";
    return element("tr", { "data-database": index },
      cell("Database", `${index}`),
      cell("Protocol", protocol),
      cell("Durability", durability),
      cell("Keys", count(keys), "number"),
      cell("Data", bytes(length), "number"),
      cell("Group", group ? group.state : "–", group ? kind : ""),
      cell("Epoch", group ? `${group.epoch}` : "–", "number"),
      cell("Members", group ? membersOf(group) : "–"));
  });
  document.querySelector("#databases tbody").replaceChildren(...rows);
}

// ---- Charts ----

const WIDTH = 340, HEIGHT = 130, LEFT = 62, RIGHT = 8, TOP = 8, BOTTOM = 20;

function remember(cluster) {
  const at = Date.now();
  for (const node of cluster.nodes) {
    const points = samples.get(node.node) || [];
    points.push({ at, view: node.up ? node : null });
    while (points.length && points[0].at < at - SPAN_MS_MAX) points.shift();
    samples.set(node.node, points);
  }
}

// The charts begin short, so that the first minute fills them.
function spanOf(now) {
  const first = Math.min(now, ...[...samples.values()].map((points) => points[0].at));
  return SPANS_MS.find((span) => now - first <= span) || SPAN_MS_MAX;
}

// The smallest of 2, 4, 10 times a power of ten at or above `value`: its half is whole.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [2, 4, 10].map((step) => step * power).find((step) => step >= value) || value;
}

// Bytes get a scale of powers of two, so that the labels are whole.
function scaleTop(chart, value) {
  if (chart.show !== bytes) return roundUp(value);
  const unit = 1024 ** Math.floor(Math.log(Math.max(value, 1)) / Math.log(1024));
  return roundUp(value / unit) * unit;
}

function drawChart(chart, nodes, now, span) {
  const shown = nodes.map((node, index) => ({ node, index })).filter(({ node }) => !hidden.has(node.node));
  const lines = shown.map(({ node, index }) => ({
    node, index,
    points: (samples.get(node.node) || []).map(({ at, view }) => ({ at, value: view && chart.of(view) })),
  }));
  const values = lines.flatMap((line) => line.points.map((point) => point.value)).filter((v) => v != null);
  const top = scaleTop(chart, Math.max(1, ...values));
  const x = (at) => LEFT + (WIDTH - LEFT - RIGHT) * (1 - (now - at) / span);
  const y = (value) => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / top);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${chart.title} of each node` });
  for (const part of [0, 0.5, 1]) {
    picture.append(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(top * part), y2: y(top * part) }));
    picture.append(svg("text", { x: LEFT - 6, y: y(top * part) + 4, "text-anchor": "end" }, chart.show(top * part)));
  }
  for (const [part, anchor] of [[1, "start"], [0.5, "middle"], [0, "end"]]) {
    const label = part ? `−${duration(span * part)}` : "now";
    picture.append(svg("text", { x: x(now - span * part), y: HEIGHT - 5, "text-anchor": anchor }, label));
  }
  for (const { index, points } of lines) {
    let path = "", isDown = true;
    for (const { at, value } of points) {
      if (value != null) path += `${isDown ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      isDown = value == null;
    }
    picture.append(svg("path", { class: "series", d: path, style: `stroke:${color(index)}` }));
  }
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
  picture.append(cursor);
  const readout = element("div", { class: "values" });
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const at = now - span * (1 - ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT));
    cursor.setAttribute("x1", x(at));
    cursor.setAttribute("x2", x(at));
    cursor.style.visibility = at >= now - span && at <= now ? "visible" : "hidden";
    readout.textContent = lines.map(({ node, points }) => {
      const near = points.findLast((point) => point.at <= at);
      return `node ${node.node}: ${near && near.value != null ? chart.show(near.value) : "–"}`;
    }).join("   ");
  });
  picture.addEventListener("pointerleave", () => {
    cursor.style.visibility = "hidden";
    readout.textContent = "";
  });
  return element("figure", {},
    element("figcaption", {}, element("b", {}, chart.title), element("span", { class: "dim" }, chart.unit)),
    picture, readout);
}

let lastCluster = null;

function drawCharts() {
  // A chart under the pointer stays, so that its readout does not vanish.
  if (!lastCluster || $("charts").matches(":hover")) return;
  const now = Date.now();
  const span = spanOf(now);
  const charts = CHARTS.map((chart) => drawChart(chart, lastCluster.nodes, now, span));
  $("charts").replaceChildren(...charts);
}

function showLegend(nodes) {
  if ($("legend").childElementCount === nodes.length) return;
  $("legend").replaceChildren(...nodes.map((node, index) => {
    const button = element("button", { type: "button", "aria-pressed": "true" }, swatch(index), `node ${node.node}`);
    button.addEventListener("click", () => {
      if (!hidden.delete(node.node)) hidden.add(node.node);
      button.setAttribute("aria-pressed", String(!hidden.has(node.node)));
      drawCharts();
    });
    return button;
  }));
}

// ---- Events ----

function showEvents(events) {
  const kinds = { error: "bad", warn: "warn", info: "dim" };
  const items = events.slice().reverse().map(({ time, level, text }) =>
    element("li", {},
      element("time", { class: "dim", datetime: time, title: time }, new Date(time).toLocaleTimeString()),
      element("span", { class: kinds[level] || "dim" }, level),
      element("span", {}, text)));
  $("events").replaceChildren(...items);
  if (!items.length) $("events").append(element("li", {}, element("span", { class: "dim" }, "none yet")));
}

// ---- Key inspector ----

function showExplanation({ shard, agreed, replicas }) {
  const rows = replicas.map((replica) => element("tr", {},
    element("td", {}, `${replica.node}`),
    element("td", { class: replica.state === "silent" ? "bad" : "" }, replica.state),
    element("td", {}, element("code", {}, replica.round || "–")),
    element("td", { class: "number" }, count(replica.version)),
    element("td", { class: "number" }, bytes(replica.bytes)),
    element("td", {}, element("code", {}, replica.checksum || "–")),
    element("td", { class: "number" }, replica.pttl == null || replica.pttl < 0 ? "–" : duration(replica.pttl))));
  const heads = ["Node", "State", "Round", "Version", "Value", "Checksum", "Time to live"];
  const head = element("tr", {}, ...heads.map((text) => element("th", {}, text)));
  const verdict = `${agreed} of ${replicas.length} replicas agree; shard ${shard}`;
  $("explanation").replaceChildren(
    element("p", { class: agreed === replicas.length ? "good" : "warn" }, verdict),
    element("div", { class: "scroll" },
      element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))));
}

$("inspect").addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = new FormData(event.target);
  const query = new URLSearchParams({ key: fields.get("key"), database: fields.get("database") });
  try {
    const answer = await (await fetch(`api/v1/key?${query}`)).json();
    if (answer.error) throw new Error(answer.error);
    showExplanation(answer);
  } catch (error) {
    $("explanation").replaceChildren(element("p", { class: "bad" }, error.message));
  }
});

// ---- Polling ----

async function get(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${answer.statusText}`);
  return answer.json();
}

async function poll() {
  try {
    const paths = ["api/v1/cluster", "api/v1/status", "api/v1/events"];
    const [cluster, status, events] = await Promise.all(paths.map(get));
    lastCluster = cluster;
    remember(cluster);
    showState(cluster);
    showNodes(cluster);
    showDatabases(status);
    showLegend(cluster.nodes);
    drawCharts();
    showEvents(events.events);
  } catch (error) {
    $("state").className = "pill bad";
    $("state").textContent = "no answer";
    $("summary").textContent = error.message;
  }
  setTimeout(poll, POLL_MS);
}

poll();

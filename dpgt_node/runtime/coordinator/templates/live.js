"use strict";
// The live page of a coordinator.  Everything is drawn from four sources on this server: graph.json once, state.json
// every second, and what was appended to metrics.csv and phases.csv since the last look.  Text goes in as text only.
const PHASES = ["compute", "barrier", "noise", "store", "exchange", "evaluate"];
const EVERY_MS = 1000, POINTS = 1200, LINES = 8, NAMED = 16, ARROWS = 24, ROWS = 12, BARS = 12, BLOCK = 65536, WHOLE = 8e6;
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes, ...children) {
  const svg = ["svg", "path", "circle", "text", "line", "rect", "g", "title"].includes(tag);
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  for (const child of children) element.append(child);
  return element;
}

function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === "inf" || value === Infinity) return "∞";
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("e+", "e");
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
}

function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${number(seconds * 1e3, 2)} ms`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${number(seconds / 3600)} h`;
}

// --- what was appended to a CSV file ---------------------------------------------------------------------------
class Tail {
  constructor(path, row) { this.path = path; this.row = row; this.next = 0; this.columns = null; }

  async piece(from, limit) {
    const answer = await fetch(`${this.path}?from=${from}&limit=${limit}`);
    if (!answer.ok) throw new Error(answer.status);
    return { text: await answer.text(), next: Number(answer.headers.get("X-Next")), size: Number(answer.headers.get("X-Size")) };
  }

  read(text) {
    for (const line of text.split("\n")) {
      if (!line) continue;
      const cells = line.split(",");
      if (cells[0] === "agent") this.columns = cells;
      else if (this.columns) this.row(Object.fromEntries(this.columns.map((name, i) => [name, cells[i]])));
    }
  }

  async follow() {
    for (let i = 0; i < 200; i++) {
      const piece = await this.piece(this.next, 4 * BLOCK);
      this.read(piece.text);
      if (this.next === 0 && piece.size > WHOLE) {  // of a long run's file, evenly spaced blocks
        for (let at = 1; at < 100; at++) this.read((await this.piece(Math.floor(piece.size * at / 100), BLOCK)).text);
        this.next = piece.size - BLOCK;
        continue;
      }
      const stands = piece.next === this.next;
      this.next = piece.next;
      if (stands || piece.next >= piece.size) return;
    }
  }
}

// A quantity by round: k -> one value an agent.  Rounds are thinned where they are too many to be told apart.
class Curve {
  constructor() { this.values = new Map(); this.stride = 1; }

  note(k, agent, value) {
    if (k % this.stride && k <= run.K) return;
    if (!this.values.has(k)) this.values.set(k, []);
    this.values.get(k)[agent] = value;
    if (this.values.size > POINTS) {
      this.stride *= 2;
      for (const held of [...this.values.keys()]) if (held % this.stride && held <= run.K) this.values.delete(held);
    }
  }

  rows() { return [...this.values.entries()].sort((a, b) => a[0] - b[0]); }
}

let run = null, state = null, silentSince = null, overSince = null;
const PAGE = Math.random().toString(36).slice(2);
const every = () => (document.hidden ? 4 * EVERY_MS : EVERY_MS);
const curves = {}, phaseSeconds = new Map();
const tails = [
  new Tail("metrics.csv", (row) => {
    const agent = run.index[row.agent], k = Number(row.k);
    for (const [key, text] of Object.entries(row)) {
      if (key === "agent" || key === "k" || key === "wall_seconds" || text === "" || text === undefined) continue;
      (curves[key] ||= new Curve()).note(k, agent, text === "inf" ? Infinity : Number(text));
    }
  }),
  new Tail("phases.csv", (row) => {
    const k = Number(row.k), held = phaseSeconds.get(k) || [0, ...PHASES.map(() => 0)];
    held[0] += Number(row.rounds);
    PHASES.forEach((phase, i) => { held[i + 1] += Number(row[phase]); });
    phaseSeconds.set(k, held);
  }),
];

// --- drawings --------------------------------------------------------------------------------------------------
function median(values) {
  const sorted = values.filter((v) => v !== undefined && Number.isFinite(v)).sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return !sorted.length ? NaN : sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function ticks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

function axes(box, width, height, xmax, low, high, log, left) {
  const right = 8, top = 8, bottom = 22;
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  const place = (v) => log ? Math.log10(v) : v;
  const x = (k) => left + (width - left - right) * k / Math.max(1, xmax);
  const y = (v) => height - bottom - (height - top - bottom) * (place(v) - place(low)) / (place(high) - place(low) || 1);
  const marks = log ? ticks(Math.log10(low), Math.log10(high), 4).filter(Number.isInteger).map((e) => 10 ** e) : ticks(low, high, 5);
  for (const mark of marks.length ? marks : [low, high]) {
    svg.append(make("line", { class: "axis", x1: left, x2: width - right, y1: y(mark), y2: y(mark) }));
    svg.append(make("text", { x: left - 6, y: y(mark) + 4, "text-anchor": "end" }, number(mark)));
  }
  for (const mark of ticks(0, Math.max(1, xmax), width < 420 ? 3 : 6)) {
    if (Number.isInteger(mark)) svg.append(make("text", { x: x(mark), y: height - 4, "text-anchor": mark ? "middle" : "start" }, number(mark)));
  }
  box.replaceChildren(svg);
  return { svg, x, y };
}

function drawCurve(box, curve, wish) {
  const rows = curve.rows().map(([k, values]) => [k, values.filter((v) => v !== undefined)]).filter(([, values]) => values.some(Number.isFinite));
  if (!rows.length) { box.replaceChildren(make("p", { class: "none" }, "every value is infinite")); return; }
  const all = rows.flatMap(([, values]) => values).filter(Number.isFinite);
  let low = Math.min(...all.slice(0, 1e5)), high = Math.max(...all.slice(0, 1e5));
  for (const v of all) { if (v < low) low = v; if (v > high) high = v; }
  const log = wish.log && low > 0 && high / low > 30;
  if (wish.limit !== undefined && Number.isFinite(wish.limit)) high = Math.max(high, wish.limit);
  if (!log) { if (wish.zero) low = Math.min(0, low); const pad = (high - low || Math.abs(high) || 1) * 0.06; high += pad; if (!wish.zero) low -= pad; }
  const width = Math.max(280, box.clientWidth), { svg, x, y } = axes(box, width, 210, Math.max(run.K, rows.at(-1)[0]), low, high, log, 46);
  svg.setAttribute("aria-label", `${wish.title}: ${number(median(rows.at(-1)[1]))} in round ${rows.at(-1)[0]}`);
  const path = (pick) => "M" + rows.map(([k, values]) => [k, pick(values)]).filter(([, v]) => Number.isFinite(v)).map(([k, v]) => `${x(k).toFixed(1)} ${y(v).toFixed(1)}`).join("L");
  const full = curve.rows();
  if (wish.one) {
    svg.append(make("path", { class: "line c0", d: path((values) => values[0]) }));
  } else if (run.agents.length <= LINES) {
    run.agents.forEach((name, i) => {
      const own = full.filter(([, values]) => Number.isFinite(values[i]));
      if (own.length) svg.append(make("path", { class: `line c${i % 8}`, d: "M" + own.map(([k, values]) => `${x(k).toFixed(1)} ${y(values[i]).toFixed(1)}`).join("L") }, make("title", {}, name)));
      if (own.length === 1) svg.append(make("circle", { class: `fill c${i % 8}`, cx: x(own[0][0]), cy: y(own[0][1][i]), r: 2.5 }));
    });
  } else {
    const finite = (values) => values.filter(Number.isFinite);
    const up = path((values) => Math.max(...finite(values))), down = rows.slice().reverse().map(([k, values]) => `${x(k).toFixed(1)} ${y(Math.min(...finite(values))).toFixed(1)}`).join("L");
    svg.append(make("path", { class: "band c0", d: `${up}L${down}Z` }), make("path", { class: "line c0", d: path(median) }));
  }
  if (wish.limit !== undefined && Number.isFinite(wish.limit)) {
    svg.append(make("line", { class: "limit", x1: 46, x2: width - 8, y1: y(wish.limit), y2: y(wish.limit) }));
  }
}

function figure(id, title) {
  const held = $(id);
  if (held) return held;
  const made = make("figure", { id }, make("figcaption", {}, make("h3", {}, title), make("span", {})), make("div", {}));
  $("curves").append(made);
  return made;
}

function drawCurves() {
  const wanted = [
    ["accuracy_test", "Test accuracy", {}], ["loss_train", "Training loss", { log: true }],
    ["consensus_error", "Consensus error", { log: true, one: true }],
  ];
  if (state.accountant) wanted.push([`epsilon_${state.accountant}`, "Epsilon so far", { zero: true, limit: worst("epsilon_of_run") }]);
  for (const [key, title, wish] of wanted) {
    if (!curves[key]) continue;
    const made = figure(`curve-${key}`, title), last = curves[key].rows().at(-1);
    let said = wish.one || run.agents.length <= LINES ? "" : "median, least and most";
    if (wish.limit !== undefined) said = `${said ? said + "; " : ""}dashed: what the run costs in all`;
    made.querySelector("span").textContent = said || (last ? `round ${number(last[0])}` : "");
    drawCurve(made.querySelector("div"), curves[key], { ...wish, title });
  }
}

function drawGraph(box, edges, late, tone) {
  const n = run.agents.length, size = Math.min(460, Math.max(290, box.clientWidth)), centre = size / 2, named = n <= NAMED, many = n > ARROWS, dense = edges.length > 250;
  const radius = named ? size / 2 - 66 : size / 2 - 26, cut = named ? 36 : 8, dot = Math.max(3.2, Math.min(11, 2.2 * radius / n));
  const at = run.agents.map((_, i) => {
    const angle = 2 * Math.PI * i / n - Math.PI / 2;
    return [centre + radius * Math.cos(angle), centre + radius * Math.sin(angle), angle];
  });
  const svg = make("svg", { class: "graph", viewBox: `0 ${cut} ${size} ${size - 2 * cut}`, role: "img" });
  const shapes = { usual: ["", ""], late: ["", ""] };
  let lateCount = 0;
  for (const [from, to] of edges) {
    if (from === to) continue;
    const isLate = late.has(`${from}>${to}`), kind = isLate ? "late" : "usual";
    lateCount += isLate;
    const [x1, y1] = at[from], [x2, y2] = at[to];
    // Bent towards the centre and to its own right, so that two opposite edges are two.
    const mx = (x1 + x2) / 2, my = (y1 + y2) / 2, dx = x2 - x1, dy = y2 - y1, far = Math.hypot(dx, dy) || 1, bend = Math.min(12, far * 0.12), pull = far < radius / 2 ? 0.02 : 0.18;
    const cx = mx + (centre - mx) * pull - dy / far * bend, cy = my + (centre - my) * pull + dx / far * bend;
    const ex = x2 - cx, ey = y2 - cy, reach = Math.hypot(ex, ey) || 1, ux = ex / reach, uy = ey / reach;
    const tx = x2 - ux * (dot + 1), ty = y2 - uy * (dot + 1);
    shapes[kind][0] += `M${x1.toFixed(1)} ${y1.toFixed(1)}Q${cx.toFixed(1)} ${cy.toFixed(1)} ${tx.toFixed(1)} ${ty.toFixed(1)}`;
    if (!many || isLate) {
      const w = isLate ? 5 : 3.6, l = isLate ? 11 : 8;
      shapes[kind][1] += `M${tx.toFixed(1)} ${ty.toFixed(1)}L${(tx - ux * l - uy * w).toFixed(1)} ${(ty - uy * l + ux * w).toFixed(1)}L${(tx - ux * l + uy * w).toFixed(1)} ${(ty - uy * l - ux * w).toFixed(1)}Z`;
    }
  }
  for (const kind of ["usual", "late"]) {
    const extra = kind === "late" ? " late" : dense ? " many" : "";
    if (shapes[kind][0]) svg.append(make("path", { class: `edge${extra}`, d: shapes[kind][0] }));
    if (shapes[kind][1]) svg.append(make("path", { class: `head${extra}`, d: shapes[kind][1] }));
  }
  let lateNamed = 0;
  run.agents.forEach((name, i) => {
    const [x, y, angle] = at[i];
    svg.append(make("circle", { class: `node ${tone[i]}`, cx: x, cy: y, r: dot }, make("title", {}, `${name}: ${state.agents[i].state}, round ${state.agents[i].k}`)));
    if (named || (tone[i] === "late" && lateNamed++ < 8)) {
      const out = named ? dot + 8 : dot + 6, c = Math.cos(angle), s = Math.sin(angle), inside = named ? 1 : -1;
      const anchor = Math.abs(c) < 0.2 ? "middle" : c * inside > 0 ? "start" : "end";
      const short = name.length > 14 ? name.slice(0, 13) + "…" : name;
      svg.append(make("text", { class: tone[i], x: x + inside * out * c, y: y + inside * out * s + 4 + (Math.abs(c) < 0.2 ? inside * 5 * s : 0), "text-anchor": anchor }, short));
    }
  });
  svg.setAttribute("aria-label", `${edges.length} edges between ${n} agents, ${lateCount} late`);
  box.replaceChildren(svg);
  return lateCount;
}

function drawPhases() {
  const rows = Object.entries(state.phases).map(([name, [rounds, us]]) => ({ name, spans: us.map((v) => v / rounds / 1e6) }));
  const own = (row) => row.spans[0] + row.spans[2] + row.spans[3] + row.spans[5];
  rows.sort((a, b) => own(b) - own(a));
  $("notePhases").textContent = rows.length > BARS ? `the ${BARS} that work longest, of ${rows.length}` : "";
  const shown = rows.slice(0, BARS), box = $("phases");
  if (!shown.length) { box.replaceChildren(make("p", { class: "none" }, "not known yet")); return; }
  const width = Math.max(280, box.clientWidth), left = 96, most = Math.max(...shown.map((r) => r.spans.reduce((a, b) => a + b)));
  const svg = make("svg", { viewBox: `0 0 ${width} ${shown.length * 22 + 4}`, height: shown.length * 22 + 4, role: "img", "aria-label": "seconds of a round by phase and agent" });
  shown.forEach((row, i) => {
    let x = left;
    const total = row.spans.reduce((a, b) => a + b), y = i * 22 + 4;
    svg.append(make("text", { x: left - 8, y: y + 12, "text-anchor": "end" }, row.name.length > 13 ? row.name.slice(0, 12) + "…" : row.name));
    row.spans.forEach((seconds, p) => {
      const w = (width - left - 66) * seconds / (most || 1);
      svg.append(make("rect", { class: `fill c${p}`, x, y, width: w, height: 15 }, make("title", {}, `${PHASES[p]}: ${span(seconds)}`)));
      x += w;
    });
    svg.append(make("text", { x: x + 6, y: y + 12 }, span(total)));
  });
  box.replaceChildren(svg);
}

function drawPhasesOver() {
  const box = $("phasesOver");
  let rows = [...phaseSeconds.entries()].sort((a, b) => a[0] - b[0]).filter(([, v]) => v[0] > 0).map(([k, v]) => [k, v.slice(1).map((s) => s / v[0])]);
  if (rows.length < 2) { box.replaceChildren(make("p", { class: "none" }, "not known yet")); return; }
  const step = Math.ceil(rows.length / 240);
  if (step > 1) {  // means of neighbouring rows
    rows = rows.filter((_, i) => i % step === 0).map(([k], j) => {
      const part = rows.slice(j * step, (j + 1) * step);
      return [k, PHASES.map((_, p) => part.reduce((sum, [, v]) => sum + v[p], 0) / part.length)];
    });
  }
  const totals = rows.map(([, v]) => v.reduce((a, b) => a + b)), sorted = totals.slice().sort((a, b) => a - b);
  const high = Math.min(sorted.at(-1), 3 * sorted[sorted.length >> 1]) * 1000;  // one slow round does not flatten the rest
  const width = Math.max(280, box.clientWidth), { svg, x, y } = axes(box, width, 210, Math.max(run.K, rows.at(-1)[0]), 0, high, false, 46);
  svg.setAttribute("aria-label", "milliseconds of a round by phase, over rounds");
  const base = rows.map(() => 0);
  PHASES.forEach((_, p) => {
    const low = base.slice();
    rows.forEach(([, v], i) => { base[i] += v[p] * 1000; });
    const point = (i, v) => `${x(rows[i][0]).toFixed(1)} ${y(Math.min(v, high)).toFixed(1)}`;
    const up = base.map((v, i) => point(i, v)).join("L"), down = low.map((v, i) => point(i, v)).reverse().join("L");
    svg.append(make("path", { class: `fill c${p}`, d: `M${up}L${down}Z` }));
  });
  svg.append(make("text", { x: 46, y: 6 }, "ms a round"));
}

// --- words -----------------------------------------------------------------------------------------------------
function worst(key) {
  const known = state.agents.map((a) => a[key] === "inf" ? Infinity : a[key]).filter((v) => v !== null && v !== undefined);
  return known.length ? Math.max(...known) : undefined;
}

function tile(question, value, sub, kind = "", share = null) {
  const shown = make("div", { class: `tile ${kind}` }, make("dt", {}, question), make("dd", { class: "value" }, value));
  if (share !== null && Number.isFinite(share)) {
    const bar = make("div", { class: "bar" }, make("i", {}));
    bar.firstChild.style.width = `${Math.min(100, 100 * share)}%`;
    shown.append(bar);
  }
  shown.append(make("dd", { class: "sub" }, sub));
  return shown;
}

function drawTiles() {
  const here = state.agents.filter((a) => a.connected).length, n = state.agents.length;
  const eta = state.state === "running" && state.rounds_per_second > 0 ? (state.K - state.k) / state.rounds_per_second : null;
  const shown = [
    tile("Round", `${number(Math.max(0, state.k))} of ${number(state.K)}`, eta === null ? state.state : `${span(eta)} left`),
    tile("Rounds a second", state.state === "running" || (state.over && state.rounds_per_second > 0) ? number(state.rounds_per_second) : "–", state.over ? "on average" : state.slowest ? `${state.slowest.agent}: ${state.slowest.phase} ${span(state.slowest.seconds)}` : ""),
    state.over ? tile("Agents", number(n), state.state) : tile("Agents here", `${here} of ${n}`, here === n ? "everybody" : "see below", here === n ? "" : "bad"),
  ];
  const spent = worst("epsilon"), total = worst("epsilon_of_run"), most = state.agents.find((a) => a.epsilon !== null && (a.epsilon === "inf" ? Infinity : a.epsilon) === spent);
  if (spent === undefined) shown.push(tile("Epsilon", "none", "no accountant has a value"));
  else shown.push(tile(state.head || "Epsilon", number(spent), `${total === undefined ? "so far" : `of ${number(total)} that the run costs`}; ${most.strength === "none" ? "no protection" : most.strength}`, most.strength === "none" ? "bad" : "", Number.isFinite(total) && total > 0 ? spent / total : null));
  const accuracies = state.agents.map((a) => a.accuracy_test).filter((v) => v !== null);
  if (accuracies.length) shown.push(tile("Test accuracy", `${(100 * median(accuracies)).toFixed(1)} %`, `worst ${(100 * Math.min(...accuracies)).toFixed(1)} %`));
  else shown.push(tile("Test accuracy", run.study ? "–" : "local", run.study ? "no classes, or none yet" : "it stays with the agents"));
  $("tiles").replaceChildren(...shown);
}

function drawAlarms() {
  const said = [];
  if (silentSince !== null && overSince === null) said.push(`No answer from the coordinator for ${span((Date.now() - silentSince) / 1e3)}. It has ended (dpgt status --run DIR says how), or it is being started again. This page goes on by itself.`);
  if (state) {
    const until = state.gives_up_s === null ? "" : ` The run ends in ${span(state.gives_up_s)} unless they come.`;
    const missing = state.agents.filter((a) => a.missing_s !== null);
    if (missing.length && !state.over) {
      const more = missing.length > 8 ? ` and ${missing.length - 8} more` : "";
      said.push(`Missing: ${missing.slice(0, 8).map((a) => `${a.name} for ${span(a.missing_s)}`).join(", ")}${more}.${until}`);
    } else if (state.agents.some((a) => ["cut", "slow"].includes(a.state))) said.push(state.reason + "." + until);
    else if (state.reason && !["running", "waiting", "finished"].includes(state.state)) said.push(`${state.state}: ${state.reason}`);
    if (state.delta_warning) said.push(state.delta_warning);
  }
  $("alarms").replaceChildren(...said.map((text) => make("p", { class: "warning" }, text)));
  if (overSince === null) return;
  const end = make("p", { class: "ended" }, `The run ended: ${state.state} at ${overSince.toLocaleTimeString("en-GB")}, round ${number(Math.max(0, state.k))} of ${number(state.K)}. This page stays as it is; the report is report.html in the run's folder.`);
  $("alarms").prepend(end);
}

function drawAgents() {
  const n = state.agents.length;
  let shown = state.agents;
  if (n > ROWS) {
    const trouble = (a) => (a.missing_s !== null ? 3 : a.state !== "here" ? 2 : a.waits_for.length ? 1 : 0);
    shown = shown.slice().sort((a, b) => trouble(b) - trouble(a) || a.k - b.k || (a.accuracy_test ?? 1) - (b.accuracy_test ?? 1)).slice(0, ROWS);
  }
  $("noteAgents").textContent = n > ROWS ? `${ROWS} of ${n}: who is missing or late, then who is behind, then the worst.` : "";
  const waits = shown.some((a) => a.waits_for.length);
  const head = ["agent", "state", "round", ...(waits ? ["waits for"] : []), "accuracy", "epsilon"];
  const rows = shown.map((a) => make("tr", {}, make("td", {}, a.name),
    make("td", { class: a.state === "here" || state.over ? "" : "bad" }, state.over ? state.state : a.missing_s !== null ? `${a.state}, ${span(a.missing_s)}` : a.state),
    make("td", {}, a.k < 0 ? "–" : String(a.k)),
    ...(waits ? [make("td", {}, a.waits_for.slice(0, 3).join(", ") + (a.waits_for.length > 3 ? ", …" : ""))] : []),
    make("td", {}, a.accuracy_test === null ? (run.study ? "–" : "local") : `${(100 * a.accuracy_test).toFixed(1)} %`),
    make("td", {}, a.epsilon === null ? "–" : `${number(a.epsilon)} (${a.strength})`)));
  $("agents").replaceChildren(make("tr", {}, ...head.map((text) => make("th", {}, text))), ...rows);
}

function drawEvents() {
  const lines = state.events.slice().reverse().map(([wall, level, text]) => {
    const when = new Date(wall * 1e3);
    return make("li", { class: level }, make("time", { datetime: when.toISOString() }, when.toLocaleTimeString("en-GB")), make("span", {}, text));
  });
  $("events").replaceChildren(...(lines.length ? lines : [make("li", {}, "", "none yet")]));
}

function draw() {
  drawAlarms();
  if (!state) return;
  document.title = `${state.state === "running" ? `${state.k}/${state.K}` : state.state} · ${run.name}`;
  const known = silentSince === null || state.over;
  $("state").textContent = known ? state.state : "no answer";
  $("state").className = `badge ${known ? state.state : ""}`;
  const share = Math.max(0, state.k + 1) / (state.K + 1), bar = $("progress");
  bar.firstElementChild.style.width = `${100 * share}%`;
  bar.setAttribute("aria-valuenow", String(Math.round(100 * share)));
  $("lead").textContent = `${run.agents.length} agents, ${run.method}, mechanism ${run.mechanism}, ${run.channel}. ${state.adjacency ? "Adjacent data sets: " + state.adjacency + "." : ""}`;
  drawTiles();
  const late = new Set(), tone = state.agents.map((a) => (state.over ? "here" : ["left", "silent", "cut", "slow"].includes(a.state) ? "late" : a.connected ? "here" : "absent"));
  if (!state.over) state.agents.forEach((a, i) => a.waits_for.forEach((from) => late.add(`${run.index[from]}>${i}`)));
  for (const which of ["R", "C"]) {
    const count = drawGraph($(`graph${which}`), run[which], late, tone);
    $(`note${which}`).textContent = `${run[which].length} edges${count ? `, ${count} late` : ""}${run.agents.length > ARROWS ? ", drawn without arrows" : ""}`;
  }
  drawCurves();
  drawPhases();
  drawPhasesOver();
  drawAgents();
  drawEvents();
}

function keys() {
  const item = (kind, text) => make("li", {}, make("span", { class: `swatch ${kind}` }), text);
  const shown = [item("dot here", "agent, here"), item("dot open", "not here yet"), item("dot late", "missing, cut off or slow"), item("late thick", "an edge whose vectors are late")];
  if (run.agents.length <= LINES) shown.push(...run.agents.map((name, i) => item(`thick c${i % 8}`, name)));
  $("key").replaceChildren(...shown);
  $("phasekey").replaceChildren(...PHASES.map((name, i) => item(`thick c${i}`, name)));
  $("study").textContent = run.study ? "This is a study: agents send metrics and private states to the coordinator, which no epsilon covers." : "Metrics stay with the agents.";
  $("name").textContent = run.name;
}

async function look() {
  try {
    if (!run) {
      const found = await (await fetch("graph.json")).json();
      found.index = Object.fromEntries(found.agents.map((name, i) => [name, i]));
      run = found;
      keys();
    }
    state = await (await fetch(`state.json?page=${PAGE}&every=${every()}`)).json();
    overSince = state.over ? overSince ?? new Date() : null;
    silentSince = null;
    await Promise.all(tails.map((tail) => tail.follow()));
  } catch (error) {
    silentSince ??= Date.now();
    if (!(error instanceof TypeError)) console.error(error);
  }
  try {
    draw();
  } finally {
    if (!(state && state.state === "finished")) setTimeout(look, every());
  }
}

addEventListener("resize", () => { if (run && state) draw(); });
look();

"use strict";
/* The page for people. It reads /page.json and /routes.json again and again, and shows what they say.

   Names of objects are chosen by strangers: everything goes into the page as text (textContent), never as HTML, and no
   address of a link is made of it. */

const OVERVIEW_EVERY_MS = 2000;
const ROUTES_EVERY_MS = 10000;
const PATIENCE_MS = 15000;
const OLD_MS = 10000;
const ROWS = 100;
const HEIGHT = 150;
const HOUR_S = 3600;
const MARKS = { bad: "\u2715", warning: "!", good: "\u2713" };
const LEVELS = { bad: "Bad", warning: "Warning", good: "Good" };

const byId = (id) => document.getElementById(id);

/* The clock of the daemon, as far as this one is wrong; the header Date has whole seconds. */
let clockAheadS = 0;
let answeredAt = 0;
/* A page that nobody sees asks nothing: that makes it no stale one when it is looked at again. */
let seenSince = Date.now();
/* Of a page off loopback: kept while the tab is open, sent in a header, never in an address. */
let token = sessionStorage.getItem("token") || "";
let locked = false;
let overview = null;
let routes = null;
let shownRows = ROWS;
let sort = { column: "requests", descending: true };
const opened = new Map();
const plots = new Map();

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function now() {
  return Date.now() / 1000 - clockAheadS;
}

function duration(seconds) {
  const left = Math.max(0, seconds);
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (left >= size) return `${Math.floor(left / size)} ${unit}`;
  }
  return `${Math.floor(left)} s`;
}

function ago(at) {
  return `${duration(now() - at)} ago`;
}

function rate(value) {
  if (!value) return "0";
  return value >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(2)));
}

function latency(seconds) {
  if (seconds === null || seconds === undefined) return "\u2013";
  if (seconds >= 5) return "\u2265 5 s";
  return seconds >= 1 ? `${seconds.toFixed(1)} s` : `${Number((seconds * 1000).toPrecision(2))} ms`;
}

function ask(path, headers, patienceMs) {
  const all = token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
  return fetch(path, { headers: all, cache: "no-store", signal: AbortSignal.timeout(patienceMs) });
}

/* Nothing is asked, and nothing shown, until there is a token; an answer to a former token says nothing of this one. */
function lock(asked) {
  if (locked || asked !== token) return;
  locked = true;
  byId("token-wrong").textContent = token ? "This token is not, or no longer, the right one." : "";
  for (const [id, hidden] of [["token-form", false], ["main", true], ["stale", true]]) byId(id).hidden = hidden;
  byId("age").textContent = "";
  byId("token").focus();
}

function unlock(given) {
  token = given;
  sessionStorage.setItem("token", token);
  locked = false;
  byId("token").value = "";
  for (const [id, hidden] of [["token-form", true], ["main", false]]) byId(id).hidden = hidden;
  seenSince = Date.now();
  for (const poll of polls) poll.ask();
}

/* One path that is asked again and again; an answer that did not change costs a line of headers. */
class Poll {
  constructor(path, everyMs, show) {
    this.path = path;
    this.everyMs = everyMs;
    this.show = show;
    this.etag = "";
    this.timer = 0;
    this.asking = false;
  }

  async ask() {
    if (this.asking || locked) return;
    this.asking = true;
    clearTimeout(this.timer);
    const asked = token;
    try {
      const headers = this.etag ? { "If-None-Match": this.etag } : {};
      const answer = await ask(this.path, headers, PATIENCE_MS);
      if (answer.status === 401) {
        lock(asked);
        return;
      }
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
        const found = await answer.json();
        this.etag = answer.headers.get("ETag") || "";
        this.show(found);
      }
      answeredAt = Date.now();
      const date = Date.parse(answer.headers.get("Date") || "");
      if (date && Math.abs(Date.now() - date) / 1000 > 2) clockAheadS = (Date.now() - date) / 1000;
    } catch (error) {
      /* The daemon may restart: the page shows how old it is, and asks again. */
    } finally {
      this.asking = false;
      showAge();
      if (!document.hidden && !locked) this.timer = setTimeout(() => this.ask(), this.everyMs);
    }
  }
}

/* An element with an age in it, which is written again each second. */
function aged(tag, at, words, className) {
  const made = element(tag, words(at), className);
  made.title = new Date(at * 1000).toLocaleString();
  made.dataset.at = String(at);
  made.aged = words;
  return made;
}

function showAges() {
  for (const each of document.querySelectorAll("[data-at]")) {
    const words = each.aged(Number(each.dataset.at));
    if (each.textContent !== words) each.textContent = words;
  }
}

function showAge() {
  if (locked) return;
  const age = answeredAt ? Date.now() - answeredAt : Infinity;
  const stale = Math.min(age, Date.now() - seenSince) >= OLD_MS;
  const alert = byId("stale");
  if (stale) {
    const since = answeredAt ? ` for ${duration(age / 1000)}; all below is as of ${new Date(answeredAt).toLocaleTimeString()}` : "";
    const words = `pyconfd does not answer${since}. HAProxy serves on without it. Type: systemctl status pyconfd`;
    /* Announced once, not each second. */
    alert.setAttribute("aria-live", alert.hidden ? "assertive" : "off");
    alert.textContent = words;
  }
  alert.hidden = !stale;
  showHeadline(stale);
  if (answeredAt) byId("age").textContent = stale ? `${duration(age / 1000)} old` : "live";
}

function fact(list, name, value) {
  const row = element("div");
  row.append(element("dt", name), value instanceof Node ? value : element("dd", value));
  list.append(row);
}

function showOverview(found) {
  overview = found;
  showHeadline(false);
  showFacts();
  showFloating();
  showNodes();
  showTraffic();
  showFindings();
  showChanges();
  byId("version").textContent = `pyconfd ${overview.version}, pid ${overview.pid}`;
}

/* What is old is never shown as if it were so now. */
function showHeadline(stale) {
  if (!overview) return;
  const { headline } = overview;
  const mark = stale ? "?" : MARKS[headline.level];
  const sentence = stale ? `? Not known now. Last: ${headline.sentence}.` : `${mark} ${headline.sentence}.`;
  byId("headline").className = `headline ${stale ? "old" : headline.level}`;
  if (byId("sentence").textContent !== sentence) byId("sentence").textContent = sentence;
  byId("headline-command").hidden = stale || !headline.command;
  byId("headline-command").textContent = headline.command;
  document.title = `${mark} pyconfd: ${overview.phase.replaceAll("_", " ")}`;
}

function showFacts() {
  const list = byId("facts");
  list.replaceChildren();
  const { generation, api_servers: [healthy, servers] } = overview;
  if (generation) {
    const words = (at) => `${generation.number}, applied ${ago(at)}${generation.verified ? ", verified" : ", not verified"}`;
    fact(list, "Generation", aged("dd", generation.at, words));
  }
  if (overview.pending_since) fact(list, "A change waits", aged("dd", overview.pending_since, (at) => `for ${duration(now() - at)}`));
  if (overview.hosts !== null) fact(list, "Names", overview.hosts.toLocaleString("en"));
  if (servers) fact(list, "API servers", `${healthy} of ${servers} answer`);
  if (overview.former_workers) fact(list, "Former workers", String(overview.former_workers));
  fact(list, "Up", aged("dd", overview.started_at, (at) => `for ${duration(now() - at)}`));
}

function showFloating() {
  const { floating } = overview;
  byId("floating-section").hidden = floating === null;
  if (floating === null) return;
  const list = byId("floating");
  list.replaceChildren();
  if (!floating.routers.length) list.append(element("li", "Not known: pyconfd-vip has left no report. Type: systemctl status pyconfd-vip"));
  for (const router of floating.routers) {
    const row = element("li");
    row.append(element("strong", router.addresses.join(", ")));
    const who = router.here ? "this node is the holder" : `this node is a backup, the holder is ${router.holder || "not heard of"}`;
    row.append(aged("span", router.since, (at) => ` \u2013 ${who}, for ${duration(now() - at)}`));
    if (router.ails.length) row.append(element("span", router.ails.join(", "), "badge bad"));
    list.append(row);
  }
  if (floating.old_since) list.append(aged("li", floating.old_since, (at) => `pyconfd-vip wrote this ${ago(at)}: it may be otherwise now`));
}

function showNodes() {
  const { nodes } = overview;
  byId("nodes-section").hidden = !nodes.length;
  const list = byId("nodes");
  list.replaceChildren();
  for (const node of nodes) {
    const row = element("li");
    row.append(element("strong", node.name));
    if (node.here) row.append(element("span", " \u2013 this one"));
    else row.append(aged("span", node.heard_at, (at) => node.silent ? ` \u2013 not heard for ${duration(now() - at)}` : ` \u2013 heard ${ago(at)}`));
    const holds = node.holds === null ? "" : node.holds ? ", has the floating address" : ", without the floating address";
    row.append(element("span", `, version ${node.version}${holds}. ${node.silent ? "It said: " : ""}${node.sentence}`));
    if (node.silent) row.append(element("span", "silent", "badge bad"));
    for (const difference of node.differences) row.append(element("div", difference, "faint"));
    list.append(row);
  }
}

function showFindings() {
  const list = byId("wrong");
  byId("wrong-heading").textContent = `What is wrong now (${overview.findings_total.toLocaleString("en")})`;
  list.replaceChildren();
  for (const each of overview.findings) {
    const row = element("li");
    const head = element("p");
    const mark = element("span", MARKS[each.level], `mark ${each.level}`);
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", LEVELS[each.level]);
    head.append(mark, element("span", each.about, "about"));
    row.append(head, element("p", each.text));
    if (each.remedy) row.append(element("p", `To do: ${each.remedy}`));
    if (each.command) row.append(element("p", each.command, "command"));
    list.append(row);
  }
  const more = overview.findings_total - overview.findings.length;
  if (more > 0) list.append(element("li", `... and ${more.toLocaleString("en")} more: pyconfd explain --all-refused`));
  if (!overview.findings_total) list.append(element("li", "Nothing.", "faint"));
}

function showChanges() {
  const list = byId("changes");
  list.replaceChildren();
  for (const each of overview.changes) {
    const row = element("li");
    row.append(element("p", each.text), aged("p", each.at, ago, "faint"));
    list.append(row);
  }
  if (!overview.changes.length) list.append(element("li", "Nothing was changed yet.", "faint"));
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const REQUESTS = [["requests", "--one"], ["5xx", "--two", [4, 3]]];
const LATENCIES = [["p50", "--one"], ["p99", "--two", [4, 3]]];

function plotOf(place, series, format) {
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const line = ([label, name, dash]) => ({
    label, stroke: colour(name), width: 2, dash, points: { show: (plot) => plot.data[0].length < 3 },
    value: (_, value) => (value === null || value === undefined ? "\u2013" : format(value)),
  });
  return new uPlot({
    width: place.clientWidth || 300,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { range: (_, low, high) => [high - HOUR_S, high] }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1e-3)] } },
    axes: [
      { ...axis, values: "{HH}:{mm}", space: 60, size: 28 },
      { ...axis, size: 64, values: (_, values) => values.map(format) },
    ],
    series: [{}, ...series.map(line)],
  }, null, place);
}

function last(values) {
  return values.length ? values[values.length - 1] : null;
}

function showTraffic() {
  const { traffic } = overview;
  const known = traffic.at.length > 0;
  byId("plots").hidden = !known;
  byId("traffic-sum").hidden = !known;
  byId("traffic-none").hidden = known;
  if (!known) return;
  const errors = traffic.requests_total ? (100 * traffic.errors_total) / traffic.requests_total : 0;
  byId("traffic-sum").textContent =
    `${traffic.requests_total.toLocaleString("en")} requests in ${duration(traffic.seconds)}, ${Number(errors.toPrecision(2))} % of them answered with 5xx`;
  byId("requests-caption").textContent = requestsCaption(traffic);
  byId("latency-caption").textContent = latencyCaption(traffic);
  draw("requests-plot", [traffic.at, traffic.requests, traffic.errors], REQUESTS, rate);
  draw("latency-plot", [traffic.at, traffic.p50, traffic.p99], LATENCIES, latency);
}

function requestsCaption(traffic) {
  return `Now ${rate(last(traffic.requests))} requests/s (solid), ${rate(last(traffic.errors))} of 5xx (dashed)`;
}

function latencyCaption(traffic) {
  return `First byte after ${latency(last(traffic.p50))} (p50, solid), ${latency(last(traffic.p99))} (p99, dashed)`;
}

/* A plot of one route, of the moment when it was asked for; its place has to be on the page first. */
function figureOf(caption, data, series, format) {
  const figure = element("figure");
  const place = element("div", "", "plot");
  place.role = "img";
  place.ariaLabel = caption;
  figure.append(element("figcaption", caption), place);
  return [figure, () => plotOf(place, series, format).setData(data)];
}

function draw(id, data, series, format) {
  const width = byId(id).clientWidth;
  let plot = plots.get(id);
  if (!plot) {
    plot = plotOf(byId(id), series, format);
    plots.set(id, plot);
  } else if (plot.width !== width && width) {
    plot.setSize({ width, height: HEIGHT });
  }
  plot.setData(data);
}

function redraw() {
  for (const plot of plots.values()) plot.destroy();
  plots.clear();
  if (overview) showTraffic();
}

/* Hosts and routes. */

function showRoutes(found) {
  const { columns } = found;
  routes = {
    seconds: found.seconds,
    rows: found.rows.map((row) => Object.fromEntries(columns.map((name, place) => [name, row[place]]))),
  };
  for (const row of routes.rows) row.words = `${row.backend} ${row.kind} ${row.namespace}/${row.name}`.toLowerCase();
  showRows();
}

function compared(one, other) {
  const { column, descending } = sort;
  const of = (row) => (column === "requests" && !row.http ? row.connections : row[column]) ?? -1;
  const [first, second] = [of(one), of(other)];
  let order = typeof first === "string" ? first.localeCompare(second) : first - second;
  if (descending) order = -order;
  return order || one.backend.localeCompare(other.backend);
}

function showRows() {
  if (!routes) return;
  const wanted = byId("search").value.trim().toLowerCase();
  const words = wanted.split(/\s+/).filter(Boolean);
  const found = routes.rows.filter((row) => words.every((word) => row.words.includes(word))).sort(compared);
  const focused = document.activeElement?.dataset?.backend;
  const body = byId("routes-body");
  body.replaceChildren(...found.slice(0, shownRows).flatMap(rowsOf));
  if (focused !== undefined) {
    [...body.querySelectorAll("button.route")].find((each) => each.dataset.backend === focused)?.focus({ preventScroll: true });
  }
  const many = (number) => `${number.toLocaleString("en")} ${number === 1 ? "route" : "routes"}`;
  const period = routes.seconds ? `figures of the last ${duration(routes.seconds)}` : "figures come with the next reading, in half a minute";
  const none = found.length ? "" : ". Press Enter to ask why it is not there";
  const summary = `${wanted ? `${many(found.length)} of ${many(routes.rows.length)}` : many(routes.rows.length)}; ${period}${none}`;
  if (byId("routes-summary").textContent !== summary) byId("routes-summary").textContent = summary;
  byId("routes-table").hidden = !found.length;
  byId("more").hidden = found.length <= shownRows;
  byId("more").textContent = `Show ${Math.min(ROWS, found.length - shownRows)} more`;
  for (const head of document.querySelectorAll("th[data-sort]")) {
    const mine = head.dataset.sort === sort.column;
    if (mine) head.setAttribute("aria-sort", sort.descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
}

/* A part of the table; as cards on a phone it would be no table for screen readers without a role. */
function part(tag, role, text, className) {
  const made = element(tag, text, className);
  made.setAttribute("role", role);
  return made;
}

function rowsOf(row) {
  const line = part("tr", "row");
  const name = part("td", "cell");
  const button = element("button", row.backend, "route");
  button.type = "button";
  button.dataset.backend = row.backend;
  button.setAttribute("aria-expanded", String(opened.has(row.backend)));
  button.addEventListener("click", () => toggle(row.backend));
  name.append(button);
  if (row.down) name.append(element("span", "no server up", "badge bad"));
  if (row.refused) name.append(element("span", `${row.refused} refused`, "badge warning"));
  if (row.kind) name.append(element("div", `${row.kind} ${row.namespace}/${row.name} ${row.rule}`, "owner"));
  line.append(name);
  const figure = (label, text, className = "") => {
    const cell = part("td", "cell", text, `number ${className}`);
    cell.dataset.label = label;
    line.append(cell);
  };
  if (row.http) figure("requests/s", rate(row.requests));
  else figure("connections/s", `${rate(row.connections)} conn.`);
  figure("5xx/s", row.http ? rate(row.errors) : "\u2013", row.errors ? "error" : "");
  figure("p50", latency(row.p50));
  figure("p99", latency(row.p99));
  figure("sessions", row.sessions.toLocaleString("en"));
  if (!opened.has(row.backend)) return [line];
  const below = part("tr", "row");
  const cell = part("td", "cell");
  cell.colSpan = 6;
  cell.append(opened.get(row.backend));
  below.append(cell);
  return [line, below];
}

function toggle(backend) {
  if (opened.has(backend)) {
    opened.delete(backend);
  } else {
    const place = element("div", "Asking ...", "details");
    opened.set(backend, place);
    explainRoute(routes.rows.find((row) => row.backend === backend) || { backend }, place);
  }
  showRows();
}

async function json(path, parameters) {
  const answer = await ask(`${path}?${new URLSearchParams(parameters)}`, {}, 35000);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

function explained(query) {
  return json("explain", query.includes(":/" + "/") ? { url: query } : { q: query });
}

async function explain(query, place) {
  try {
    place.replaceChildren(...explanation(await explained(query)));
  } catch (error) {
    place.replaceChildren(element("p", `No explanation: ${error.message}`));
  }
}

/* One route: its way from the listener to the pods, and what is known of it; what is slow comes into its place later. */
async function explainRoute(row, place) {
  try {
    const found = await explained(`backend ${row.backend}`);
    const claims = found.claims || [];
    const names = claims.flatMap((claim) => claim.names || []);
    const hosts = names.map((name) => name.split("/")[0]).filter((name) => name.includes(".") && !/[\s:]/.test(name));
    const listener = element("span", row.http && hosts.length ? "..." : "TCP");
    const about = element("div", "Asking for certificate, changes and errors ...");
    place.replaceChildren(way(row, found, names, listener), ...explanation(found), about);
    await Promise.all([nameListener(row, hosts, names, listener), showRecent(row, claims, hosts, about)]);
  } catch (error) {
    place.replaceChildren(element("p", `No explanation: ${error.message}`));
  }
}

function serversOf(found) {
  return found.servers?.length ? found.servers : (found.claims || []).flatMap((claim) => claim.servers || []);
}

function way(row, found, names, listener) {
  const made = element("ol", undefined, "way");
  made.setAttribute("role", "list");
  made.setAttribute("aria-label", `The way of a request to ${row.backend}`);
  const stop = (label, text, level = "") => {
    const item = element("li");
    const box = element("span", undefined, `stop ${level}`);
    box.append(element("b", label), text instanceof Node ? text : document.createTextNode(text));
    item.append(box);
    made.append(item);
  };
  const more = (all) => (all.length > 1 ? `${all[0]} and ${all.length - 1} more` : all[0] || "\u2013");
  const bad = (claim) => (claim.conditions || []).some((each) => each.status !== "True");
  const claims = found.claims || [];
  stop("Listener", listener);
  stop("Host and path", more(names));
  stop("Object", more(claims.map((claim) => claim.object)), claims.some(bad) ? "warning" : "");
  stop("Backend", row.backend, row.down ? "bad" : "");
  const servers = serversOf(found);
  const states = new Map();
  for (const server of servers) states.set(server.state || "not asked", (states.get(server.state || "not asked") || 0) + 1);
  const words = [...states].map(([state, count]) => `${count} ${state}`).join(", ") || "none";
  const level = !servers.length || !states.get("up") ? "bad" : states.size > 1 ? "warning" : "good";
  stop("Servers", words, level);
  return made;
}

async function nameListener(row, hosts, names, place) {
  if (!row.http || !hosts.length) return;
  try {
    const asked = names.find((name) => name.startsWith(hosts[0])) || hosts[0];
    const path = asked.includes("/") ? asked.slice(asked.indexOf("/")).split(" ")[0] : "/";
    let step;
    for (const scheme of ["http", "https"]) {
      if (step) break;
      const found = await explained(`${scheme}:/${"/"}${hosts[0].replace("*", "any")}${path}`);
      step = (found.request?.steps || []).find((each) => each.part === "listener");
    }
    place.textContent = step ? step.text : "at other ports than 80 and 443";
  } catch (error) {
    place.textContent = "not known";
  }
}

async function showRecent(row, claims, hosts, place) {
  try {
    const objects = claims.slice(0, 20).map((claim) => ["object", claim.object]);
    const found = await json("route.json", [["backend", row.backend], ...objects, ...hosts.slice(0, 20).map((host) => ["host", host])]);
    const { traffic } = found;
    const parts = [];
    const figures = traffic.at.length
      ? [
        figureOf(requestsCaption(traffic), [traffic.at, traffic.requests, traffic.errors], REQUESTS, rate),
        figureOf(latencyCaption(traffic), [traffic.at, traffic.p50, traffic.p99], LATENCIES, latency),
      ]
      : [];
    if (figures.length) {
      const both = element("div", "", "plots");
      both.append(...figures.map(([figure]) => figure));
      parts.push(element("h4", "Its last hour"), both);
    }
    if (found.certificates.length) {
      parts.push(element("h4", "Certificates"), list(found.certificates.map(certificateWords)));
    }
    parts.push(element("h4", "Its last changes"));
    parts.push(found.changes.length ? list(found.changes.map((each) => `${ago(each.at)}: ${each.text}`)) : element("p", "None that is still known.", "faint"));
    parts.push(element("h4", "Its last errors, newest first"));
    parts.push(found.errors.length ? list(found.errors) : element("p", found.errors_note || "None in HAProxy's memory.", "faint"));
    place.replaceChildren(...parts);
    for (const [, drawn] of figures) drawn();
  } catch (error) {
    place.replaceChildren(element("p", `Certificate, changes and errors are not known: ${error.message}`));
  }
}

function certificateWords(each) {
  const days = (each.not_after - now()) / 86400;
  const left = !each.not_after ? "its end is not known" : days < 0 ? `expired ${Math.ceil(-days)} days ago` : `${Math.floor(days)} days left`;
  return `${each.host || "default"}: Secret ${each.of}, ${left}`;
}

/* What few look at: asked for while it is open. */

let behindTimer = 0;

async function showBehind() {
  clearTimeout(behindTimer);
  if (!byId("behind").open) return;
  try {
    const found = await json("more.json", {});
    showGenerations(found.generations);
    byId("behind-parts").replaceChildren(...behindParts(found));
  } catch (error) {
    byId("behind-parts").replaceChildren(element("p", `Not known: ${error.message}`));
  }
  if (!document.hidden) behindTimer = setTimeout(showBehind, ROUTES_EVERY_MS);
}

function behindParts(found) {
  const part = (title, lines, none, total = lines.length) => {
    const made = element("div");
    made.append(element("h3", total === null || !total ? title : `${title} (${total.toLocaleString("en")})`));
    made.append(lines.length ? list(lines) : element("p", none, "faint"));
    if (total > lines.length) made.append(element("p", `... and ${(total - lines.length).toLocaleString("en")} more`, "faint"));
    return made;
  };
  const former = found.former_workers;
  const workers = former.count
    ? [`${former.count} with ${former.connections} connections, the oldest for ${duration(now() - former.oldest_since)}${former.last_ends_at ? `, the last ends in ${duration(former.last_ends_at - now())}` : ""}`]
    : [];
  if (former.ended) workers.push(former.ended);
  return [
    part("Generations", found.generations.map(generationWords), "None yet."),
    part("Held changes", found.held.map((each) => `${each.text} Type: ${each.command}`), "None."),
    part("Quarantine", found.quarantine.map((each) => `${each.about} for ${duration(now() - each.since)}: ${each.text}`), "Nothing.", found.quarantine_total),
    part("Former workers", workers, "None."),
    part("API servers", found.api_servers.map((each) => `${each.url} ${each.healthy ? "up" : "down"}${each.in_use ? ", in use" : ""}${each.last_ok_at ? `, answered ${ago(each.last_ok_at)}` : ""}${each.error ? `: ${each.error}` : ""}`), "None."),
    part("Certificates, the first to end first", found.certificates.map(certificateWords), "None.", found.certificates_total),
    part("Names in DNS", found.dns_names, found.dns_names_total === null ? "Not published by this pyconfd." : "None.", found.dns_names_total),
    part("Targets", found.targets.map((each) => [`${each.name} ${each.phase.replaceAll("_", " ")}`, each.applied_at ? `applied ${ago(each.applied_at)}` : "nothing applied", ...each.problems].join(", ")), "None."),
  ];
}

function generationWords(each) {
  const marks = [each.running ? "running" : "", each.pinned ? "pinned" : ""].filter(Boolean).join(", ");
  return `${each.number}${marks ? ` (${marks})` : ""}, ${ago(each.at)}: ${each.how}${each.by ? `, by ${each.by}` : ""}`;
}

/* What is chosen stays chosen while it is there. */
function showGenerations(generations) {
  const numbers = generations.map((each) => String(each.number));
  byId("diff-form").hidden = numbers.length < 2;
  for (const [id, first] of [["diff-from", numbers[1]], ["diff-to", numbers[0]]]) {
    const select = byId(id);
    const chosen = numbers.includes(select.value) ? select.value : first;
    if (select.dataset.numbers === numbers.join()) continue;
    select.dataset.numbers = numbers.join();
    select.replaceChildren(...numbers.map((number) => element("option", number)));
    if (chosen) select.value = chosen;
  }
}

async function compare() {
  const place = byId("difference");
  place.replaceChildren(element("p", "Asking ..."));
  try {
    const found = await json("diff.json", { from: byId("diff-from").value, to: byId("diff-to").value });
    const parts = [found.sentences.length ? list(found.sentences) : element("p", found.only_hidden ? "Only what is hidden differs: passwords." : "Nothing but comments, blanks or the order of sections.")];
    if (found.text.length) {
      const text = element("div", found.text.join("\n"), "text");
      text.tabIndex = 0;
      text.setAttribute("role", "region");
      text.setAttribute("aria-label", "Difference of the texts");
      parts.push(text);
    }
    if (!found.is_whole) parts.push(element("p", found.command, "command"));
    place.replaceChildren(...parts);
  } catch (error) {
    place.replaceChildren(element("p", `No difference: ${error.message}`));
  }
}

function list(items) {
  const made = element("ul");
  made.append(...items.map((text) => element("li", text)));
  return made;
}

function explanation(found) {
  const parts = [];
  if (found.subject) parts.push(element("h3", found.subject));
  if (found.request) {
    parts.push(element("h3", found.query), list(found.request.steps.slice(0, ROWS).map(stepWords)));
    for (const each of found.request.uncovered || []) parts.push(element("p", `Not covered: ${each}`));
  }
  if (found.candidates?.length) parts.push(element("p", "It may be one of these:"), list(found.candidates));
  if (found.looked_in?.length) {
    parts.push(element("p", `Not found in: ${found.looked_in.join(", ")}`));
    if (found.close?.length) parts.push(element("p", `Perhaps: ${found.close.join(", ")}`));
  }
  const servers = serversOf(found);
  for (const claim of found.claims || []) {
    parts.push(element("h3", claim.object));
    if (claim.names?.length) parts.push(element("p", `Serves: ${claim.names.join(", ")}`));
    parts.push(list((claim.conditions || []).map((each) => [`${each.type}=${each.status}`, each.reason === each.type ? "" : each.reason, each.message].filter(Boolean).join(" "))));
    if (claim.remedy) parts.push(element("p", `To do: ${claim.remedy}`));
  }
  if (servers.length) {
    parts.push(element("h4", `Servers (${servers.length.toLocaleString("en")})`), list(servers.slice(0, ROWS).map(serverWords)));
    if (servers.length > ROWS) parts.push(element("p", `... and ${servers.length - ROWS} more`));
  }
  for (const note of found.notes || []) parts.push(element("p", note));
  return parts.length ? parts : [element("p", "Nothing is refused or missing.")];
}

function stepWords(step) {
  const where = [step.object, step.field].filter(Boolean).join(", ");
  const result = step.part === "rule" && step.result ? ` ${step.result}` : "";
  return `${step.part}${result}: ${step.text}${where ? ` (${where})` : ""}`;
}

function serverWords(server) {
  const of = server.pod || server.object;
  const since = server.state_s >= 0 ? ` for ${duration(server.state_s)}` : "";
  const flags = ["held", "draining", "by_hand"].filter((name) => server[name]).map((name) => name.replace("_", " "));
  const more = [of, ...flags, server.why].filter(Boolean).join(", ");
  const where = server.name.endsWith(server.address) ? "" : ` ${server.address}`;
  return `${server.name}${where} ${server.state || "not asked"}${since}${more ? ` (${more})` : ""}`;
}

const polls = [
  new Poll("page.json", OVERVIEW_EVERY_MS, showOverview),
  new Poll("routes.json", ROUTES_EVERY_MS, showRoutes),
];

byId("search").addEventListener("input", () => {
  shownRows = ROWS;
  byId("explained").replaceChildren();
  showRows();
});
byId("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = byId("search").value.trim();
  if (!query) return;
  const place = element("div", "Asking ...", "details");
  byId("explained").replaceChildren(place);
  explain(query, place);
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (byId("token").value.trim()) unlock(byId("token").value.trim());
});
byId("behind").addEventListener("toggle", showBehind);
byId("diff-form").addEventListener("submit", (event) => {
  event.preventDefault();
  compare();
});
byId("more").addEventListener("click", () => {
  shownRows += ROWS;
  showRows();
});
for (const head of document.querySelectorAll("th[data-sort]")) {
  head.querySelector("button").addEventListener("click", () => {
    const column = head.dataset.sort;
    sort = { column, descending: sort.column === column ? !sort.descending : column !== "backend" };
    shownRows = ROWS;
    showRows();
  });
}
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.activeElement === byId("search")) return;
  event.preventDefault();
  byId("search").focus();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  seenSince = Date.now();
  for (const poll of polls) poll.ask();
  showBehind();
});
addEventListener("resize", () => { if (overview) showTraffic(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
setInterval(() => { showAges(); showAge(); }, 1000);
for (const poll of polls) poll.ask();

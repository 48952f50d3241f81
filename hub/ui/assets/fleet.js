// All clusters as tiles.

import { address, go, query } from "./app.js";
import { fleet, get, listen, paced, refusal, watch } from "./data.js";
import { h, link, put, say } from "./dom.js";
import { Labels, filters, isChosen, order, parse } from "./filters.js";
import { many, sentence, since } from "./words.js";

/** Tiles in one part of the page: the browser lays out those parts that are seen. */
const PART = 250;
/** How often labels are asked for again that are looked at, in milliseconds: nothing tells when they change. */
const RELABEL = 60000;
const FLAGS = {
  cordoned: "cordoned", "evictions-held": "evictions held", held: "held", fenced: "fenced (expected)",
  "certificate-ends-soon": "certificate ends", "removals-held": "removals held", "changes-held": "changes held",
  "version-skew": "versions differ",
};
const GROUPS = [["", "none"], ["region", "region"], ["link", "link class"], ["state", "state"], ["kubernetes", "Kubernetes"], ["agent", "agent version"]];

const flagged = (cluster) => fleet.flags.filter((_, bit) => cluster.flags & (1 << bit));

/** Whether a cluster is heard all the time: when, is told of the few alone that are shown closely. */
const isHeard = (cluster) => cluster.state === "ready" && cluster.template.includes("heard");

/** What a cluster is like, in a few words. */
export function words(cluster) {
  if (!isHeard(cluster)) return sentence(cluster.template, cluster.at);
  const heard = fleet.heard[cluster.name];
  return heard ? sentence(cluster.template, heard) : "Ready";
}

/** Whether what its tile says is another after a while. */
const ages = (cluster) => cluster.template.includes("{age}") && (!isHeard(cluster) || Boolean(fleet.heard[cluster.name]) || aged.has(cluster.name));

function badges(cluster) {
  const all = flagged(cluster).map((flag) => FLAGS[flag]);
  if (cluster.failed) all.push(`${cluster.failed} failed`);
  if (cluster.waiting) all.push(`${cluster.waiting} waiting`);
  return all;
}

let chosen = {};
// What is searched for, and the labels that this or the groups are by.
let sought = parse("");
let labels = new Labels();
// Asks for them again, when there are other clusters and now and then.
let relabel = null;
let tiles = new Map();
// By name: who is in a group, and where it says how they are; and in which each cluster is.
let groups = new Map();
let inGroup = new Map();
let parts = [];
// Whose tiles say when they were heard.
let aged = new Set();
let counts;
let grid;
let summary;
let choice;
let stop;
let release = () => {};
// Whether this view is still the one that is seen.
let isSeen = () => false;
let seen;
let roving = null;
// Whether the hub had read everything, as it is shown.
let synced = false;

function wanted(cluster) {
  const { state, flag } = chosen;
  if (state && cluster.state !== state) return false;
  if (flag === "failed" || flag === "waiting") {
    if (!cluster[flag]) return false;
  } else if (flag && !flagged(cluster).includes(flag)) return false;
  if (!isChosen(cluster, chosen)) return false;
  if (sought.words.length) {
    const key = grouped();
    const text = `${cluster.name} ${cluster.region} ${cluster.link} ${(key && labels.of(key, cluster.name)) || ""}`.toLowerCase();
    if (!sought.words.every((word) => text.includes(word))) return false;
  }
  return sought.labels.every(([key, value]) => labels.of(key, cluster.name)?.toLowerCase().includes(value));
}

/** The label that the groups are by, if any. */
const grouped = () => (chosen.group?.startsWith("label:") ? chosen.group.slice(6) : null);

/** Another choice, and the labels that it takes. */
async function choose(now) {
  chosen = now;
  sought = parse(chosen.q);
  await labels.want([...sought.labels.map(([key]) => key), ...(grouped() ? [grouped()] : [])]);
}

function groupOf(cluster) {
  const by = chosen.group;
  if (!by) return "";
  if (by === "state") return fleet.states.get(cluster.state).heading;
  if (grouped()) return labels.of(grouped(), cluster.name) || "without this label";
  return cluster[by] || "not reported";
}

function face(tile, cluster) {
  const state = fleet.states.get(cluster.state);
  const said = words(cluster);
  const also = badges(cluster);
  if (isHeard(cluster) && fleet.heard[cluster.name]) aged.add(cluster.name);
  else aged.delete(cluster.name);
  tile.className = `tile ${state.tone}`;
  tile.title = [cluster.name, said, ...also].join("\n");
  const [glyph, name, text] = tile.children;
  glyph.textContent = state.glyph;
  name.textContent = cluster.name;
  // There is not much room: when a cluster that is well was heard matters least.
  text.textContent = also.length ? `${isHeard(cluster) ? "Ready" : said} · ${also.join(" · ")}` : said;
}

function tile(cluster) {
  const made = link(address({ view: "cluster", name: cluster.name }), { tabindex: "-1" },
    h("span", { class: "glyph", "aria-hidden": "true" }), h("b", {}), h("small", {}));
  made.dataset.name = cluster.name;
  face(made, cluster);
  return made;
}

function draw() {
  if (!fleet.loaded) {
    put(grid, h("p", { class: "quiet" }, refusal() || "Loading the fleet …"));
    return;
  }
  // Whoever is on a tile stays on it.
  const here = grid.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  tiles = new Map();
  groups = new Map();
  inGroup = new Map();
  aged = new Set();
  for (const cluster of [...fleet.clusters.values()].sort((a, b) => order(a.name, b.name))) {
    if (!wanted(cluster)) continue;
    const name = groupOf(cluster);
    if (!groups.has(name)) groups.set(name, { names: [], says: h("span", { class: "quiet" }) });
    groups.get(name).names.push(cluster.name);
    inGroup.set(cluster.name, name);
  }
  // Before they are drawn: when they were heard is said of those alone that are watched from now on.
  release = watch(inGroup.size <= 64 ? [...inGroup.keys()] : []);
  if (seen) seen.disconnect();
  seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      target.dataset.seen = isIntersecting ? "1" : "";
      if (isIntersecting) recount(target);
    }
  }, { rootMargin: "200px" });
  parts = [];
  const drawn = [...groups].sort(([a], [b]) => order(a, b)).map(([name, { names, says }]) => {
    const bodies = [];
    for (let at = 0; at < names.length; at += PART) {
      const some = names.slice(at, at + PART).map((cluster) => {
        const made = tile(fleet.clusters.get(cluster));
        tiles.set(cluster, made);
        return made;
      });
      const part = h("div", { class: "part" }, some);
      part.style.setProperty("--tiles", some.length);
      parts.push(part);
      seen.observe(part);
      bodies.push(part);
    }
    return h("section", { class: "group", "aria-label": name || "Clusters" },
      name ? h("h2", {}, name, " ", says) : null, bodies);
  });
  for (const name of groups.keys()) tally(name);
  put(grid, drawn.length ? drawn : h("p", { class: "quiet" },
    fleet.clusters.size ? "No cluster matches." : "No cluster has joined. Make a token for one: karmada-hub token create --cluster NAME"));
  roving = null;
  const kept = here && tiles.get(here);
  rove(kept || grid.querySelector(".tile"));
  summarise();
  choice.refresh(chosen);
}

/** How those of a group are, in its heading. */
function tally(group) {
  const { names, says } = groups.get(group);
  let [ready, silent] = [0, 0];
  for (const name of names) {
    const state = fleet.clusters.get(name)?.state;
    if (state === "ready") ready += 1;
    else if (state === "silent") silent += 1;
  }
  says.textContent = `${ready} of ${names.length} ready${silent ? `; ${silent} silent` : ""}`;
}

function summarise() {
  synced = fleet.synced;
  const by = new Map([...fleet.states.keys()].map((name) => [name, 0]));
  const extra = new Map();
  for (const cluster of fleet.clusters.values()) {
    by.set(cluster.state, by.get(cluster.state) + 1);
    for (const flag of flagged(cluster)) extra.set(flag, (extra.get(flag) || 0) + 1);
    for (const part of ["failed", "waiting"]) if (cluster[part]) extra.set(part, (extra.get(part) || 0) + 1);
  }
  const chip = (key, value, glyph, tone, text, n) => {
    const on = chosen[key] === value;
    return link(address({ ...chosen, [key]: on ? "" : value }), { class: `chip ${tone}`, "aria-current": on ? "true" : null },
      glyph ? h("span", { class: "glyph", "aria-hidden": "true" }, `${glyph} `) : null, h("b", {}, n.toLocaleString()), ` ${text}`);
  };
  put(counts,
    [...fleet.states.values()].filter(({ name }) => by.get(name)).map(({ name, heading, glyph, tone }) =>
      chip("state", name, glyph, tone, heading, by.get(name))),
    h("span", { class: "sum" }, `= ${many(fleet.clusters.size, "cluster")}`),
    synced ? null : h("span", { class: "waits" }, "◆ The hub has just begun and still reads what there is."),
    [...extra].map(([flag, n]) => chip("flag", flag, "", "", FLAGS[flag] || `with Works ${flag}`, n)));
  put(summary, tiles.size === fleet.clusters.size ? `${many(tiles.size, "cluster")} shown` : `${tiles.size.toLocaleString()} of ${many(fleet.clusters.size, "cluster")} shown`);
}

/** Ages in a part that is seen. */
function recount(part) {
  for (const made of part.children) {
    const cluster = fleet.clusters.get(made.dataset.name);
    if (cluster && ages(cluster)) face(made, cluster);
  }
}

let due = false;
let dirty = new Set();
let told = new Map();

function news(names) {
  if (names === null) {
    draw();
    relabel.hint();
    return;
  }
  for (const name of names) dirty.add(name);
  // A beat may say that the hub has read everything now, and nothing of any cluster.
  if ((!dirty.size && (synced === fleet.synced || !fleet.loaded)) || due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    const changed = dirty;
    dirty = new Set();
    // It was left before this frame.
    if (!isSeen()) return;
    let anew = false;
    if ([...changed].some((name) => fleet.clusters.has(name) && labels.isNew(name))) relabel.hint();
    const touched = new Set();
    for (const name of changed) {
      const cluster = fleet.clusters.get(name);
      const made = tiles.get(name);
      if (cluster) told.set(cluster.state, (told.get(cluster.state) || 0) + 1);
      // Who is in another group from now on is drawn there.
      if (Boolean(made) !== Boolean(cluster && wanted(cluster)) || (made && groupOf(cluster) !== inGroup.get(name))) anew = true;
      else if (made) {
        face(made, cluster);
        touched.add(inGroup.get(name));
      }
    }
    if (anew) {
      draw();
      return;
    }
    touched.forEach(tally);
    summarise();
  });
}

let beats = 0;

function tick() {
  for (const part of parts) if (part.dataset.seen) recount(part);
  beats += 1;
  if (beats % 5 === 0 && told.size) {
    // One sentence for all that has happened: nobody wants to hear of ten thousand.
    const all = [...told].map(([state, n]) => `${n} ${fleet.states.get(state).heading.toLowerCase()}`);
    say(`Changed: ${all.join(", ")}.`);
    told = new Map();
  }
}

function rove(to, focus) {
  if (!to) return;
  if (roving) roving.tabIndex = -1;
  roving = to;
  to.tabIndex = 0;
  if (focus) to.focus();
}

function keys(event) {
  const here = event.target.closest(".tile");
  if (!here) return;
  const all = [...tiles.values()];
  const at = all.indexOf(here);
  let to = null;
  if (event.key === "ArrowRight") to = at + 1;
  else if (event.key === "ArrowLeft") to = at - 1;
  else if (event.key === "Home") to = 0;
  else if (event.key === "End") to = all.length - 1;
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const step = event.key === "ArrowDown" ? 1 : -1;
    const { left, top } = here.getBoundingClientRect();
    for (let next = at + step; all[next]; next += step) {
      const box = all[next].getBoundingClientRect();
      if (Math.abs(box.left - left) < 4 && box.top !== top) { to = next; break; }
      if (Math.abs(next - at) > 400) break;
    }
  } else return;
  event.preventDefault();
  if (to !== null && all[to]) rove(all[to], true);
}

const CSV = ["name", "state", "says", "since", "region", "link", "kubernetes", "agent", "certificateEnds", "worksWaiting", "worksFailed", "also"];

function shown() {
  return [...tiles.keys()].map((name) => {
    const cluster = fleet.clusters.get(name);
    const iso = (at) => (at ? new Date(at * 1000).toISOString() : "");
    return [name, cluster.state, words(cluster), cluster.state === "ready" ? "" : iso(cluster.at), cluster.region, cluster.link,
      cluster.kubernetes, cluster.agent, iso(cluster.certificate), cluster.waiting, cluster.failed, flagged(cluster).join(" ")];
  });
}

function save(kind) {
  const rows = shown();
  // What begins like a formula is one to some programs.
  const cell = (value) => `"${String(value).replace(/^[=+\-@\t]/, "'$&").replace(/"/g, '""')}"`;
  const text = kind === "csv"
    ? [CSV, ...rows].map((row) => row.map(cell).join(",")).join("\r\n")
    : JSON.stringify(rows.map((row) => Object.fromEntries(CSV.map((name, at) => [name, row[at]]))), null, 2);
  const url = URL.createObjectURL(new Blob([text], { type: kind === "csv" ? "text/csv" : "application/json" }));
  h("a", { href: url, download: `fleet.${kind}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function controls(keys) {
  let wait = 0;
  const set = async (key, value) => {
    const mine = grid;
    const next = { ...chosen, [key]: value };
    go(address(next), true);
    await choose(next);
    // What is chosen last is drawn last, and nothing when somebody has gone elsewhere meanwhile.
    if (mine === grid && isSeen() && next === chosen) draw();
  };
  const search = h("input", {
    type: "search", id: "q", value: chosen.q || "", placeholder: "name, region, label=value …", "aria-keyshortcuts": "/",
    oninput: () => { clearTimeout(wait); wait = setTimeout(() => { if (search.isConnected) set("q", search.value.trim()); }, 120); },
    onkeydown: (event) => { if (event.key === "Escape") { search.value = ""; set("q", ""); } },
  });
  const group = h("select", {
    id: "group",
    onchange: () => set("group", group.value),
  }, GROUPS.map(([value, text]) => h("option", { value, selected: value === (chosen.group || "") }, text)),
  keys.map(([key, n]) => h("option", { value: `label:${key}`, selected: chosen.group === `label:${key}` }, `label ${key} (${n})`)));
  choice = filters(chosen, set);
  return h("div", { class: "controls" },
    h("label", { for: "q" }, "Search"), search, h("label", { for: "group" }, "Group by"), group, choice.element, summary,
    h("span", { class: "buttons" }, h("button", { onclick: () => save("csv") }, "CSV"), h("button", { onclick: () => save("json") }, "JSON")));
}

function slash(event) {
  if (event.key !== "/" || event.target.closest("input, select, textarea")) return;
  event.preventDefault();
  document.getElementById("q")?.focus();
}

/** Opens the view. What is above is of the opening that came last. */
export async function open(main, parameters, isHere) {
  const all = await get("/ui/api/labels").catch(() => ({ keys: [] }));
  if (!isHere()) return {};
  labels = new Labels();
  await choose(parameters);
  if (!isHere()) return {};
  isSeen = isHere;
  counts = h("nav", { class: "counts", "aria-label": "Clusters by state" });
  summary = h("span", { class: "quiet", id: "shown" });
  grid = h("div", { id: "grid", onkeydown: keys, onfocusin: (event) => rove(event.target.closest(".tile")) });
  put(main, h("h1", {}, "Fleet"), counts, controls(all.keys || []), grid);
  draw();
  const own = labels;
  relabel = paced(async () => { if ((await own.renew()) && isHere()) draw(); }, () => {});
  const unheard = listen(news);
  const timer = setInterval(() => relabel.hint(), RELABEL);
  stop = () => { unheard(); relabel.stop(); clearInterval(timer); };
  addEventListener("keydown", slash);
  return {
    tick,
    again: () => relabel.hint(),
    change: (next) => {
      if (next.q !== chosen.q || (next.group || "") !== (chosen.group || "")) return false;
      chosen = next;
      draw();
      return true;
    },
    leave: () => { stop(); seen?.disconnect(); removeEventListener("keydown", slash); release(); },
  };
}

/** For tests: how the page measures ages. */
export { since, query };

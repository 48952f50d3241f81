// The hub itself.

import { address } from "./app.js";
import { fleet, get, paced, passes, stale, watch } from "./data.js";
import { facts, h, link, put, s, section, table } from "./dom.js";
import { GLYPHS, next, stands, waves } from "./waves.js";
import { age, bytes, many, now, seconds, since, time } from "./words.js";

const KEPT = 60;
const past = new Map();
let before = null;
let drawn = null;

/** Notes a value, and draws the last ones. */
function chart(name, value, show) {
  const values = past.get(name) || [];
  values.push(value);
  if (values.length > KEPT) values.shift();
  past.set(name, values);
  const most = Math.max(...values, 1e-9);
  const x = (at) => 100 - (values.length - 1 - at) * (100 / (KEPT - 1));
  const points = values.map((one, at) => `${x(at).toFixed(1)},${(22 - (one / most) * 20).toFixed(1)}`).join(" ");
  return h("li", {}, h("span", { class: "quiet" }, name), h("b", {}, show(value)),
    s("svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${show(value)} now, ${show(most)} at most in the last ${age((values.length - 1) * 5)}` },
      s("polyline", { points: values.length > 1 ? points : `98,${points.split(",")[1]} ${points}`, class: "line" })));
}

/** The value below which so many of a histogram's are, of what came since the last look. */
function quantile(buckets, earlier, share) {
  const rows = Object.entries(buckets || {}).map(([le, n]) => [le === "+Inf" ? Infinity : Number(le), n - (earlier?.[le] || 0)]).sort(([a], [b]) => a - b);
  const all = rows.length ? rows[rows.length - 1][1] : 0;
  if (all <= 0) return 0;
  const found = rows.find(([, n]) => n >= all * share);
  return found[0] === Infinity ? rows[rows.length - 2][0] : found[0];
}

/** Of what most is used, namespace by namespace. */
function quotas(found) {
  if (!found) return null;
  if (found.denied) return section("Quotas", h("p", { class: "quiet" }, found.denied));
  const tone = (share) => (share >= 1 ? "acts" : share >= 0.8 ? "waits" : "well");
  return section("Quotas",
    table("FederatedResourceQuotas", ["Quota", "Resource", "Used", "Hard", "Share"], found.items.map((one) => [
      one.quota, one.resource, one.used, one.hard,
      h("span", { class: tone(one.share) }, `${GLYPHS[tone(one.share)]} ${Math.round(one.share * 100)} %`)]), "There is no FederatedResourceQuota."),
    found.items.length ? h("p", { class: "quiet" }, `Of ${many(found.of, "quota")}, those first of which most is used.`) : null);
}

/** Who is connected, and who has been silent for longest. */
function connected(view, heard, sum) {
  return section("Who is connected", facts([
    ["Connected clusters", `${heard.toLocaleString()} of ${sum.toLocaleString()}`],
    ["By link class", view.links.length > 1 || view.links[0]?.link
      ? view.links.map((one) => `${one.link || "not reported"}: ${one.heard.toLocaleString()} of ${one.of.toLocaleString()}`).join(", ") : null],
    ["Silent for longest", view.silent.length
      ? view.silent.map((one, at) => [at ? ", " : null, link(address({ view: "cluster", name: one.name }), {}, one.name), " ", time(one.at, "{age}")]) : "none"],
    ["Pages that follow the fleet", view.watching],
  ]), view.users ? table("Logged in here", ["User", "Sessions"], Object.entries(view.users).map(([user, n]) => [user, n]), "Nobody.") : null);
}

/** How far the agents' last upgrade is. */
function upgrade(told) {
  if (!told) return null;
  if (told.denied) return section("Upgrade of agents", h("p", { class: "quiet" }, told.denied));
  if (told.problem) return section("Upgrade of agents", h("p", { class: "acts" }, `▲ ${told.problem}`));
  const tones = { failed: "acts", waits: "waits", skipped: "quiet" };
  return section("Upgrade of agents", stands(told),
    facts([["Version", told.version], ["Began", told.began ? time(told.began) : null]]), waves(told),
    told.beside.length ? h("ul", {}, told.beside.map((one) => h("li", { class: tones[one.kind] }, `${GLYPHS[tones[one.kind]] || ""} ${one.kind}: ${one.text}`))) : null,
    next(told, "karmada-hub upgrade"));
}

function draw(into, view) {
  const figures = view.figures;
  // When the figures were gathered, which may be a while ago.
  const at = figures.at ? seconds(figures.at) : now() / 1000;
  const same = before && at === before.at;
  const rate = (key) => {
    const passed = before ? at - before.at : since(seconds(view.hubBegan));
    return Math.max(0, (figures[key] || 0) - (before?.figures[key] || 0)) / Math.max(passed, 1);
  };
  const sum = Object.values(view.counts).reduce((a, b) => a + b, 0);
  const heard = ["ready", "quiet", "api", "held"].reduce((n, state) => n + (view.counts[state] || 0), 0);
  const charts = figures.denied ? h("p", { class: "quiet" }, figures.denied) : same ? drawn : h("ul", { class: "charts" },
    chart("Memory", figures.process_resident_memory_bytes || 0, bytes),
    chart("Processor", rate("process_cpu_seconds_total"), (n) => `${(100 * n).toFixed(1)} %`),
    chart("Requests", rate("apiserver_request_total"), (n) => `${n.toFixed(1)}/s`),
    chart("Requests, 99 of 100 below", quantile(figures.requests, before?.figures.requests, 0.99), (n) => `${(n * 1000).toFixed(0)} ms`),
    chart("Commits, 99 of 100 below", quantile(figures.commit, before?.figures.commit, 0.99), (n) => `${(n * 1000).toFixed(0)} ms`),
    chart("Watches and streams", figures.apiserver_longrunning_requests || 0, (n) => n.toLocaleString()),
    chart("Received", rate("karmada_hub_received_bytes_total"), (n) => `${bytes(n)}/s`),
    chart("Sent", rate("karmada_hub_sent_bytes_total"), (n) => `${bytes(n)}/s`),
    chart("Stored", figures.karmada_store_bytes || 0, bytes),
    chart("Requests turned away", figures.karmada_apiserver_refused_requests_total || 0, (n) => n.toLocaleString()));
  if (!figures.denied && !same) [before, drawn] = [{ at, figures }, charts];
  put(into,
    view.brake ? section("Brake and budgets",
      ...(view.brake.held.length
        ? view.brake.held.map((why) => h("p", { class: "waits" }, `◆ Evictions are held: ${why}`))
        : [h("p", { class: "well" }, "● Evictions are not held.")]),
      facts([
        ["Brake", `on when ${many(view.brake.least, "cluster")} or more, and more than ${Math.round(view.brake.share * 100)} %, vanish at once; ${view.brake.timeoutSeconds ? `for ${age(view.brake.timeoutSeconds)} at most` : "until some are back"}`],
        ["Budgets", `${view.budgets.perMinute || "any number of"} evictions a minute, ${view.budgets.perBinding || "any number"} of one binding`],
        ["Evictions that had to wait", figures.denied ? null : (figures.karmada_hub_evictions_postponed_total || 0).toLocaleString()],
        ["Copies that wait for a fence", figures.denied ? null : (figures.karmada_hub_fence_waits || 0).toLocaleString()],
        ["Grace period", `${view.grace} s, or what its link has taught`],
      ])) : null,
    upgrade(view.upgrade),
    section("Figures", charts),
    connected(view, heard, sum),
    quotas(view.quotas),
    section("Store", facts([
      ["Used", figures.denied ? null : `${bytes(figures.karmada_store_bytes || 0)}${figures.karmada_store_quota_bytes ? ` of ${bytes(figures.karmada_store_quota_bytes)}` : ""}`],
      ["Agents", figures.denied ? null : figures.karmada_store_accounts_nearly_full
        ? h("span", { class: "waits" }, `◆ ${many(figures.karmada_store_accounts_nearly_full, "agent")} nearly at the limit of --agent-storage-quota`)
        : "● none is near the limit of --agent-storage-quota"],
      ["State", figures.karmada_store_failed ? "▲ its disk fails; it takes no writes" : figures.denied ? null : "● takes writes"],
    ])),
    section("Last changes by people", !view.changes ? h("p", { class: "quiet" }, "This hub has no audit log (--audit-policy-file).")
      : view.changes.denied ? h("p", { class: "quiet" }, view.changes.denied)
        : table("Last changes", ["When", "Who", "What", "Answer"], view.changes.map((one) => [
          time(one.at), one.actingAs ? `${one.user} as ${one.actingAs}` : one.user, `${one.verb} ${one.of}`,
          one.code < 400 ? one.code : h("span", { class: "acts" }, `▲ ${one.code}`)]), "None since this hub began.")),
    section("About", facts([["Version", view.hub], ["Began", time(view.hubBegan)]])));
}

/** Opens the view. */
export async function open(main, parameters, isHere) {
  const body = h("div");
  const late = h("p", { id: "late", class: "quiet", role: "status" });
  put(main, h("h1", {}, "Hub"), late, body);
  let found = null;
  // Quotas are many, and change seldom.
  let wanted = true;
  let view = null;
  const { load, hint, stop } = paced(async (all) => {
    if (wanted) {
      wanted = false;
      found = await get("/ui/api/quotas").catch((why) => (passes(why) && found) || { denied: why.message });
    }
    // Figures are asked for again and again; of the rest it is told when it has changed.
    const whole = all || !view;
    const answer = await get("/ui/api/hub", { brief: whole ? "" : "1" });
    view = whole ? answer : { ...view, users: null, ...answer };
    draw(body, { ...view, quotas: found });
    put(late);
  }, (why, again) => {
    if (again && view) {
      put(late, stale(why));
      return;
    }
    view = null;
    put(late);
    put(body, h("p", { class: "acts", role: "alert" }, why.message));
  });
  await load();
  if (!isHere()) {
    stop();
    return {};
  }
  const release = watch([], { hub: "1" }, () => hint(true));
  const figures = setInterval(() => { if (fleet.live) hint(); }, 5000);
  // Who misses the news sees it a little later.
  const rest = setInterval(() => { wanted = true; if (fleet.live) hint(true); }, 30000);
  return {
    again: () => hint(true),
    leave: () => { stop(); clearInterval(figures); clearInterval(rest); release(); },
  };
}

// Applications: a list of all, and one from its template to every cluster.

import { address, go } from "./app.js";
import { fleet, get, listen, paced, refusal, stale, watch } from "./data.js";
import { facts, h, link, put, s, section, table } from "./dom.js";
import { GLYPHS, next, stands, waves } from "./waves.js";
import { many, quoted, time } from "./words.js";

const where = (app) => address({ view: "app", scope: app.scope, namespace: app.namespace, binding: app.binding });

async function list(main, parameters, isHere) {
  const results = h("div", { "aria-busy": "true" });
  const late = h("p", { id: "late", class: "quiet", role: "status" });
  let wait = 0;
  // Whether there is a list to see, and why there is none: who hears the page hears that once.
  let listed = false;
  let refused = null;
  const { load, hint, stop } = paced(async () => {
    const { q, namespace } = chosen();
    const { apps, of, hidden } = await get("/ui/api/apps", { q, namespace });
    // An answer to what was typed before: that to what stands there now comes next.
    if (q !== chosen().q || namespace !== chosen().namespace) return;
    [listed, refused] = [true, null];
    put(late);
    put(results,
      h("p", { class: "quiet" }, of > apps.length ? `${apps.length} of ${of.toLocaleString()}: search for others.` : many(of, "application"),
        hidden.length ? ` Some are hidden: ${hidden.join("; ")}` : ""),
      table("Applications", ["Application", "Kind", "Clusters", "Applied", "Failed", "Placed"], apps.map((app) => [
        link(where(app), {}, app.namespace ? `${app.namespace}/${app.name}` : app.name), app.kind, app.clusters, app.applied,
        app.failed ? h("span", { class: "acts" }, `▲ ${app.failed}`) : "0",
        app.scheduled === false ? h("span", { class: "acts" }, "▲ no") : app.leaving ? h("span", { class: "waits" }, "◆ moving") : app.scheduled ? "yes" : "not yet",
      ]), "None. Write a PropagationPolicy that selects something."));
    results.removeAttribute("aria-busy");
  }, (why, again) => {
    results.removeAttribute("aria-busy");
    if (again && listed) {
      put(late, stale(why));
      return;
    }
    put(late);
    if (why.message === refused) return;
    [listed, refused] = [false, why.message];
    const everywhere = why.code === 403 && !chosen().namespace;
    put(results, h("p", { class: "acts", role: "alert" },
      everywhere ? "You may not list the applications of all namespaces. Enter a namespace above." : why.message),
    everywhere ? h("p", { class: "quiet" }, why.message) : null);
  });
  const typed = () => {
    clearTimeout(wait);
    wait = setTimeout(() => {
      // The address is another view's by then.
      if (!main.isConnected) return;
      go(address({ ...parameters, ...chosen() }), true);
      load();
    }, 250);
  };
  const search = h("input", { id: "q", type: "search", value: parameters.q || "", placeholder: "namespace, name or kind", oninput: typed });
  const inside = h("input", {
    id: "namespace", type: "search", value: parameters.namespace || "", placeholder: "all namespaces", autocomplete: "off", spellcheck: "false",
    oninput: typed,
  });
  const chosen = () => ({ q: search.value.trim(), namespace: inside.value.trim() });
  put(main, h("h1", {}, "Applications"), h("div", { class: "controls" },
    h("label", { for: "q" }, "Search"), search, h("label", { for: "namespace" }, "Namespace"), inside), late, results);
  await load();
  if (!isHere()) {
    clearTimeout(wait);
    stop();
    return {};
  }
  // Nothing tells of a change of any of them.
  const timer = setInterval(() => hint(), 15000);
  return { again: () => hint(), leave: () => { clearTimeout(wait); clearInterval(timer); stop(); } };
}

/** The way from the template to every cluster, as a picture. The table below says the same. */
function picture(view) {
  const copies = view.copies.slice(0, 12);
  const more = view.copies.length - copies.length;
  const lines = copies.length + (more > 0 ? 1 : 0);
  const high = Math.max(lines, 1) * 34 + 10;
  const middle = high / 2;
  const box = (x, y, width, title, text, tone) => s("g", { class: `box ${tone || ""}` },
    s("rect", { x, y: y - 15, width, height: 30, rx: 4 }),
    s("text", { x: x + 8, y: y - 2, class: "small" }, title), s("text", { x: x + 8, y: y + 10 }, text.length > 26 ? `${text.slice(0, 25)}…` : text));
  const wire = (x1, y1, x2, y2) => s("path", { d: `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`, class: "wire" });
  const rows = copies.map((copy, at) => {
    const y = 22 + at * 34;
    const { tone, word } = standing(copy);
    return [wire(590, middle, 620, y), box(620, y, 175, copy.cluster, word, tone)];
  });
  if (more > 0) rows.push([wire(590, middle, 620, 22 + copies.length * 34), box(620, 22 + copies.length * 34, 175, "and", many(more, "more cluster"), "")]);
  const label = `${view.kind} ${view.name}, by ${view.policy ? view.policy.name : "no policy"}, on ${many(view.copies.length, "cluster")}`;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Picture of the application" },
    s("svg", { viewBox: `0 0 800 ${high}`, class: "picture", role: "img", "aria-label": label },
      wire(185, middle, 205, middle), wire(390, middle, 410, middle),
      box(5, middle, 180, view.kind, view.name, view.template?.gone ? "waits" : ""),
      box(205, middle, 185, view.policy ? view.policy.kind : "Policy", view.policy ? view.policy.name : "none has it", view.policy ? "" : "acts"),
      box(410, middle, 180, "Binding", view.scheduled === false ? "not placed" : `${view.replicas ? `${many(view.replicas, "replica")}, ` : ""}${view.copies.length} clusters`, view.scheduled === false ? "acts" : ""),
      rows));
}

/** How a copy stands, in a word. */
function standing(copy) {
  const state = fleet.clusters.get(copy.cluster)?.state;
  if (copy.leaving) return { tone: "waits", word: "leaving" };
  if (copy.applied === false && copy.message) return { tone: "acts", word: "failed" };
  if (!copy.applied) return { tone: "waits", word: state === "silent" ? "waiting: silent" : "waiting" };
  // What a cluster has by its overrides may be another number than what was placed.
  const of = Math.max(copy.has ?? 0, copy.desired ?? 0);
  const counted = of > 0 && (copy.ready !== null || copy.has !== null);
  const ready = copy.ready ?? 0;
  const word = counted ? `${ready} of ${of} ready` : copy.health || "applied";
  // Ready is what a cluster says that is heard; of any other the last word is shown. Whoever may not see how clusters stand sees
  // what each has said, and is told so.
  if (!refusal() && !["ready", "quiet", "api", "held"].includes(state)) return { tone: "no-news", word: `last known: ${word}`, whole: !counted || ready >= of };
  return { tone: (counted && ready < of) || copy.health === "Unhealthy" ? "waits" : "well", word };
}

/** How far a change is that goes out in waves. */
function rollout(view) {
  const told = view.rollout;
  if (!told) return null;
  if (told.problem) return section("Rollout", h("p", { class: "acts" }, `▲ ${told.problem}`));
  const object = `${view.kind.toLowerCase()}/${view.name}`;
  const inside = view.namespace ? ` -n ${view.namespace}` : "";
  return section("Rollout", stands(told),
    told.revision ? facts([["Revision", told.revision], ["Before", told.before], ["Began", told.began ? time(told.began) : null]]) : null,
    waves(told), next(told, "karmada-hub rollout", ` ${quoted(object)}${inside}`));
}

function difference(app, cluster, into) {
  put(into, h("p", { class: "quiet" }, "Comparing …"));
  get("/ui/api/difference", { scope: app.scope, namespace: app.namespace, binding: app.binding, cluster }).then((found) => {
    put(into, h("h3", {}, `How the copy on ${cluster} differs from the template`),
      found.policies.length ? h("p", {}, `By ${found.policies.join(", ")}.`) : h("p", { class: "quiet" }, "No override policy applies to it."),
      table("Differences", ["Field", "Change", "Template", "Cluster"], found.differences.map((one) => [
        h("code", {}, one.path), one.what, one.template, one.cluster]), "It does not differ."));
    into.querySelector("h3").scrollIntoView({ block: "nearest" });
  }, (why) => put(into, h("p", { class: "acts", role: "alert" }, why.message)));
}

async function explain(view, into) {
  put(into, h("p", { class: "quiet" }, "Calculating …"));
  try {
    const found = await get("/ui/api/explain", { namespace: view.namespace, kind: kindOf(view), name: view.name });
    const placement = found.placement;
    put(into,
      found.skipped ? h("p", { class: "acts" }, `Never propagated: ${found.skipped}.`) : null,
      facts([
        ["Policy", found.policies.filter((one) => one.has).map((one) => `${one.name} ${one.standing}`).join("; ") || "none"],
        ["Others", found.policies.filter((one) => !one.has).slice(0, 10).map((one) => `${one.name} ${one.standing}`).join("; ")],
        ["Division", placement?.division], ["Groups", (placement?.groups || []).join("; ")],
        ["Placement now", placement ? (placement.clusters ? placement.clusters.map((one) => (one.replicas ? `${one.name}: ${one.replicas}` : one.name)).join(", ") || "nowhere" : placement.error) : null],
      ]),
      placement ? table("Every cluster", ["Cluster", "Verdict", "Replicas", "State", "Observed", "Rule"], placement.verdicts.map((one) => [
        link(address({ view: "cluster", name: one.cluster }), {}, one.cluster), one.verdict, one.replicas ?? "", one.state, one.observed, h("code", {}, one.rule)]), "No cluster was looked at.") : null,
      ["notes", "elsewhere", "advice"].filter((key) => found[key]?.length).map((key) => [
        h("h3", {}, { notes: "To note", elsewhere: "To have it elsewhere as well", advice: "What to do" }[key]),
        h("ul", {}, found[key].map((text) => h("li", {}, text)))]));
  } catch (why) {
    put(into, h("p", { class: "acts", role: "alert" }, why.message));
  }
}

/** A kind as commands take it, with its version and group: others may be called the same. */
function kindOf(view) {
  const [group, version] = (view.apiVersion || "").split("/");
  return version ? `${view.kind}.${version}.${group}` : view.kind;
}

async function one(main, parameters, isHere) {
  const explained = h("div");
  const differs = h("div");
  const head = h("div");
  const late = h("p", { id: "late", class: "quiet", role: "status" });
  const asked = { scope: parameters.scope, namespace: parameters.namespace, binding: parameters.binding };
  let clusters = [];
  let release = () => {};
  let shown = null;
  const { load, hint, stop } = paced(async (all) => {
    // The template is asked for now and then.
    const view = await get("/ui/api/app", { ...asked, brief: all || !shown ? "" : "1" });
    if (!isHere()) return null;
    view.template ||= shown.template;
    shown = view;
    put(late);
    const full = view.namespace ? `${view.namespace}/${view.name}` : view.name;
    const ready = view.copies.filter((copy) => standing(copy).tone === "well").length;
    const last = view.copies.filter((copy) => standing(copy).whole && copy.health !== "Unhealthy").length;
    put(head, h("p", { class: "crumbs" }, link(address({ view: "apps" }), {}, "Applications"), " / ", full),
      h("h1", {}, `${view.kind} ${full}`),
      h("p", {}, refusal()
        ? `${ready} of ${many(view.copies.length, "cluster")} reported ready. You may not list Clusters, so the page cannot tell which of them are silent.`
        : `${ready} of ${many(view.copies.length, "cluster")} ready${last ? `; ${last} last known ready` : ""}.`),
      view.followed?.length ? h("p", {}, `It goes where what refers to it goes: ${view.followed.map((by) => `${by.namespace}/${by.name}`).join(", ")}.`) : null,
      picture(view),
      rollout(view),
      section("On every cluster", table("Copies", ["Cluster", "State", "Desired", "Replicas", "Ready", "Why", "Report as of", "Overrides"],
        view.copies.map((copy) => {
          const { tone, word } = standing(copy);
          const heard = view.heard?.[copy.cluster];
          const reported = heard ? time(heard) : null;
          if (reported) reported.dataset.of = copy.cluster;
          return [link(address({ view: "cluster", name: copy.cluster }), {}, copy.cluster),
            h("span", { class: tone }, `${GLYPHS[tone]} ${word}`), copy.desired ?? "", copy.has ?? "", copy.ready ?? "",
            copy.leaving ? `leaving: ${copy.leaving.reason}` : copy.message || "", reported || "",
            h("button", { onclick: () => difference({ ...view, ...parameters }, copy.cluster, differs), "aria-label": `Compare with the template: ${copy.cluster}` }, "compare")];
        }), "It is on no cluster.")));
    clusters = view.copies.map((copy) => copy.cluster);
    release = watch(clusters, asked, () => hint());
    return view;
  }, (why, again) => {
    if (again && shown) {
      put(late, stale(why));
      return;
    }
    shown = null;
    put(late);
    put(head, h("h1", {}, parameters.binding), h("p", { class: "acts", role: "alert" }, why.message));
  });
  put(main, late, head, differs, section("Why it is there, and not elsewhere", explained));
  const view = await load();
  if (!isHere()) {
    stop();
    return {};
  }
  if (view) explain(view, explained);
  const silent = listen((names) => {
    for (const element of head.querySelectorAll("time[data-of]")) {
      const heard = fleet.heard[element.dataset.of];
      if (heard) element.dataset.at = heard;
    }
    if (names === null || clusters.some((name) => names.includes(name))) hint();
  });
  // Who misses the news sees it a little later.
  const timer = setInterval(() => hint(true), 30000);
  return { again: () => hint(true), leave: () => { silent(); stop(); clearInterval(timer); release(); } };
}

/** Opens the list, or one application. */
export async function open(main, parameters, isHere) {
  return parameters.view === "app" ? one(main, parameters, isHere) : list(main, parameters, isHere);
}

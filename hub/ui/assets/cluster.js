// One cluster.

import { address } from "./app.js";
import { ask, fleet, get, listen, paced, stale, watch } from "./data.js";
import { confirm, facts, h, link, put, s, say, section, table } from "./dom.js";
import { bytes, clock, many, now, seconds, time, until } from "./words.js";

const LOOKS = { s: ["seen", "seen"], q: ["silent", "silent"], l: ["lost", "past its grace"], ".": ["none", "no record"] };

/** The last day of its link: of each five minutes the worst. */
function strip(told) {
  if (!told?.strip) return h("p", { class: "quiet" }, "There is no record of its link.");
  const slots = [...told.strip];
  const end = now() / 1000;
  const start = end - (slots.length - 1) * told.stripSeconds;
  const spans = [];
  for (let at = 0; at < slots.length;) {
    let to = at;
    while (to < slots.length && slots[to] === slots[at]) to += 1;
    spans.push([at, to, slots[at]]);
    at = to;
  }
  const total = (sign) => slots.filter((slot) => slot === sign).length * told.stripSeconds / 60;
  const sums = ["s", "q", "l"].filter((sign) => total(sign)).map((sign) => `${LOOKS[sign][1]} ${Math.round(total(sign))} min`);
  const title = `Last day of its link, by parts of five minutes: ${sums.join(", ") || "no record"}.`;
  const rects = spans.map(([from, to, sign]) => s("rect", {
    x: from, y: { s: 4, q: 8, l: 0, ".": 18 }[sign], width: to - from, height: { s: 16, q: 12, l: 20, ".": 2 }[sign], class: `slot ${LOOKS[sign][0]}`,
  }, s("title", {}, `${LOOKS[sign][1]} from ${clock(start + from * told.stripSeconds)} to ${clock(start + to * told.stripSeconds)}`)));
  return h("figure", { class: "strip" },
    s("svg", { viewBox: `0 0 ${slots.length} 20`, preserveAspectRatio: "none", role: "img", "aria-label": title }, rects),
    h("div", { class: "ends quiet" }, h("span", {}, clock(start)), h("span", {}, clock((start + end) / 2)), h("span", {}, "now")),
    h("figcaption", { class: "quiet" },
      h("span", { class: "key seen" }, "seen"), " ", h("span", { class: "key silent" }, "silent"), " ",
      h("span", { class: "key lost" }, "past its grace"),
      ` · of each five minutes the worst; recorded since ${clock(seconds(told.recordedSince), true)}, when this hub began; before that, only losses`));
}

function amount(name, value) {
  return /memory|storage/.test(name) ? bytes(value) : Number(value.toFixed(2)).toLocaleString();
}

function room(view) {
  const rows = view.room.resources.filter(({ offers }) => offers > 0);
  if (!rows.length) return h("p", { class: "quiet" }, "It has not reported any.");
  const nodes = view.room.nodes;
  return [
    nodes ? h("p", {}, `${nodes.readyNum || 0} of ${many(nodes.totalNum || 0, "node")} ready`) : null,
    h("ul", { class: "meters" }, rows.map(({ name, offers, asked }) => {
      const text = `${name}: ${amount(name, asked)} of ${amount(name, offers)} asked for`;
      return h("li", {}, h("span", {}, text),
        h("meter", { min: 0, max: 1, high: 0.9, value: offers ? Math.min(1, asked / offers) : 0, "aria-label": text }));
    })),
  ];
}

function works(view) {
  const found = view.works;
  if (found.denied) return h("p", { class: "quiet" }, found.denied);
  const on = view.told?.state === "silent" ? h("p", {}, `On return it gets: ${many(found.waiting, "change")}.`) : null;
  return [
    h("p", {}, `${found.applied} applied, ${found.waiting} waiting, ${found.failed} failed: ${many(found.of, "Work")}.`), on,
    table("Works", ["Object", "State", "Why", "Reported"], found.items.map((item) => [
      `${item.kind} ${item.object}`,
      h("span", { class: { failed: "acts", waiting: "waits", applied: "well" }[item.stage] },
        `${{ failed: "▲", waiting: "◆", applied: "●" }[item.stage]} ${item.stage}`),
      [item.why, item.fenceSeconds ? `stops itself after ${item.fenceSeconds} s without word from the hub` : ""].filter(Boolean).join("; "),
      time(item.at)]), "Nothing is meant to run there."),
    found.of > found.items.length ? h("p", { class: "quiet" }, `The first ${found.items.length}, those that wait or failed before others.`) : null,
  ];
}

async function cordon(name, on, after, problem) {
  const verb = on ? "cordon" : "uncordon";
  const text = on ? "Nothing new is placed on it. What is there stays." : "The hub may place things on it again.";
  if (!(await confirm(`${on ? "Cordon" : "Uncordon"} ${name}?`, text, `karmada-hub ${verb} ${name}`, on ? "Cordon" : "Uncordon"))) return;
  try {
    await ask(`/ui/api/cordon?${new URLSearchParams({ cluster: name, on })}`, { method: "POST" });
    put(problem);
    say(`${name} is ${verb}ed.`);
    after();
  } catch (why) {
    put(problem, why.message);
  }
}

const ACTS = {
  drain: {
    title: (name) => `Drain ${name}?`,
    text: "What can run elsewhere moves there, and is removed here when the new copies are healthy. Nothing new is placed on it.",
    command: (name) => `karmada-hub drain ${name}`, label: "Drain", none: "Nothing on it can move.",
    done: (n) => `${many(n, "object")} on the way to other clusters. The hub goes on by itself.`,
  },
  failback: {
    title: (name) => `Bring back to ${name}?`,
    text: "Objects of which it would get more if they were divided from scratch now are placed anew. They may leave other clusters for it.",
    command: (name) => `karmada-hub failback --cluster ${name}`, label: "Fail back", none: "Nothing would come to it.",
    done: (n) => `${many(n, "object")} to be placed anew.`,
  },
};

/** Begins something with all that runs on a cluster, or would. */
async function begin(what, name, after, into, problem) {
  const act = ACTS[what];
  if (!(await confirm(act.title(name), act.text, act.command(name), act.label))) return;
  put(problem);
  put(into, h("p", { class: "quiet" }, "Working …"));
  try {
    const answer = await ask(`/ui/api/${what}?${new URLSearchParams({ cluster: name })}`, { method: "POST", patience: 600000 });
    const found = await answer.json();
    const text = found.moving ? act.done(found.moving) : act.none;
    say(text);
    await after();
    if (found.problem) put(problem, found.problem);
    put(into, h("p", {}, text, found.cannotMove ? h("span", { class: "acts" }, ` ▲ ${many(found.cannotMove, "object")} cannot move.`) : null),
      found.objects.length ? table("Result", ["Object", "Why"], found.objects.map((row) => [row.object, row.message])) : null);
  } catch (why) {
    put(into);
    put(problem, why.message);
  }
}

/** What its agent says of itself. The rest is told where the agent runs. */
function agent(view, told, reports) {
  if (view.mode === "Push") return null;
  const { troubles, tunnel, searches } = view.agent;
  const code = (text) => h("code", {}, text);
  const troubled = troubles.map((one) => h("li", { class: "acts" }, `▲ ${one.message || one.type} (`, time(one.at, "{age}"), ")"));
  return h("section", { id: "agent" }, h("h2", {}, "Agent", reports),
    troubled.length ? h("ul", {}, troubled)
      : told?.agent ? h("p", { class: "well" }, "● It reports no trouble.") : h("p", { class: "quiet" }, "It has not reported yet."),
    facts([
      ["Version", told ? told.agent || "not reported" : null], ["Hub", told?.hub], ["Versions", told?.skew],
      ["Upgrades from the hub", view.upgrade ? { off: "takes none", windows: "takes them in maintenance windows", on: "takes them" }[view.upgrade.takes] : null],
      ["Upgrade", view.upgrade?.version ? `${view.upgrade.version}: ${view.upgrade.stands}${view.upgrade.why ? `, ${view.upgrade.why}` : ""}` : null],
      ["Tunnel", tunnel || "none"], ["Copies for searches", searches ? "sent when the hub asks for them" : "none"],
    ]),
    h("p", { class: "quiet" }, "Its queues, and where it keeps its state, are shown only where it runs: ", code("karmada-agent status"), "; in a Pod ",
      code("kubectl -n karmada-system exec deploy/karmada-agent -- karmada-agent status"), "; under systemd, where it opens no port by default, ",
      code("karmada-agent doctor"), " and ", code(`journalctl -u karmada-agent@${view.name}`), "."));
}

function state(told) {
  const shape = fleet.states.get(told.state) || { glyph: "", tone: "" };
  const text = h("span", { "data-at": told.at, "data-shows": told.template, id: "sentence" }, told.sentence);
  return h("p", { class: `state ${shape.tone}` }, h("span", { class: "glyph", "aria-hidden": "true" }, `${shape.glyph} `), text,
    told.detail ? h("span", { class: "quiet" }, ` · ${told.detail}`) : null,
    told.state === "silent" && told.shown ? h("span", { class: "quiet" }, " Shown: ", time(told.shown, "{time}"), ".") : null);
}

/** What a cluster is like, which leads to all clusters that are. */
function like(key, view) {
  const value = view[key];
  // Tiles know as much of it as there is room for.
  return value ? link(address({ [key]: fleet.clusters.get(view.name)?.[key] || value }), { title: "All clusters with the same" }, value) : null;
}

function draw(main, view, again, { done, problem, late }) {
  const told = view.told;
  const reports = () => (told?.state === "silent" ? [" · as of ", time(told.shown, "{time}")] : null);
  put(late);
  put(main, late,
    h("p", { class: "crumbs" }, link(address({}), {}, "Fleet"), " / ", view.name),
    h("h1", {}, view.name), told ? state(told) : h("p", { class: "quiet" }, "The hub's controllers do not run yet."),
    problem,
    h("p", { class: "buttons" },
      h("button", { id: "cordon", onclick: () => cordon(view.name, !told?.cordoned, again, problem) }, told?.cordoned ? "Uncordon" : "Cordon"),
      h("button", { id: "drain", onclick: () => begin("drain", view.name, again, done, problem) }, "Drain"),
      h("button", { id: "failback", onclick: () => begin("failback", view.name, again, done, problem) }, "Fail back"),
      link(address({ view: "whatif", lose: view.name }), { class: "button" }, "What if it were lost?"),
      link(address({ view: "whatif", drain: view.name }), { class: "button" }, "What if it were drained?")),
    done,
    told ? section("Link",
      facts([
        ["Last heard", told.heard ? h("span", { id: "heard" }, time(told.heard), ` (${clock(seconds(told.heard), true)})`) : told.shown ? time(told.shown) : "not since this hub began"],
        ["Link class", like("link", view)], ["Link windows", view.linkWindows],
        ["Grace period", [told.grace.length, told.grace.reason ? ` (${told.grace.reason}: ${told.grace.text})` : ", as any cluster"]],
        ["Recent losses", told.losses ? many(told.losses, "time") : null],
        ["Held until", told.heldUntil ? time(told.heldUntil, "{time}") : null],
        ["Fenced Works", told.fence ? [`${told.fence.works}: `, told.fence.stopped ? ["fenced by its own clock at ", time(told.fence.at, "{time}"), " (expected)"] : `stop after ${told.fence.seconds} s without word from the hub`] : null],
        ["Certificate", told.certificate ? `${told.certificate.text || `ends in ${until(seconds(told.certificate.until))}`} (${clock(seconds(told.certificate.until), true)})` : "not shown since this hub began"],
      ]), strip(told)) : null,
    section("What runs there", works(view)),
    h("section", {}, h("h2", {}, "Room", reports()), room(view)),
    section("Conditions", table("Conditions", ["Condition", "Status", "Reason", "Message", "Since"],
      view.conditions.map((one) => [one.type, one.status, one.reason, one.message, time(one.at, "{age}")]), "None yet.")),
    agent(view, told, reports()),
    section("About", facts([
      ["Kubernetes", like("kubernetes", view)], ["Mode", view.mode], ["Region", like("region", view)], ["Provider", view.provider], ["Zones", (view.zones || []).join(", ")],
      ["Taints", (view.taints || []).map((taint) => `${taint.key}${taint.value ? `=${taint.value}` : ""}:${taint.effect}`).join(", ")],
      ["Maintenance windows", view.windows], ["Held by", view.hold],
      ["Labels", Object.entries(view.labels).map(([key, value]) => `${key}=${value}`).join(", ")],
      ["Registered", time(view.born)],
    ])),
    section("Last events", view.events.denied ? h("p", { class: "quiet" }, view.events.denied)
      : table("Events", ["When", "Reason", "Message"], view.events.map((one) => [time(one.at), one.reason, `${one.message}${one.count > 1 ? ` (${one.count} times)` : ""}`]), "None in the last hour.")));
}

/** Opens the view. */
export async function open(main, { name }, isHere) {
  let shown = null;
  // What was begun, and what was refused, stays in sight while the rest is drawn anew.
  const kept = {
    done: h("div", { id: "done" }), problem: h("p", { id: "problem", class: "acts", role: "alert" }),
    late: h("p", { id: "late", class: "quiet", role: "status" }),
  };
  const { load, hint, stop } = paced(async (all) => {
    // Events come without a hint: they are asked for now and then.
    const view = await get("/ui/api/cluster", { name, brief: all || !shown ? "" : "1" });
    view.events ||= shown.events;
    shown = view;
    draw(main, view, load, kept);
  }, (why, again) => {
    if (again && shown) {
      put(kept.late, stale(why));
      return;
    }
    shown = null;
    put(main, h("h1", {}, name), h("p", { class: "acts", role: "alert" }, why.message));
  }, () => !document.hidden && !document.querySelector("dialog"));
  await load();
  if (!isHere()) {
    stop();
    return {};
  }
  const release = watch([name], { cluster: name }, () => hint());
  const silent = listen((names) => {
    const heard = fleet.heard[name];
    for (const element of main.querySelectorAll("#heard time")) if (heard) element.dataset.at = heard;
    const sentence = document.getElementById("sentence");
    if (heard && sentence && /heard/.test(sentence.dataset.shows)) sentence.dataset.at = heard;
    if (names === null || names.includes(name)) hint();
  });
  const timer = setInterval(() => hint(true), 15000);
  return { again: () => hint(true), leave: () => { silent(); stop(); clearInterval(timer); release(); } };
}

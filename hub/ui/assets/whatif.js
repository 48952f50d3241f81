// What would move if clusters were lost, drained or cordoned.

import { address, go } from "./app.js";
import { ask, fleet, get, listen } from "./data.js";
import { confirm, h, link, put, say, table } from "./dom.js";
import { age, many, quoted } from "./words.js";

const WORDS = {
  moves: ["would move", "waits"], short: ["would be short", "acts"], lost: ["would be nowhere", "acts"], stays: ["would stay", "well"],
  follows: ["follow others", "well"], stuck: ["cannot move", "acts"],
};
/** So many names are offered. */
const OFFERED = 500;
const GLYPHS = { well: "●", waits: "◆", acts: "▲" };
const places = (list) => list.map((one) => (one.replicas ? `${one.name}: ${one.replicas}` : one.name)).join(", ") || "nowhere";
const names = (text) => (text || "").split(/[\s,]+/).filter(Boolean);

function command(chosen) {
  return ["karmada-hub what-if", ...["lose", "drain", "cordon"].filter((key) => chosen[key]).map((key) => `--${key} ${quoted(chosen[key])}`)].join(" ");
}

/** What holds evictions, by the hub's own settings where it knows them. */
function brake({ brake: { lost, of, atMostSeconds }, assumed }) {
  const most = atMostSeconds ? `, or for ${age(atMostSeconds)} at most` : "";
  return `${lost} of ${of} clusters at once would put on the brake: nothing is evicted until some are back${most}${assumed.hubSettings ? "" : " (default settings)"}.`;
}

async function run(chosen, into) {
  put(into, h("p", { class: "quiet" }, "Calculating …"));
  try {
    const found = await get("/ui/api/what-if", { lose: chosen.lose, drain: chosen.drain, cordon: chosen.cordon });
    const counts = new Map();
    for (const { result } of found.objects) counts.set(result, (counts.get(result) || 0) + 1);
    const sums = [...counts].map(([result, n]) => `${n} ${WORDS[result][0]}`).join(", ");
    put(into, h("h2", {}, "What would move"),
      found.brake ? h("p", { class: "waits" }, `◆ ${brake(found)}`) : null,
      h("p", {}, found.objects.length ? `Of ${many(found.of || found.objects.length, "object")}: ${sums}. Nothing was changed.` : "Nothing is on them."),
      found.of ? h("p", { class: "quiet" }, `Calculated for the first ${found.objects.length}.`) : null,
      table("Objects", ["Object", "Result", "Now", "Then", "When", "Why"], found.objects.map((row) => {
        const [text, tone] = WORDS[row.result];
        const first = row.leaves[0];
        const when = first ? `${first.afterSeconds ? `after ${age(first.afterSeconds)}` : "at once"}${first.needsHubSetting ? ", only with --enable-cluster-failover" : ""}` : "";
        return [row.object, h("span", { class: tone }, `${GLYPHS[tone]} ${text}`), places(row.now), places(row.then), when, row.why];
      }), "No object is affected."));
    say(`Calculated: ${sums || "nothing is on them"}.`);
  } catch (why) {
    put(into, h("p", { class: "acts", role: "alert" }, why.message));
  }
}

/** Opens the view. */
export async function open(main, parameters) {
  const results = h("div", { id: "results" });
  const problem = h("p", { class: "acts", role: "alert" });
  const known = h("datalist", { id: "clusters" });
  const field = (key, text) => {
    const input = h("input", { id: key, list: "clusters", value: parameters[key] || "", placeholder: "names", autocomplete: "off" });
    return [input, h("p", {}, h("label", { for: key }, text), input)];
  };
  const [lose, loseRow] = field("lose", "Lost (their agents are not heard any more)");
  const [drain, drainRow] = field("drain", "Drained (moved away, with service kept)");
  const [cordon, cordonRow] = field("cordon", "Cordoned (nothing new is placed on them)");
  const chosen = () => ({ view: "whatif", lose: names(lose.value).join(), drain: names(drain.value).join(), cordon: names(cordon.value).join() });
  const shown = h("pre", { tabindex: "0", id: "command" });
  const buttons = h("p", { class: "buttons" });
  const act = (name, on) => h("button", {
    id: `act-${name}`,
    onclick: async () => {
      const verb = on ? "cordon" : "uncordon";
      const text = on ? "Nothing new is placed on it. What is there stays." : "The hub may place things on it again.";
      if (!(await confirm(`${on ? "Cordon" : "Uncordon"} ${name}?`, text, `karmada-hub ${verb} ${name}`, on ? "Cordon" : "Uncordon"))) return;
      try {
        await ask(`/ui/api/cordon?${new URLSearchParams({ cluster: name, on })}`, { method: "POST" });
        put(problem);
        say(`${name} is ${verb}ed.`);
      } catch (why) {
        put(problem, why.message);
      }
      draw();
    },
  }, `${on ? "Cordon" : "Uncordon"} ${name}`);
  let acts = "";
  const draw = () => {
    const now = chosen();
    const all = [...new Set([...names(now.drain), ...names(now.cordon), ...names(now.lose)])].slice(0, 5);
    put(shown, now.lose || now.drain || now.cordon ? command(now) : "karmada-hub what-if --lose NAME");
    const bit = fleet.flags.indexOf("cordoned");
    const can = all.filter((name) => fleet.clusters.has(name)).map((name) => [name, !(fleet.clusters.get(name).flags & (1 << bit))]);
    // Whoever is on one of them stays there while nothing is another.
    if (acts === can.join()) return;
    acts = can.join();
    put(buttons, can.map(([name, on]) => act(name, on)));
  };
  // Which clusters there are, and which are cordoned, is told while the page is open. A question keeps its button.
  const heard = () => {
    if (known.childElementCount !== Math.min(OFFERED, fleet.clusters.size)) {
      put(known, [...fleet.clusters.keys()].slice(0, OFFERED).map((name) => h("option", { value: name })));
    }
    if (!document.querySelector("dialog")) draw();
  };
  put(main, h("h1", {}, "What if"),
    h("p", {}, "See what would move if clusters were lost, drained or cordoned. The hub calculates it as it would do it, and changes nothing."),
    h("form", {
      class: "stacked", oninput: draw,
      onsubmit: (event) => { event.preventDefault(); const next = chosen(); draw(); go(address(next), true); run(next, results); },
    }, loseRow, drainRow, cordonRow, known, h("p", {}, h("button", { class: "main" }, "Show what would move"))),
    h("p", { class: "quiet" }, "The same by command:"), shown, problem, buttons,
    h("p", { class: "quiet" }, "A cluster is drained, and what has left it brought back, from its own page."), results,
    fleet.loaded ? null : link(address({}), {}, "To the fleet"));
  heard();
  const leave = listen(heard);
  if (parameters.lose || parameters.drain || parameters.cordon) await run(chosen(), results);
  return { leave };
}

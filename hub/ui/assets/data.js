// What the hub knows, here: questions, and the fleet as it changes.

import { now, setNow } from "./words.js";

/** An answer that was none: its code, the hub's words, and after how many seconds it is worth asking again, if that passes. */
export class Refused extends Error {
  constructor(code, message, after) {
    super(message);
    this.code = code;
    this.after = after;
  }
}

/** Whether what went wrong says nothing of what was asked for: the hub is busy or away. */
export function passes(why) {
  return !(why instanceof Refused) || why.code === 0 || why.code === 429 || why.code >= 500;
}

// Whoever does something uses their session; a page that is only open asks without using it.
let touched = 0;
for (const kind of ["pointerdown", "keydown"]) {
  addEventListener(kind, () => { touched = performance.now(); }, { passive: true, capture: true });
}
const used = () => (performance.now() - touched < 60000 ? "1" : "open");

/** Asks the hub. The header shows that this page asks, and nobody's form. */
export async function ask(path, options = {}) {
  let answer;
  // The head of an answer comes soon or not at all: a connection that hangs is not waited for. The body has its own time.
  const late = new AbortController();
  const timer = setTimeout(() => late.abort("late"), options.patience || 30000);
  const signal = options.signal ? AbortSignal.any([options.signal, late.signal]) : late.signal;
  try {
    answer = await fetch(path, { ...options, signal, headers: { "x-karmada-ui": used(), ...options.headers }, cache: "no-store" });
  } catch (why) {
    if (options.signal?.aborted) throw why;
    throw new Refused(0, "The hub does not answer.");
  } finally {
    clearTimeout(timer);
  }
  if (!answer.ok) {
    let why = `${answer.status}`;
    try {
      why = (await answer.json()).message || why;
    } catch { /* It says nothing else. */ }
    if (answer.status === 401) why = "You are not logged in any more.";
    throw new Refused(answer.status, why, Number(answer.headers.get("retry-after")) || 0);
  }
  return answer;
}

/** The same for a document. */
export async function get(path, parameters = {}, options) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
  return (await ask(query ? `${path}?${query}` : path, options)).json();
}

/** Does something when it is asked to, and once more if it is asked meanwhile: never twice at a time. */
export function single(work) {
  let running = null;
  let more = false;
  const run = () => {
    if (running) {
      more = true;
      return running;
    }
    running = work().finally(() => {
      running = null;
      if (!more) return null;
      more = false;
      return run();
    });
    return running;
  };
  return run;
}

/**
 * The same for what is shown and asked for again: `work` hears whether all of it is, and `failed` why there was no answer, and whether
 * there will be another attempt. `load` asks at once, as people do. `hint` asks when the hub has rested three times as long as it took
 * to answer, and not from all pages at once; after a refusal when the hub has said. Who looks elsewhere asks nothing.
 */
export function paced(work, failed, looks = () => !document.hidden) {
  let took = 0;
  let next = 0;
  let timer = 0;
  let whole = false;
  let ended = false;
  // Whether the hub is asked just now, and whether there was a hint meanwhile.
  let asking = false;
  let hinted = false;
  const run = single(async () => {
    clearTimeout(timer);
    timer = 0;
    const all = whole;
    whole = false;
    asking = true;
    const begun = performance.now();
    let answer = null;
    let after = 0;
    try {
      answer = await work(all);
    } catch (why) {
      const again = passes(why);
      if (again) after = 1000 * (why.after || 10);
      if (!ended) failed(why, again);
    }
    took = performance.now() - begun;
    next = begun + took + Math.max(1000, 3 * took, after);
    asking = false;
    if (after || hinted) hint(all && after > 0);
    hinted = false;
    return answer;
  });
  function hint(all = false) {
    whole ||= all;
    hinted ||= asking;
    if (asking || timer || ended || !looks()) return;
    const left = Math.max(0, next - performance.now());
    timer = setTimeout(() => { timer = 0; if (looks()) run(); }, left + Math.random() * Math.max(500, took));
  }
  return {
    load: () => { whole = true; return run(); },
    hint,
    stop: () => { ended = true; clearTimeout(timer); },
  };
}

/** What stands above a view that could not be brought up to date. */
export function stale(why) {
  return `Not up to date, trying again: ${why.message}`;
}

/** One cluster, from a row of the hub's. */
function cluster(fleet, row) {
  const [name, told, at, flags, region, linked, kubernetes, agent, certificate, waiting, failed] = row;
  const [state, template] = fleet.templates[told];
  return { name, state, template, at, flags, region, link: linked, kubernetes, agent, certificate, waiting, failed };
}

/** All clusters, and who hears of changes. */
export const fleet = {
  clusters: new Map(), states: new Map(), templates: [], flags: [], number: 0, hub: "", loaded: false, heard: {},
  updated: 0, live: false, synced: false,
};

const listeners = new Set();

/** Hears of changes, as lists of names; of everything, as none. Answers how to hear no more. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const tell = (names) => listeners.forEach((listener) => listener(names));

let closely = [];
// How often it was said what is watched: who said so last has the stream.
let watches = 0;
// What one view shows whole, by the parameters of its question, and who hears that something of it has changed.
let subject = "";
let changed = null;
let abort = null;
// Which loop follows the fleet; 0 for none. One that was ended finds that it is another's turn.
let turns = 0;
let running = 0;
let denied = null;

/** These clusters are shown closely: when they are heard is told. And this one thing is shown whole: `hear` is told that something
 * of it has changed, once a second at most. Answers how to give that up, which takes nothing from who has asked since. */
export function watch(names, of = {}, hear = null) {
  const mine = (watches += 1);
  const release = () => { if (mine === watches) watch([]); };
  const wanted = names.slice(0, 64).sort();
  const about = new URLSearchParams(Object.entries(of).filter(([, value]) => value)).toString();
  changed = hear;
  if (wanted.join() !== closely.join() || about !== subject) {
    closely = wanted;
    subject = about;
    // Of the others nobody tells any more when they are heard.
    fleet.heard = Object.fromEntries(wanted.filter((name) => fleet.heard[name]).map((name) => [name, fleet.heard[name]]));
    if (abort) abort.abort();
  }
  return release;
}

/** Why there is no fleet to see, if so. */
export function refusal() {
  return denied;
}

async function load(mine) {
  const answer = await ask("/ui/api/fleet");
  const all = await answer.json();
  if (mine !== running) return;
  setNow(Number(answer.headers.get("x-karmada-now")));
  Object.assign(fleet, { templates: all.templates, flags: all.flags, number: all.number, hub: all.hub });
  fleet.states = new Map(all.states.map((state) => [state.name, state]));
  fleet.clusters = new Map(all.rows.map((row) => [row[0], cluster(fleet, row)]));
  fleet.loaded = true;
  denied = null;
  beat();
  tell(null);
}

function beat() {
  fleet.updated = now();
  fleet.live = true;
}

function take(line) {
  if (line.now) {
    setNow(line.now);
    fleet.heard = line.heard || {};
    fleet.synced = line.synced;
    beat();
    tell([]);
  }
  if (line.changed && changed) changed();
  if (line.number) {
    const names = [];
    for (const row of line.rows || []) {
      const name = row[0];
      fleet.clusters.set(name, cluster(fleet, row));
      names.push(name);
    }
    for (const name of line.gone || []) {
      fleet.clusters.delete(name);
      names.push(name);
    }
    fleet.number = line.number;
    beat();
    tell(names);
  }
  return !line.again;
}

async function follow(mine) {
  abort = new AbortController();
  const parameters = new URLSearchParams(subject);
  parameters.set("since", fleet.number);
  if (closely.length) parameters.set("watch", closely.join());
  const answer = await ask(`/ui/live?${parameters}`, { signal: abort.signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  // A link that is cut says nothing: the hub speaks every five seconds.
  let silent = 0;
  const guard = (limit) => { silent = setTimeout(() => abort.abort("silent"), limit); };
  let rest = "";
  try {
    for (;;) {
      guard(15000);
      const { done, value } = await reader.read();
      clearTimeout(silent);
      if (done) return true;
      if (mine !== running) return true;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line && !take(JSON.parse(line))) return false;
    }
  } finally {
    clearTimeout(silent);
  }
}

const pause = (millis) => new Promise((done) => setTimeout(done, millis));

/** For half a minute, while there is no fleet to see: whoever may read the one thing that they show whole hears of that. */
async function followAlone(mine) {
  const end = performance.now() + 30000;
  // What they may not read.
  let not = null;
  while (running === mine && performance.now() < end) {
    const of = subject;
    let rest = 1000;
    if (of && of !== not) {
      const timer = setTimeout(() => abort.abort(), end - performance.now());
      try {
        await follow(mine);
      } catch (why) {
        if (why.code === 401) return;
        if (why.code === 403) not = of;
        else if (why instanceof Refused) rest = 10000;
      } finally {
        clearTimeout(timer);
      }
    }
    // Another view may be open by then.
    await pause(rest);
  }
}

/** Follows the fleet until it is ended. `lost` hears that nobody is logged in any more. */
export async function begin(lost) {
  if (running) return;
  const mine = (turns += 1);
  running = mine;
  let failures = 0;
  let whole = true;
  while (running === mine) {
    try {
      if (whole) await load(mine);
      if (running !== mine) return;
      whole = false;
      failures = 0;
      const begun = now();
      whole = !(await follow(mine));
      // An answer that ends at once is no stream: not in a hurry, then.
      if (now() - begun < 1000) await pause(1000);
    } catch (why) {
      if (running !== mine) return;
      if (why instanceof Refused && [401, 403].includes(why.code)) {
        const there = await stillLoggedIn();
        if (running !== mine) return;
        if (!there) {
          end();
          lost();
          return;
        }
        // Whoever may not see it any more sees nothing of it.
        forget();
        denied = why.message;
        whole = true;
        tell(null);
        await followAlone(mine);
      } else if (why.name !== "AbortError" && why !== "silent") {
        failures += 1;
        fleet.live = failures < 1;
        tell([]);
        await pause(Math.min(15000, 500 * 2 ** failures));
      } else if (why === "silent") {
        fleet.live = false;
        tell([]);
      }
    }
  }
}

function forget() {
  Object.assign(fleet, { clusters: new Map(), loaded: false, heard: {}, live: false, synced: false });
  denied = null;
}

/** Follows it no more. */
export function end() {
  running = 0;
  if (abort) abort.abort();
  forget();
}

async function stillLoggedIn() {
  try {
    return Boolean((await get("/ui/session")).session);
  } catch {
    return true;
  }
}

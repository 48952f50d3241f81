// Which clusters the fleet shows beside their state: by what is typed, and by what is chosen.

import { fleet, get } from "./data.js";
import { h, put } from "./dom.js";

/** Numbers in names count as numbers. */
export const order = new Intl.Collator(undefined, { numeric: true }).compare;

/** What one chooses by, as it is called in the address and to people. */
const FIELDS = [["region", "Region"], ["link", "Link class"], ["kubernetes", "Kubernetes"], ["agent", "Agent version"]];
/** So many values of each are offered, those that most clusters have. The address takes any. */
const OFFERED = 50;
/** So many labels may be searched by at a time: the hub sends the values of all clusters for each. */
const LABELS = 4;

/** What is searched for: words, and labels as `key=value`. */
export function parse(q) {
  const words = (q || "").toLowerCase().split(/\s+/).filter(Boolean);
  const labelled = (q || "").split(/\s+/).filter((word) => word.indexOf("=") > 0).slice(0, LABELS);
  return {
    words: words.filter((word) => word.indexOf("=") <= 0),
    labels: labelled.map((word) => {
      const at = word.indexOf("=");
      return [word.slice(0, at), word.slice(at + 1).toLowerCase()];
    }),
  };
}

/** The values that clusters have of a label, and of which clusters they were asked for. */
async function valuesOf(key) {
  const asked = new Set(fleet.clusters.keys());
  const { values } = await get("/ui/api/labels", { key });
  return { asked, values: new Map(Object.entries(values || {})) };
}

/** The values of those labels that are looked at, by key. */
export class Labels {
  #found = new Map();
  #wanted = [];

  /** Brings what is wanted, and forgets what is not any more. */
  async want(keys) {
    this.#wanted = keys;
    const missing = [...new Set(keys)].filter((key) => !this.#found.has(key));
    // What there was no answer to is asked for again, as that is which is new.
    const found = await Promise.all(missing.map((key) => valuesOf(key).catch(() => ({ asked: new Set(), values: new Map() }))));
    missing.forEach((key, at) => this.#found.set(key, found[at]));
    for (const key of [...this.#found.keys()]) if (!this.#wanted.includes(key)) this.#found.delete(key);
  }

  /** Brings all of it anew. Answers whether any value is another than before. */
  async renew() {
    const keys = [...this.#found.keys()];
    const found = await Promise.all(keys.map(valuesOf));
    let changed = false;
    keys.forEach((key, at) => {
      const before = this.#found.get(key)?.values;
      // Nobody looks at it any more.
      if (!before) return;
      const { values } = found[at];
      this.#found.set(key, found[at]);
      changed ||= values.size !== before.size || [...values].some(([cluster, value]) => before.get(cluster) !== value);
    });
    return changed;
  }

  /** Whether the values were asked for before this cluster was there. */
  isNew(cluster) {
    return [...this.#found.values()].some(({ asked }) => !asked.has(cluster));
  }

  /** A cluster's value; nothing if it has none. */
  of(key, cluster) {
    return this.#found.get(key)?.values.get(cluster);
  }
}

/** Whether a cluster is as it was chosen. */
export const isChosen = (cluster, chosen) => FIELDS.every(([key]) => !chosen[key] || cluster[key] === chosen[key]);

function options(key, value) {
  const by = new Map();
  for (const cluster of fleet.clusters.values()) {
    if (cluster[key]) by.set(cluster[key], (by.get(cluster[key]) || 0) + 1);
  }
  // The same order each time: who goes through them by keyboard does not lose their way.
  const offered = [...by].sort(([, n], [, m]) => m - n).slice(0, OFFERED).sort(([a], [b]) => order(a, b));
  if (value && !offered.some(([one]) => one === value)) offered.unshift([value, by.get(value) || 0]);
  return [["", "any"], ...offered.map(([one, n]) => [one, `${one} (${n.toLocaleString()})`])]
    .map(([one, text]) => h("option", { value: one, selected: one === (value || "") }, text));
}

/** One list for each of them. `set` hears what is chosen; `refresh` has them offer what there is now. */
export function filters(chosen, set) {
  const lists = FIELDS.map(([key, title]) => {
    const list = h("select", {
      id: `of-${key}`, onfocus: () => put(list, options(key, list.value)), onchange: () => set(key, list.value),
    });
    return { key, title, list };
  });
  const title = h("summary", {});
  const element = h("details", { id: "filters", open: FIELDS.some(([key]) => chosen[key]) }, title,
    h("div", {}, lists.map(({ key, title: text, list }) => h("span", {}, h("label", { for: `of-${key}` }, text), " ", list))));
  const refresh = (now) => {
    const n = FIELDS.filter(([key]) => now[key]).length;
    put(title, n ? `Filters (${n})` : "Filters");
    for (const { key, list } of lists) if (list !== document.activeElement) put(list, options(key, now[key]));
  };
  refresh(chosen);
  return { element, refresh };
}

// The page: who is there, which view, what time it is.

import { begin, end, fleet, listen } from "./data.js";
import { h, link, put, say } from "./dom.js";
import { clock, now, tick } from "./words.js";
import { leave, show, who } from "./login.js";
import * as fleetView from "./fleet.js";

const VIEWS = [["fleet", "Fleet"], ["apps", "Applications"], ["whatif", "What if"], ["hub", "Hub"]];
const LOAD = {
  fleet: async () => fleetView,
  cluster: () => import("./cluster.js"),
  apps: () => import("./apps.js"),
  app: () => import("./apps.js"),
  whatif: () => import("./whatif.js"),
  hub: () => import("./hub.js"),
};

const top = document.getElementById("top");
const main = document.getElementById("main");
const banner = document.getElementById("banner");
let user = null;
let current = null;
// Where the view is that is seen, also while it is still opened.
let here = null;
let turn = 0;

/** The address of a view: its query string is all there is to know of it. */
export function address(parameters) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
  return `/ui?${query}`;
}

/** Goes to an address, or changes the present one without a step back to it. */
export function go(href, quietly) {
  history[quietly ? "replaceState" : "pushState"](null, "", href);
  if (!quietly) route();
}

/** What the address says. */
export function query() {
  return Object.fromEntries(new URLSearchParams(location.search));
}

function bar(view) {
  const belongs = { cluster: "fleet", app: "apps" }[view] || view;
  put(top,
    h("nav", { "aria-label": "Views" }, VIEWS.map(([name, title]) =>
      link(address({ view: name === "fleet" ? "" : name }), { "aria-current": name === belongs ? "page" : null }, title))),
    h("span", { class: "who" }, h("span", { class: "quiet" }, user),
      h("button", { onclick: async () => { await leave().catch(() => {}); end(); start(); } }, "Log out")));
}

async function route() {
  const mine = (turn += 1);
  const parameters = query();
  const view = LOAD[parameters.view] ? parameters.view : "fleet";
  if (current && current.view === view && current.change && current.change(parameters)) return;
  if (current && current.leave) current.leave();
  current = here = null;
  bar(view);
  let module;
  try {
    module = await LOAD[view]();
  } catch {
    // The files of an older page go with an upgrade of the hub.
    if (mine === turn) location.reload();
    return;
  }
  if (mine !== turn) return;
  // Each view has a place of its own: what comes late for one that was left is seen by nobody.
  const place = here = h("div");
  main.replaceChildren(place);
  // One that is left before its first answer follows nothing: it is asked after each answer whether it is still seen.
  const opened = await module.open(place, parameters, () => here === place);
  if (here !== place) {
    if (opened && opened.leave) opened.leave();
    return;
  }
  current = { view, ...opened };
  document.title = `${main.querySelector("h1")?.textContent || "Fleet"} · karmada`;
}

function news() {
  // The hub speaks every five seconds, also when there is nothing new.
  if (fleet.live && now() - fleet.updated > 20000) fleet.live = false;
  const stopped = fleet.loaded && !fleet.live;
  document.body.classList.toggle("stale", stopped);
  if (stopped && banner.hidden) {
    put(banner, `Not updated since ${clock(fleet.updated / 1000, true)}. Trying again.`);
    banner.hidden = false;
  } else if (!stopped && !banner.hidden) {
    banner.hidden = true;
    say("Up to date again.");
  }
}

async function start() {
  const found = await who().catch((why) => ({ user: null, why: why.message }));
  if (!found.user || !found.session) {
    if (current && current.leave) current.leave();
    current = here = null;
    turn += 1;
    put(top, h("strong", {}, "karmada"));
    show(main, found, enter);
    return;
  }
  enter(found);
}

function enter(found) {
  user = found.user;
  begin(() => { user = null; start(); });
  route();
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[data-in]");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go(anchor.getAttribute("href"));
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("popstate", route);
// What was not drawn while nobody saw it.
document.addEventListener("visibilitychange", () => { if (!document.hidden && current?.again) current.again(); });
listen(news);
setInterval(() => { if (fleet.live || !fleet.loaded) tick(main); if (current && current.tick) current.tick(); news(); }, 1000);
// Whoever uses the page uses their session; whoever has only left it open does not.
let used = false;
for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { used = true; }, { passive: true });
setInterval(() => { if (used && user) { used = false; who({ "x-karmada-ui": "1" }).catch(() => {}); } }, 600000);
start();

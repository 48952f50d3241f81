// Logging in.

import { ask, get } from "./data.js";
import { h, put } from "./dom.js";

/** Who is there: a user with a session, one who could begin one, or nobody. */
export async function who(headers) {
  const ticket = /^#ticket=([0-9a-f]+)$/.exec(location.hash);
  if (ticket) {
    // It is good once, and nobody else's to see.
    history.replaceState(null, "", location.pathname + location.search);
    // Somebody else may have made this address, to have you work as them.
    const there = await get("/ui/session");
    if (there.session && !confirm(`You are logged in as ${there.user}. Log out, and log in as whoever made this address?`)) return there;
    try {
      return { ...(await begin({ ticket: ticket[1] })), session: true };
    } catch {
      return { user: null, why: "This address was used already, or is older than a minute. Ask for another: karmada-hub ui" };
    }
  }
  const failed = location.hash === "#login-failed";
  if (failed) history.replaceState(null, "", location.pathname + location.search);
  const found = await get("/ui/session", {}, { headers });
  return failed && !found.session ? { ...found, why: "You are not logged in: the hub's log says why." } : found;
}

async function begin(body) {
  const answer = await ask("/ui/session", {
    method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" },
  });
  return answer.json();
}

/** Ends the session. */
export async function leave() {
  await ask("/ui/session", { method: "DELETE" });
}

/** Shows the login; `done` hears who it was. */
export function show(main, found, done) {
  const why = h("p", { class: "acts", role: "alert" }, found.why || "");
  const token = h("input", {
    id: "token", type: "password", autocomplete: "current-password", spellcheck: "false", required: true,
    "aria-describedby": "hint",
  });
  const send = async (body) => {
    put(why);
    try {
      done(await begin(body));
    } catch (refused) {
      put(why, refused.code === 401 ? "The hub does not know this token, or it has ended." : refused.message);
      token.select();
    }
  };
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); send({ token: token.value }); } },
    h("label", { for: "token" }, "Token"), token,
    h("p", { id: "hint", class: "quiet" }, "A token that the hub's API takes: a service account's, your identity provider's ID token, or one of the hub's token file."),
    h("button", { class: "main" }, "Log in"));
  put(main, h("section", { class: "login" },
    h("h1", {}, "The fleet"), why,
    found.user && !found.session
      ? [h("p", {}, `Your browser shows a certificate of ${found.user}.`),
        h("button", { class: "main", onclick: () => send({}) }, `Log in as ${found.user}`),
        h("p", {}, "Or as somebody else:")]
      : null,
    found.issuer
      ? [h("p", { class: "buttons" }, h("a", { href: "/ui/login", class: "button main" }, `Log in at ${found.issuer}`)), h("p", {}, "Or by a token:")]
      : null,
    form,
    h("h2", {}, "With a kubeconfig"),
    h("p", {}, "This prints an address that logs this browser in once, as you:"),
    h("pre", { tabindex: "0" }, "karmada-hub ui --kubeconfig FILE")));
  (token.offsetParent ? token : main).focus();
}

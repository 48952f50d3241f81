// What goes out in waves: a change of an application, or a version of the agents.

import { h, table } from "./dom.js";
import { time } from "./words.js";

export const GLYPHS = { well: "●", waits: "◆", acts: "▲", "no-news": "◌" };

/** How it is, in a sentence. */
export function stands(told) {
  const tone = told.failed || told.refused ? "acts" : told.waits || told.underWay ? "waits" : "well";
  return h("p", { class: tone }, `${GLYPHS[tone]} ${told.reason}: ${told.message}`);
}

/** Wave by wave. */
export function waves(told) {
  const stands = (wave) => (wave.opened ? ["begun ", time(wave.opened)] : wave.over ? "had no clusters" : wave.approve ? "waits for its turn, and for an approval" : "waits for its turn");
  return table("Waves", ["Wave", "Clusters", "State"], told.waves.map((wave, at) => [`${at + 1}: ${wave.name}`, wave.clusters, stands(wave)]), "No wave has been made yet.");
}

/** What a person can say to it now. */
export function next(told, tool, about = "") {
  return told.underWay || told.waits ? h("pre", { id: "next", tabindex: "0" }, `${tool} ${told.waits ? "resume" : "pause"}${about}`) : null;
}

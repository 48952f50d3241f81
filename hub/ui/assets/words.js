// Ages and times, by the hub's clock. The sentences themselves are the hub's: templates and one time each.

let offset = 0;

/** The hub says that it is this many milliseconds since 1970 now. */
export function setNow(millis) {
  offset = millis - performance.now();
}

/** Now, in milliseconds, by the hub's clock. Before it has said anything, by this one. */
export function now() {
  return offset ? performance.now() + offset : Date.now();
}

/** Seconds as words: one unit, as `karmada_core::judge::words::age` has it. */
export function age(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

/** How long it is until then. */
export function until(at) {
  return age(at - now() / 1000);
}

/** Seconds since then. */
export function since(at) {
  return now() / 1000 - at;
}

/** A time of the API, or seconds, as seconds since 1970; 0 for none. */
export function seconds(time) {
  if (!time) return 0;
  return typeof time === "number" ? time : Date.parse(time) / 1000;
}

const short = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const long = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

// Times of day are those of whoever looks.
const zone = long.resolvedOptions().timeZone;

/** The time of day, or with the date. */
export function clock(at, whole) {
  return (whole ? long : short).format(new Date(at * 1000));
}

/** A template with its time. */
export function sentence(template, at) {
  return template.replace("{age}", age(since(at))).replace("{time}", clock(at));
}

/** A time element, which counts on by itself if it shows an age. */
export function time(value, shows) {
  const at = seconds(value);
  if (!at) return null;
  const element = document.createElement("time");
  element.dateTime = new Date(at * 1000).toISOString();
  element.title = `${clock(at, true)} (${zone})`;
  element.dataset.at = at;
  element.dataset.shows = shows || "{age} ago";
  element.textContent = sentence(element.dataset.shows, at);
  return element;
}

/** Brings all ages that are shown up to date. */
export function tick(root) {
  for (const element of root.querySelectorAll("[data-at]")) {
    const text = sentence(element.dataset.shows, Number(element.dataset.at));
    if (element.textContent !== text) element.textContent = text;
  }
}

/** A text as one word of a command line: what is not plain stands in quotes, so that no shell reads more in it. */
export function quoted(text) {
  return /^[\w.,:/=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A number of bytes. */
export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; n >= 1024 && at < units.length - 1; at += 1) n /= 1024;
  return `${n < 10 && at ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

/** "1 cluster", "2 clusters". */
export function many(n, one, more) {
  return `${n.toLocaleString()} ${n === 1 ? one : more || `${one}s`}`;
}

//! The page as Prometheus had it before OpenMetrics: for whoever does not ask for that.

use std::fmt::Write as _;

use super::CONTENT_TYPE;

/// What the older format is served as.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The media type of OpenMetrics, for whoever asks for it.
pub const OPEN: &str = "application/openmetrics-text";

/// A page as it is wanted by `Accept`, and what it is then.
pub fn negotiated(accept: &str, page: String) -> (&'static str, String) {
    if wants_open(accept) { (CONTENT_TYPE, page) } else { (CLASSIC, classic(&page)) }
}

/// Whether OpenMetrics is named, and nothing that is wanted more.
fn wants_open(accept: &str) -> bool {
    let mut best = (0.0, false);
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let quality =
            parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
        let known = media == OPEN || matches!(media, "text/plain" | "text/*" | "*/*");
        if known && quality > best.0 {
            best = (quality, media == OPEN);
        }
    }
    best.1
}

/// OpenMetrics names a counter without the end of its samples' name, and ends with a line that says so.
fn classic(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut help = None;
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), text) => help = Some((name, text.unwrap_or_default())),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let end = if kind == "counter" { "_total" } else { "" };
                // Writing to a String does not fail.
                if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
                    let _ = writeln!(out, "# HELP {name}{end} {text}");
                }
                let kind = if kind == "unknown" { "untyped" } else { kind };
                let _ = writeln!(out, "# TYPE {name}{end} {kind}");
            }
            (Some("#"), Some("EOF" | "UNIT"), ..) => {}
            _ => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,\
                          text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, open) in [
            ("", false),
            ("*/*", false),
            ("application/json, */*", false),
            ("text/plain", false),
            (prometheus, true),
            (OPEN, true),
            ("application/openmetrics-text; q=0.2, text/plain; q=0.5", false),
        ] {
            assert_eq!(wants_open(accept), open, "{accept}");
        }
    }

    #[test]
    fn counters_have_the_names_of_their_samples() {
        let page = "# HELP a_requests Asked for.\n# TYPE a_requests counter\na_requests_total{x=\"# EOF\"} 1\n\
                    # HELP b_age An age.\n# TYPE b_age gauge\nb_age 2.5\n# EOF\n";
        let want = "# HELP a_requests_total Asked for.\n# TYPE a_requests_total counter\na_requests_total{x=\"# EOF\"} 1\n\
                    # HELP b_age An age.\n# TYPE b_age gauge\nb_age 2.5\n";
        assert_eq!(negotiated("", page.to_owned()), (CLASSIC, want.to_owned()));
        assert_eq!(negotiated(OPEN, page.to_owned()), (CONTENT_TYPE, page.to_owned()));
    }
}

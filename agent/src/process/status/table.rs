//! A status for people.

use std::{fmt::Write, time::SystemTime};

use karmada_meta::time::{Time, human_duration};

use super::{Line, Status};

/// No reason is longer than this in a table.
const LONGEST: usize = 240;

/// A status as text: what holds for all, and a table of Works.
pub(in crate::process) fn write(status: &Status) -> String {
    let mut text = String::new();
    let Status { cluster, version, time, rights, counts, queues, .. } = status;
    let now = SystemTime::from(time.timestamp());
    let ago = |then: Time| human_duration(then.elapsed(now));
    let mut line = |what: &str, is: String| {
        // A String takes everything.
        let _ = writeln!(text, "{what:<12}{}", plain(&is));
    };
    line("Cluster", format!("{cluster} (karmada-agent {version}, started {} ago)", ago(status.started)));
    let may = [("apply", rights.apply), ("delete", rights.delete), ("report", rights.report)];
    let may: Vec<&str> = may.iter().filter(|(_, may)| *may).map(|(word, _)| *word).collect();
    let may = if may.is_empty() { "may do nothing".to_owned() } else { format!("may {}", may.join(", ")) };
    let why = if status.why.is_empty() { String::new() } else { format!(": {}", status.why) };
    line("Phase", format!("{}; {may}{why}", status.phase));
    let renewed = match status.lease_renewed {
        Some(renewed) => format!("; took our lease {} ago", ago(renewed)),
        None => "; has taken no lease of ours since the start".to_owned(),
    };
    line("Hub", format!("{}{renewed}", link(&status.hub, &ago)));
    if let Some(ends) = status.certificate_ends {
        let left = ends.timestamp().duration_since(time.timestamp());
        let left = std::time::Duration::try_from(left).map(human_duration);
        let how = left.map_or_else(|_| "has ended".to_owned(), |left| format!("ends in {left}"));
        line("Certificate", format!("{how} ({ends})"));
    }
    line("Member", link(&status.member, &ago));
    line("Kept", status.kept.clone());
    if let Some(held) = &status.held {
        line("Held", held.clone());
    }
    for trouble in &status.troubles {
        line("Trouble", trouble.clone());
    }
    let parts = [
        ("applied", counts.applied),
        ("failing", counts.failing),
        ("held", counts.held),
        ("contested", counts.contested),
        ("waiting", counts.waiting),
        ("going", counts.going),
        ("suspended", counts.suspended),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(word, count)| *count > 0 || *word == "applied")
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    line("Works", format!("{}: {}", counts.works, parts.join(", ")));
    line("Objects", format!("{} of {} applied", counts.objects_applied, counts.objects));
    let fenced = match queues.fenced {
        0 => String::new(),
        some => format!(", {some} workloads stopped by their fence"),
    };
    line("Queued", format!("{} Works, {} reports to the hub{fenced}", queues.works, queues.reports));
    if status.works.is_empty() {
        return text;
    }
    let head = ["WORK", "STANDS", "FOR", "APPLIED", "OBJECTS", "WHY"].map(str::to_owned);
    let rows = status.works.iter().map(|row| {
        let more = row.objects.saturating_sub(row.names.len());
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        [
            plain(&row.work),
            row.stands.as_str().to_owned(),
            row.since.map(ago).unwrap_or_default(),
            format!("{}/{}", row.applied, row.objects),
            plain(&format!("{}{more}", row.names.join(", "))),
            plain(&row.why),
        ]
    });
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(rows).collect();
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    text.push('\n');
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("   ").trim_end());
    }
    if let Some(next) = &status.next {
        let _ = writeln!(text, "there are more: they come after {} (--after)", plain(next));
    }
    text
}

fn link(line: &Line, ago: &impl Fn(Time) -> String) -> String {
    let Line { server, connected, since, error, last_heard, .. } = line;
    let heard = match last_heard {
        Some(heard) => format!("heard {} ago", ago(*heard)),
        None => "not heard since the start".to_owned(),
    };
    match since.filter(|_| *connected) {
        Some(since) => format!("{server}, connected for {}, {heard}", ago(since)),
        None if error.is_empty() => format!("{server}, not connected, {heard}"),
        None => format!("{server}, not connected ({error}), {heard}"),
    }
}

/// One line of bounded length, without anything that a terminal would obey: others have written it.
fn plain(text: &str) -> String {
    let mut line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST + 1).collect();
    if line.chars().count() > LONGEST {
        line.pop();
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use karmada_member::outline::{Counts, Row, Stands};

    use super::{
        super::{Allowed, Queues},
        *,
    };

    fn status() -> Status {
        let at = |text: &str| text.parse::<Time>().unwrap();
        let row = |work: &str, stands, why: &str| Row {
            work: work.to_owned(),
            stands,
            why: why.to_owned(),
            since: Some(at("2026-01-02T03:00:00Z")),
            objects: 3,
            applied: 1,
            names: vec!["Namespace shop".to_owned(), "Deployment shop/web".to_owned()],
        };
        Status {
            version: "1.2.3".into(),
            cluster: "shop-17".into(),
            time: at("2026-01-02T03:04:05Z"),
            started: at("2026-01-01T03:04:05Z"),
            phase: "joining".into(),
            why: String::new(),
            rights: Allowed { apply: true, delete: false, report: false },
            hub: Line { server: "https://hub:6443".into(), error: "timed out".into(), ..Line::default() },
            member: Line {
                server: "https://10.0.0.1:6443".into(),
                connected: true,
                since: Some(at("2026-01-02T02:04:05Z")),
                last_heard: Some(at("2026-01-02T03:04:00Z")),
                ..Line::default()
            },
            certificate_ends: Some(at("2026-01-05T03:04:05Z")),
            lease_renewed: None,
            kept: "/var/lib/karmada-agent/shop-17".into(),
            held: Some("somebody at the machine holds changes back".into()),
            troubles: vec!["the agent's state: the disk\u{1b}[2J is full".into()],
            queues: Queues { works: 0, reports: 2, fenced: 0 },
            counts: Counts {
                works: 7,
                applied: 6,
                failing: 1,
                objects: 9,
                objects_applied: 7,
                ..Counts::default()
            },
            works: vec![row("web-1", Stands::Failing, "no\nroom"), row("x", Stands::Going, "")],
            next: Some("x".into()),
        }
    }

    #[test]
    fn people_are_told_in_lines() {
        let want = "\
Cluster     shop-17 (karmada-agent 1.2.3, started 24h ago)
Phase       joining; may apply
Hub         https://hub:6443, not connected (timed out), not heard since the start; has taken no lease of ours since the start
Certificate ends in 3d (2026-01-05T03:04:05Z)
Member      https://10.0.0.1:6443, connected for 60m, heard 5s ago
Kept        /var/lib/karmada-agent/shop-17
Held        somebody at the machine holds changes back
Trouble     the agent's state: the disk [2J is full
Works       7: 6 applied, 1 failing
Objects     7 of 9 applied
Queued      0 Works, 2 reports to the hub

WORK    STANDS    FOR    APPLIED   OBJECTS                                           WHY
web-1   failing   4m5s   1/3       Namespace shop, Deployment shop/web, and 1 more   no room
x       going     4m5s   1/3       Namespace shop, Deployment shop/web, and 1 more
there are more: they come after x (--after)
";
        assert_eq!(write(&status()), want);
    }

    #[test]
    fn what_was_written_as_json_is_read_as_it_was() {
        let text = serde_json::to_string(&status()).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status());
    }

    #[test]
    fn long_reasons_are_cut() {
        assert_eq!(plain(&"ä".repeat(LONGEST)), "ä".repeat(LONGEST));
        assert_eq!(plain(&"ä".repeat(LONGEST + 1)), format!("{}...", "ä".repeat(LONGEST)));
    }
}

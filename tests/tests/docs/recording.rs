//! The recording of a terminal that the tour shows: an animated SVG of what its steps have really printed. `UPDATE_DOCS=1` writes it
//! when the steps are run; otherwise it is looked whether it shows the page's commands.

use std::{fmt::Write as _, fs, path::PathBuf};

use crate::pages::docs;

/// Columns of the terminal; longer lines are cut.
const COLUMNS: usize = 112;
/// Its rows, unless more was typed at once.
const ROWS: usize = 32;
/// Pixels.
const ADVANCE: f64 = 7.8;
const LINE: usize = 18;
const MARGIN: usize = 16;
/// How long a screen stands at least, and for each line on it.
const STAND: f64 = 2.0;
const READ: f64 = 0.25;

/// A step: what was typed, and what came of it.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) typed: String,
    pub(crate) printed: String,
}

pub(crate) fn path(name: &str) -> PathBuf {
    docs().join("images").join(format!("{name}.svg"))
}

/// The lines that are typed, as a terminal shows them.
pub(crate) fn typed(script: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut open, mut document) = (false, None::<String>);
    for line in script.lines() {
        lines.push(cut(&format!("{}{line}", if open { "> " } else { "$ " })));
        if let Some(end) = &document {
            if line == end {
                (open, document) = (false, None);
            }
            continue;
        }
        document = line.split_once("<<").map(|(_, word)| word.trim_matches(['-', '\'', '"', ' ']).to_owned());
        open = document.is_some() || line.ends_with('\\');
    }
    lines
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(COLUMNS - 1) {
        Some((at, _)) if line.chars().count() > COLUMNS => format!("{}…", &line[..at]),
        _ => line.to_owned(),
    }
}

/// A screen of what was typed and, as far as there is room, the end of what was printed.
fn scrolled(mut typed: Vec<(bool, String)>, mut printed: Vec<(bool, String)>) -> Vec<(bool, String)> {
    let room = ROWS.saturating_sub(typed.len()).max(2);
    if printed.len() > room {
        printed.drain(..printed.len() - room + 1);
        typed.push((false, "…".to_owned()));
    }
    typed.append(&mut printed);
    typed
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A token is a secret even when its hub has gone: nobody is to learn to publish one.
fn masked(line: &str) -> String {
    match line.split_once("--token ") {
        Some((before, after)) => {
            let rest = after.split_once(' ').map_or("", |(_, rest)| rest);
            format!("{before}--token … {rest}")
        }
        None => line.to_owned(),
    }
}

/// Writes the recording of these screens.
pub(crate) fn write(name: &str, title: &str, screens: &[Screen]) {
    let screens: Vec<Vec<(bool, String)>> = screens
        .iter()
        .map(|screen| {
            let printed = screen.printed.lines().filter(|line| !line.trim().is_empty());
            let commands = typed(&screen.typed).into_iter().map(|line| (true, line));
            scrolled(commands.collect(), printed.map(|line| (false, cut(&masked(line)))).collect())
        })
        .collect();
    let most = screens.iter().map(Vec::len).max().unwrap_or_default();
    let stands: Vec<f64> = screens.iter().map(|lines| STAND + READ * lines.len() as f64).collect();
    let whole: f64 = stands.iter().sum();
    let (width, height) = ((COLUMNS as f64 * ADVANCE) as usize + 2 * MARGIN, most * LINE + 2 * MARGIN);
    let mut style = String::from(
        "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d4d4d4;white-space:pre}.c{fill:#7fd1ff}\
         g{opacity:0}@media(prefers-reduced-motion:reduce){g{animation:none!important}g:first-of-type{opacity:1}}",
    );
    let (mut body, mut at) = (String::new(), 0.0);
    for (number, (lines, stand)) in screens.iter().zip(&stands).enumerate() {
        let percent = |time: f64| 100.0 * time / whole;
        let (from, to) = (percent(at), percent(at + stand));
        let _ = write!(
            style,
            "@keyframes s{number}{{0%{{opacity:0}}{from:.2}%{{opacity:1}}{to:.2}%{{opacity:0}}100%{{opacity:0}}}}\
             .s{number}{{animation:s{number} {whole:.1}s step-end infinite}}"
        );
        let _ = writeln!(body, "<g class=\"s{number}\">");
        for (row, (command, line)) in lines.iter().enumerate() {
            let class = if *command { " class=\"c\"" } else { "" };
            let y = MARGIN + LINE * (row + 1) - 5;
            let _ = writeln!(body, "<text x=\"{MARGIN}\" y=\"{y}\"{class}>{}</text>", escaped(line));
        }
        body.push_str("</g>\n");
        at += stand;
    }
    let text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{title}</title>\n\
         <style>{style}</style>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1b1b1f\"/>\n{body}</svg>\n"
    );
    fs::write(path(name), text).unwrap();
}

/// The typed lines that the recording does not show.
pub(crate) fn missing(name: &str, scripts: &[&str]) -> Vec<String> {
    let shown = fs::read_to_string(path(name)).unwrap_or_default();
    let typed = scripts.iter().flat_map(|script| typed(script));
    typed.filter(|line| !shown.contains(&format!(">{}</text>", escaped(line)))).collect()
}

#[test]
fn what_is_typed_is_shown_as_in_a_terminal() {
    let script = "export A=1\ncat > f <<'YAML'\na: b\nYAML\nrun --x \\\n  --y\nend\n";
    assert_eq!(
        typed(script),
        ["$ export A=1", "$ cat > f <<'YAML'", "> a: b", "> YAML", "$ run --x \\", ">   --y", "$ end"]
    );
    assert_eq!(masked("join --token ab.cd --x"), "join --token … --x");
    assert_eq!(cut(&"x".repeat(COLUMNS + 5)).chars().count(), COLUMNS);
}

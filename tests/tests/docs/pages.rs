//! Pages of Markdown, as far as these tests have to understand them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The folder of the documentation.
pub(crate) fn docs() -> PathBuf {
    root().join("hub/docs")
}

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    /// What stands behind the fence: `sh run=tour-1`.
    pub(crate) info: String,
    /// The line at which it begins, counted from one.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// From the repository.
    pub(crate) path: PathBuf,
    /// The anchors of its headings, as GitHub makes them.
    pub(crate) anchors: BTreeSet<String>,
    /// Where its links lead.
    pub(crate) links: Vec<String>,
    /// What stands between backticks in running text.
    pub(crate) code: Vec<String>,
    pub(crate) blocks: Vec<Block>,
}

/// The README and all pages.
pub(crate) fn all() -> Vec<Page> {
    let mut paths = vec![root().join("README.md")];
    gather(&docs(), &mut paths);
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn gather(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, paths);
        } else if path.extension().is_some_and(|ext| ext == "md") {
            paths.push(path);
        }
    }
}

fn read(path: &Path) -> Page {
    let text = fs::read_to_string(path).unwrap();
    let mut page = Page { path: path.strip_prefix(root()).unwrap_or(path).to_owned(), ..Page::default() };
    let (mut running, mut fence) = (String::new(), None::<(String, Block)>);
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let ticks: String = trimmed.chars().take_while(|c| *c == '`').collect();
        match &mut fence {
            Some((open, block)) if ticks.len() >= open.len() && trimmed == ticks => {
                page.blocks.push(std::mem::replace(
                    block,
                    Block { info: String::new(), line: 0, text: String::new() },
                ));
                fence = None;
            }
            Some((_, block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            None if ticks.len() >= 3 => {
                let info = trimmed.trim_start_matches('`').to_owned();
                fence = Some((ticks, Block { info, line: index + 1, text: String::new() }));
            }
            None => {
                if let Some(heading) = heading(line) {
                    let anchor = anchor(heading);
                    let taken = |n: &usize| page.anchors.contains(&format!("{anchor}-{n}"));
                    let anchor = match page.anchors.contains(&anchor) {
                        true => format!("{anchor}-{}", (1..).find(|n| !taken(n)).unwrap()),
                        false => anchor,
                    };
                    page.anchors.insert(anchor);
                }
                running.push_str(line);
                running.push('\n');
            }
        }
    }
    assert!(fence.is_none(), "{}: a fence is not closed", path.display());
    let mut text = String::new();
    // Every second part is code; a pair of backticks never spans a paragraph here.
    for (index, part) in running.split('`').enumerate() {
        if index % 2 == 1 {
            page.code.push(part.split_whitespace().collect::<Vec<_>>().join(" "));
        } else {
            text.push_str(part);
        }
    }
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    page.links = targets.map(|(target, _)| target.to_owned()).collect();
    page
}

fn heading(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches('#');
    (rest.len() < line.len() && rest.starts_with(' ')).then(|| rest.trim())
}

/// As GitHub does it: lower case, without punctuation, hyphens for spaces.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn a_page_is_taken_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.md");
    let text = "# One `two`, (three)\n## One\n## One\nSee [`x`](b.md#c) and `--flag V`.\n````markdown\n```sh run=a-1\nno\n```\n````\n";
    fs::write(&path, text).unwrap();
    let page = read(&path);
    assert_eq!(page.anchors, ["one", "one-1", "one-two-three"].map(str::to_owned).into());
    assert_eq!((page.links, page.blocks.len()), (vec!["b.md#c".to_owned()], 1));
    assert_eq!(page.blocks[0].info, "markdown");
    assert!(page.code.contains(&"--flag V".to_owned()));
}

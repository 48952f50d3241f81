//! Pictures of the views, held roughly against those that were kept.
//!
//! Of each picture a few grey values are kept beside this file, as text: each stands for a part of the window, so that other
//! fonts make little difference, and a view that looks another way makes much. What changes by itself (ages, times, figures) is
//! painted over first. `UPDATE_DOCS=1` writes them, and the pictures that `hub/docs` shows; `KARMADA_TEST_PICTURES=DIR` keeps
//! all pictures there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::browser::Browser;

/// What is painted over: it is another each time.
const MASKED: &str =
    "time, [data-at], .tile small, .charts b, .charts svg, .ends, .strip svg, figcaption, .sum";
/// Pictures that `hub/docs` shows, and by which name.
const SHOWN: [(&str, &str); 3] =
    [("ten-thousand", "fleet"), ("cluster", "cluster"), ("application", "application")];
/// Parts side by side, whatever the window's width.
const ACROSS: usize = 64;
/// So much of what is drawn may be elsewhere, or otherwise. The same view differs from itself by three hundredths at most.
const TOLERANCE: f64 = 0.1;

/// Grey values of the parts of a picture, row by row; what is painted over is measured in the page as it is.
fn reduced(browser: &mut Browser, png: &str) -> Vec<u8> {
    let script = format!(
        "(async () => {{
            const picture = new Image();
            picture.src = 'data:image/png;base64,{png}';
            await picture.decode();
            const canvas = document.createElement('canvas');
            const [width, height] = [canvas.width = picture.width, canvas.height = picture.height];
            const pen = canvas.getContext('2d', {{ willReadFrequently: true }});
            pen.drawImage(picture, 0, 0);
            pen.fillStyle = getComputedStyle(document.body).backgroundColor;
            for (const element of document.querySelectorAll({MASKED:?})) {{
                const box = element.getBoundingClientRect();
                pen.fillRect(box.left, box.top, box.width, box.height);
            }}
            const side = width / {ACROSS};
            const grey = [];
            for (let y = 0; y + side <= height; y += side) {{
                for (let x = 0; x < width; x += side) {{
                    const pixels = pen.getImageData(Math.round(x), Math.round(y), Math.round(side), Math.round(side)).data;
                    let sum = 0;
                    for (let at = 0; at < pixels.length; at += 4) sum += pixels[at] * 0.3 + pixels[at + 1] * 0.59 + pixels[at + 2] * 0.11;
                    grey.push(Math.round(sum / (pixels.length / 4)));
                }}
            }}
            return grey;
        }})()"
    );
    let grey = browser.eval(&script);
    let grey = grey.as_array().expect("grey values");
    grey.iter()
        .map(|value| value.as_u64().and_then(|value| u8::try_from(value).ok()).expect("a byte"))
        .collect()
}

/// Which share of what is drawn in either of two pictures is not the same in both. What is drawn is what is not the ground, the
/// value that most parts of the first have.
fn differs(kept: &[u8], new: &[u8]) -> f64 {
    if kept.len() != new.len() {
        return 1.0;
    }
    let mut sorted = kept.to_vec();
    sorted.sort_unstable();
    let ground = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let (mut apart, mut drawn) = (0u64, 0u64);
    for (a, b) in kept.iter().zip(new) {
        apart += u64::from(a.abs_diff(*b));
        drawn += u64::from(a.abs_diff(ground).max(b.abs_diff(ground)));
    }
    // Sums of a few thousand bytes.
    apart as f64 / drawn.max(1) as f64
}

/// As text: a line for each row, two digits for each part.
fn written(grey: &[u8]) -> String {
    let row = |row: &[u8]| row.iter().map(|value| format!("{value:02x}")).collect::<String>() + "\n";
    grey.chunks(ACROSS).map(row).collect()
}

fn read(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let value =
        |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hexadecimal");
    digits.chunks(2).map(value).collect()
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/page/pictures/{name}.txt"))
}

fn kept(name: &str) -> Vec<u8> {
    let file = file(name);
    let text = fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}; UPDATE_DOCS=1 writes it", file.display()));
    read(&text)
}

/// Real clusters have names and objects of their own.
fn comparable() -> bool {
    std::env::var_os("KARMADA_TEST_MEMBERS").is_none_or(|named| named.is_empty())
}

/// Takes a picture of a view, and holds it against the one that was kept by this name.
pub(crate) fn picture(browser: &mut Browser, name: &str) {
    if !comparable() {
        return;
    }
    let png = browser.picture();
    keep(name, &png);
    let grey = reduced(browser, &png);
    let shown = SHOWN.iter().find(|(of, _)| *of == name).map(|(_, shown)| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../hub/docs/images/{shown}.png"))
    });
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(file(name), written(&grey)).unwrap();
        if let Some(shown) = &shown {
            fs::write(shown, STANDARD.decode(&png).unwrap()).unwrap();
        }
    }
    let is_as = |grey: &[u8], what: &str| {
        let differs = differs(&kept(name), grey);
        println!("{what}: {} differs from {name}.txt", percent(differs));
        assert!(
            differs <= TOLERANCE,
            "{what}: {} of it is not as in tests/page/pictures/{name}.txt; if it is to look so, run this test with UPDATE_DOCS=1",
            percent(differs)
        );
    };
    is_as(&grey, name);
    // What the documentation shows is no older view.
    if let Some(shown) = shown {
        let png = fs::read(&shown).unwrap_or_else(|error| panic!("{}: {error}", shown.display()));
        let grey = reduced(browser, &STANDARD.encode(png));
        is_as(&grey, &shown.display().to_string());
    }
}

/// Makes sure that a view which has changed is seen to have.
pub(crate) fn is_not(browser: &mut Browser, name: &str, change: &str) {
    if !comparable() {
        return;
    }
    browser.eval(change);
    let png = browser.picture();
    let share = differs(&kept(name), &reduced(browser, &png));
    println!("{name}, changed: {} differs", percent(share));
    assert!(share > TOLERANCE, "{change}: only {} of {name} differs", percent(share));
}

/// Keeps a picture where one is wanted.
fn keep(name: &str, png: &str) {
    if let Some(folder) = std::env::var_os("KARMADA_TEST_PICTURES") {
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(Path::new(&folder).join(format!("{name}.png")), STANDARD.decode(png).unwrap()).unwrap();
    }
}

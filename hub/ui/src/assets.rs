//! The page's files, as they stand in this program's read-only data.
//!
//! They are served below the digest of all of them, so that whoever has loaded one part has the others of the same program:
//! a file's address says what is in it, and it may be kept for ever. The document that names them is not kept at all.

use std::{io::Write as _, sync::OnceLock};

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

/// A file.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// How it is called.
    pub name: &'static str,
    /// What it is.
    pub content_type: &'static str,
    /// What is in it.
    pub bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! assets {
    ($($name:literal is $content_type:expr),+ $(,)?) => {
        [$(Asset { name: $name, content_type: $content_type, bytes: include_bytes!(concat!("../assets/", $name)) }),+]
    };
}

/// All files but the document.
pub static ASSETS: [Asset; 13] = assets![
    "ui.css" is "text/css; charset=utf-8",
    "app.js" is SCRIPT,
    "dom.js" is SCRIPT,
    "words.js" is SCRIPT,
    "data.js" is SCRIPT,
    "login.js" is SCRIPT,
    "fleet.js" is SCRIPT,
    "filters.js" is SCRIPT,
    "cluster.js" is SCRIPT,
    "apps.js" is SCRIPT,
    "waves.js" is SCRIPT,
    "whatif.js" is SCRIPT,
    "hub.js" is SCRIPT,
];

const DOCUMENT: &str = include_str!("../assets/index.html");

/// What the document has where the files' digest is to stand.
const PLACE: &str = "DIGEST";

/// The digest of all files.
pub fn digest() -> &'static str {
    static OF_ALL: OnceLock<String> = OnceLock::new();
    OF_ALL.get_or_init(|| {
        let mut all = Sha256::new();
        for asset in &ASSETS {
            all.update(asset.name);
            all.update(asset.bytes.len().to_le_bytes());
            all.update(asset.bytes);
        }
        all.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
    })
}

/// The document.
pub fn document() -> String {
    DOCUMENT.replace(PLACE, digest())
}

/// The file at what stands behind `/ui/a/`: `DIGEST/NAME`. That of another program is not here.
pub fn find(path: &str) -> Option<&'static Asset> {
    let (of, name) = path.split_once('/')?;
    ASSETS.iter().find(|asset| of == digest() && asset.name == name)
}

impl Asset {
    /// What is in it, in gzip. All files are packed once, for whoever asks first.
    pub fn packed(&self) -> &'static [u8] {
        static PACKED: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        let all = PACKED.get_or_init(|| ASSETS.iter().map(|asset| gzip(asset.bytes, 6)).collect());
        let at = ASSETS.iter().position(|asset| asset.name == self.name);
        at.and_then(|at| all.get(at)).map_or(&[], Vec::as_slice)
    }
}

/// Bytes in gzip.
pub fn gzip(bytes: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::new(level));
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a page may take over a narrow link.
    const MOST: usize = 40 << 10;

    #[test]
    fn the_page_is_small() {
        let all = ASSETS.iter().map(|asset| asset.packed().len()).sum::<usize>();
        assert!(ASSETS.iter().all(|asset| asset.packed() == gzip(asset.bytes, 6)));
        let whole = all + gzip(document().as_bytes(), 6).len();
        println!("the page: {whole} bytes in gzip");
        assert!(whole <= MOST, "{whole}");
    }

    #[test]
    fn files_are_found_by_the_digest_of_all() {
        let document = document();
        assert!(!document.contains(PLACE));
        for part in document.split('"').filter(|part| part.starts_with("/ui/a/")) {
            assert!(find(part.trim_start_matches("/ui/a/")).is_some(), "{part}");
        }
        for path in ["", "ui.css", "0000/ui.css", "../ui.css"] {
            assert!(find(path).is_none(), "{path}");
        }
        assert!(find(&format!("{}/ui.css", digest())).is_some());
        assert!(find(&format!("{}/../ui.css", digest())).is_none());
    }

    #[test]
    fn scripts_make_no_markup_and_ask_nobody_else() {
        for asset in &ASSETS {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            for never in [
                "innerHTML",
                "outerHTML",
                "insertAdjacent",
                "document.write",
                "eval(",
                "Function(",
                "@import",
            ] {
                assert!(!text.contains(never), "{}: {never}", asset.name);
            }
            for (at, _) in text.match_indices("://") {
                let around = &text[at.saturating_sub(40)..text.len().min(at + 30)];
                assert!(around.contains("http://www.w3.org/"), "{}: {around}", asset.name);
            }
        }
        for never in ["style=", "onclick", "<script>"] {
            assert!(!DOCUMENT.contains(never), "{never}");
        }
    }
}

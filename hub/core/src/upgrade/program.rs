//! Programs of a version, for agents that are no Pods: where each is fetched, and what it is to be.
//!
//! ```text
//!   karmada-hub upgrade agents --program x86_64=https://releases.example/0.6.0/karmada-agent-x86_64@sha256:5f…  (one per machine)
//!   agent: --upgrade-from=https://releases.example/   nothing from elsewhere
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

/// More machines than these are a mistake.
const MOST: usize = 8;
/// So is a longer address.
const LONGEST: usize = 512;

/// What runs on machines of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The kind, as Rust calls it: `x86_64`, `aarch64`.
    pub arch: String,
    /// Where it is, over HTTPS.
    pub url: String,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
}

impl Program {
    /// Reads `ARCH=URL@sha256:HEX`, some of them with spaces between.
    ///
    /// # Errors
    /// What is wrong, and what to write.
    pub fn read_all(text: &str) -> Result<Vec<Self>, String> {
        let all = text.split_whitespace().map(Self::read).collect::<Result<Vec<_>, _>>()?;
        if all.len() > MOST {
            return Err(format!("{} programs are more than {MOST}", all.len()));
        }
        for (at, program) in all.iter().enumerate() {
            if all[..at].iter().any(|other| other.arch == program.arch) {
                return Err(format!("there are two programs for {}", program.arch));
            }
        }
        Ok(all)
    }

    fn read(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            let shown: String = text.chars().take(96).collect();
            format!(
                "{shown:?} {what}; write ARCH=URL@sha256:HEX, such as x86_64=https://host/karmada-agent@sha256:…"
            )
        };
        let (arch, rest) = text.split_once('=').ok_or_else(|| wrong("names no kind of machine"))?;
        let (url, sha256) = rest.rsplit_once("@sha256:").ok_or_else(|| wrong("has no digest"))?;
        let names = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if arch.is_empty() || arch.len() > 16 || !arch.bytes().all(names) {
            return Err(wrong("names no kind of machine"));
        }
        if !is_digest(sha256) {
            return Err(wrong("has no digest of 64 small hexadecimal digits"));
        }
        address(url).map_err(|why| wrong(&why))?;
        Ok(Self { arch: arch.to_owned(), url: url.to_owned(), sha256: sha256.to_owned() })
    }

    /// Whether an owner lets it be fetched who names what addresses begin with.
    ///
    /// # Errors
    /// Why not.
    pub fn is_from(&self, prefix: &str) -> Result<(), String> {
        address(&self.url).map_err(|why| format!("the address {:?} {why}", self.url))?;
        match is_digest(&self.sha256) && self.url.starts_with(prefix) {
            true => Ok(()),
            false => Err(format!(
                "the owner of the agent lets programs be fetched from {prefix} only (--upgrade-from), and this one is at {}",
                self.url
            )),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}@sha256:{}", self.arch, self.url, self.sha256)
    }
}

/// Whether this is the name of a program's bytes, and so of a file.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether addresses may begin with this.
///
/// # Errors
/// What is wrong with it.
pub fn prefix(text: &str) -> Result<(), String> {
    address(text)?;
    match text.ends_with('/') {
        true => Ok(()),
        // Or host.example would mean host.example.org as well.
        false => Err("does not end with a slash".to_owned()),
    }
}

/// Whether this is an address of which nobody can say that it means something else than it looks like.
fn address(url: &str) -> Result<(), String> {
    let Some(rest) = url.strip_prefix("https://") else {
        return Err("does not begin with https://".to_owned());
    };
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"./:_~+-[]".contains(&b);
    let is_plain = url.len() <= LONGEST && rest.bytes().all(fits);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() || !is_plain || path.split('/').any(|part| part == "." || part == "..") {
        return Err(
            "is no plain address (letters, digits and . / : _ ~ + - without dots for folders)".to_owned()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    #[test]
    fn programs_are_read_for_each_kind_of_machine() {
        let text = format!(
            "x86_64=https://h.example:8443/a/b-1.0+x@sha256:{}\n aarch64=https://[::1]/c@sha256:{}",
            digest('a'),
            digest('0')
        );
        let all = Program::read_all(&text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(
            (all[0].url.as_str(), all[1].arch.as_str()),
            ("https://h.example:8443/a/b-1.0+x", "aarch64")
        );
        let again: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(Program::read_all(&again.join(" ")), Ok(all));
        assert_eq!(Program::read_all(" "), Ok(Vec::new()));
        let twice = format!("{} {}", again[0], again[0]);
        assert!(Program::read_all(&twice).unwrap_err().contains("two programs for x86_64"));
        let (good, bad) = (digest('a'), digest('A'));
        for (text, want) in [
            (format!("https://h/a@sha256:{good}"), "names no kind of machine"),
            (format!("x86_64=http://h/a@sha256:{good}"), "does not begin with https://"),
            (format!("x86_64=https://h/a@sha256:{bad}"), "has no digest of 64"),
            ("x86_64=https://h/a".to_owned(), "has no digest"),
            (format!("x86_64=https://h/../a@sha256:{good}"), "is no plain address"),
            (format!("x86_64=https://user@h/a@sha256:{good}"), "is no plain address"),
            (format!("x86_64=https://h/%2e%2e/a@sha256:{good}"), "is no plain address"),
            (format!("x86_64=https:///a@sha256:{good}"), "is no plain address"),
            (format!("{}=https://h/a@sha256:{good}", "x".repeat(17)), "names no kind of machine"),
        ] {
            let error = Program::read_all(&text).unwrap_err();
            assert!(error.contains(want) && error.contains("; write ARCH="), "{error}");
        }
        let many: Vec<_> = (0..9).map(|n| format!("a{n}=https://h/a@sha256:{good}")).collect();
        assert!(Program::read_all(&many.join(" ")).unwrap_err().contains("more than 8"));
    }

    #[test]
    fn an_owner_names_what_addresses_begin_with() {
        for (text, fits) in [
            ("https://h.example/", true),
            ("https://h.example/a/", true),
            ("https://h.example", false),
            ("https://h.example/a", false),
            ("http://h.example/", false),
            ("https://h.example/../", false),
        ] {
            assert_eq!(prefix(text).is_ok(), fits, "{text}");
        }
        let at = |url: &str| Program { arch: "x86_64".into(), url: url.into(), sha256: digest('a') };
        for (url, allowed) in [
            ("https://h.example/a/b", true),
            ("https://h.example/ab", false),
            ("https://h.example.org/a/b", false),
            ("https://h.example/a/../b", false),
            ("https://h.example/a/%2e%2e/b", false),
        ] {
            assert_eq!(at(url).is_from("https://h.example/a/").is_ok(), allowed, "{url}");
        }
        let odd = Program { sha256: "../../x".into(), ..at("https://h.example/a/b") };
        assert!(odd.is_from("https://h.example/a/").is_err());
    }
}

//! Which images the owner of an agent lets it run that is a Pod.
//!
//! ```text
//!   agent: --upgrade-image-from=registry.example/karmada/   nothing from elsewhere
//!          without it                                      the repository of the image that runs
//! ```

/// Whether images may begin with this.
///
/// # Errors
/// What is wrong with it.
pub fn image_prefix(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
    if text.is_empty() || text.starts_with(['/', ':']) || !text.chars().all(plain) {
        return Err("is no beginning of an image such as registry.example/karmada/".to_owned());
    }
    let last = text.rfind('/').map_or(text, |slash| &text[slash + 1..]);
    match text.contains('/') && last.contains(':') {
        true => Err("names a tag: name the repository, or what is before it".to_owned()),
        false => Ok(()),
    }
}

/// An image without its tag and digest.
pub fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(before, _)| before);
    let name = image.rfind('/').map_or(0, |slash| slash + 1);
    image[name..].find(':').map_or(image, |colon| &image[..name + colon])
}

/// Whether an owner lets an agent run an image that now runs another: from one of `from`, or from the repository of that one where
/// nothing is named.
///
/// # Errors
/// Why not.
pub fn image_is_from(image: &str, running: &str, from: &[String]) -> Result<(), String> {
    let allowed = match from {
        [] => repository(image) == repository(running),
        from => from.iter().any(|prefix| is_below(image, prefix)),
    };
    if allowed && !image.contains("..") {
        return Ok(());
    }
    let places = match from {
        [] => format!("{} only, where the one that runs is from", repository(running)),
        from => format!("{} only", from.join(" and ")),
    };
    Err(format!(
        "the owner of the agent lets it run images from {places} (--upgrade-image-from), and {image} is none of these"
    ))
}

/// Whether an image is what begins with a prefix: at the end of a name, so that host/a is not host/ab, nor host the same host's
/// other port.
fn is_below(image: &str, prefix: &str) -> bool {
    let Some(rest) = image.strip_prefix(prefix) else { return false };
    match rest.chars().next() {
        None => false,
        Some(_) if prefix.ends_with('/') => true,
        Some('/' | '@') => true,
        Some(':') => !rest.contains('/'),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_from_where_the_owner_says() {
        let old = "host:5000/x/agent:0.5.0";
        let rows: [(&str, &str, &[&str], bool); 20] = [
            ("host:5000/x/agent:0.6.0", old, &[], true),
            ("host:5000/x/agent@sha256:00", old, &[], true),
            ("host:5000/x/agent:0.6.0@sha256:00", old, &[], true),
            ("evil.example/rootkit:1", old, &[], false),
            ("host:5000/x/agents:0.6.0", old, &[], false),
            ("host:5000/x/agent/more:1", old, &[], false),
            ("host/x/agent:0.6.0", old, &[], false),
            ("agent:2", "agent:1", &[], true),
            ("agent:5000/evil", "agent:1", &[], false),
            ("host:5000/x/agent:0.6.0", old, &["host:5000/y/"], false),
            ("host:5000/y/agent:0.6.0", old, &["host:5000/y/"], true),
            ("z/agent:1", old, &["host:5000/y/", "z"], true),
            ("zz/agent:1", old, &["z"], false),
            ("host/y/agent:1", old, &["host/y/agent"], true),
            ("host/y/agent@sha256:00", old, &["host/y/agent"], true),
            ("host/y/agents:1", old, &["host/y/agent"], false),
            ("host:5001/evil:1", old, &["host"], false),
            ("host/y/../../evil:1", old, &["host/y/"], false),
            ("host/y/", old, &["host/y/"], false),
            ("host/y", old, &["host/y"], false),
        ];
        for (image, running, from, want) in rows {
            let from: Vec<String> = from.iter().map(|prefix| (*prefix).to_owned()).collect();
            let said = image_is_from(image, running, &from);
            assert_eq!(said.is_ok(), want, "{image} {from:?}: {said:?}");
            assert!(said.err().is_none_or(|why| why.contains("--upgrade-image-from") && why.contains(image)));
        }
    }

    #[test]
    fn prefixes_name_no_tag() {
        for good in ["host/x/", "host:5000/x", "agent", "host:5000/", "a.b-c_d/e"] {
            assert_eq!(image_prefix(good), Ok(()), "{good}");
        }
        for bad in ["", "/x", ":1", "host/x:1", "host/x@sha256:00", "a b", "a\nb"] {
            assert!(image_prefix(bad).is_err(), "{bad}");
        }
    }
}

//! Paths that somebody else has written, which others will read: a client that follows them, a server that decodes them.

/// Whether a path goes nowhere but down, however it is read: no `.` or `..`, nor what a server or a browser takes for
/// these, for a slash or for nothing at all. Behind `?` or `#` it is no path any more.
pub fn goes_down(to: &str) -> bool {
    let path = to.split(['?', '#']).next().unwrap_or_default();
    // Browsers drop tabs and the like, and then see what stood around them.
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return false;
    }
    let decoded = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
    !decoded.split(['/', '\\']).any(|part| matches!(part, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_up() {
        for (path, down) in [
            ("", true),
            ("/api/v1/", true),
            ("/a..b/.../.c", true),
            ("/a//b%20c", true),
            ("/a?to=/../b", true),
            ("/..", false),
            ("/a/../../b", false),
            ("/a/./b", false),
            ("/a/..?x", false),
            ("/a/..#x", false),
            ("/%2e%2E/b", false),
            ("/a%2f..%2Fb", false),
            ("/a%5c..%5Cb", false),
            ("/a\\..\\b", false),
            ("/.\t./b", false),
            ("/ä/b", false),
        ] {
            assert_eq!(goes_down(path), down, "{path:?}");
        }
    }
}

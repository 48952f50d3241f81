//! The page by keyboard alone: where Tab leads, and that one sees where one is.

use serde_json::json;

use crate::browser::Browser;

/// Who has the focus: an id, a tile's name, what it is called or what it says.
pub(crate) const FOCUS: &str = "(() => { const here = document.activeElement;
    return here.id || here.dataset?.name || here.getAttribute('aria-label') || here.textContent.trim(); })()";

/// So many stops are looked at until the last is given up for lost.
const STOPS: usize = 60;

/// What comes first on every view.
pub(crate) const HEADER: [&str; 6] = ["To the content", "Fleet", "Applications", "What if", "Hub", "Log out"];

/// Where the focus is now; one has to see it.
fn stop(browser: &mut Browser) -> String {
    let here = browser.eval(FOCUS).as_str().unwrap_or_default().to_owned();
    let seen = browser.eval(
        "(() => { const here = document.activeElement; const style = getComputedStyle(here); const box = here.getBoundingClientRect();
           return here === document.body || (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2
             && box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0); })()",
    );
    assert_eq!(seen, true, "one sees that {here:?} has the focus");
    here
}

/// With Tab from the top on to the first that is called so: all stops on the way.
pub(crate) fn walk(browser: &mut Browser, is_last: impl Fn(&str) -> bool) -> Vec<String> {
    browser.eval("scrollTo(0, 0); document.querySelector('.skip').focus(); 0");
    // The first was given the focus by a script: as a key does it, too.
    browser.press("Shift", "");
    let mut stops = vec![browser.eval(FOCUS).as_str().unwrap_or_default().to_owned()];
    walk_on(browser, &mut stops, is_last);
    stops
}

/// The same from where the focus is.
pub(crate) fn walk_on(browser: &mut Browser, stops: &mut Vec<String>, is_last: impl Fn(&str) -> bool) {
    for _ in 0..STOPS {
        browser.press("Tab", "");
        stops.push(stop(browser));
        if stops.last().is_some_and(|last| is_last(last)) {
            return;
        }
    }
    panic!("not found by keyboard within {STOPS} stops: {stops:?}");
}

/// A question keeps the focus until it is answered, gives it back to who asked, and is answered by keyboard.
pub(crate) fn question(browser: &mut Browser, button: &str, answer: &str) {
    let asks = "Boolean(document.querySelector('dialog[open] pre'))";
    walk(browser, |here| here == button);
    browser.press("Enter", "\r");
    browser.until("the question", asks);
    let mut found = Vec::new();
    for _ in 0..8 {
        browser.press("Tab", "");
        // Between its last and its first stop is the browser's own.
        let inside = browser.eval(
            "document.activeElement === document.body || document.querySelector('dialog').contains(document.activeElement)",
        );
        assert_eq!(inside, true, "nothing below the question gets the focus: {}", browser.eval(FOCUS));
        found.push(stop(browser));
    }
    for wanted in ["Cancel", answer] {
        assert!(found.iter().any(|one| one == wanted), "{wanted} is not among {found:?}");
    }
    browser.press("Escape", "");
    browser.until("no question", "!document.querySelector('dialog')");
    assert_eq!(browser.eval(FOCUS), json!(button), "who asked has the focus again");
    browser.press("Enter", "\r");
    browser.until("the question again", asks);
    walk_on(browser, &mut Vec::new(), |here| here == answer);
    browser.press("Enter", "\r");
    browser.until("no question", "!document.querySelector('dialog')");
}

//! Reads the tables that stand in the documentation: they are the tests.

/// The rows of a Markdown table, without its heads.
pub(crate) fn rows<const N: usize>(text: &str) -> Vec<[&str; N]> {
    let rows: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            let cells: Vec<_> =
                line.trim().trim_start_matches('|').trim_end_matches('|').split('|').map(str::trim).collect();
            <[&str; N]>::try_from(cells).unwrap_or_else(|cells| panic!("{cells:?} are not {N} cells"))
        })
        .collect();
    assert!(!rows.is_empty(), "the table is empty");
    rows
}

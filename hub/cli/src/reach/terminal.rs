//! The terminal that a command is run from.

use std::io;

use rustix::{
    stdio::{stdin, stdout},
    termios::{self, OptionalActions, Termios},
};

/// As it was, until this is dropped.
#[derive(Debug)]
pub(super) struct Raw(Termios);

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}

/// Passes every key on as it is. Nothing where standard input is no terminal.
pub(super) fn raw() -> io::Result<Option<Raw>> {
    if !termios::isatty(stdin()) {
        return Ok(None);
    }
    let before = termios::tcgetattr(stdin())?;
    let mut all = before.clone();
    all.make_raw();
    termios::tcsetattr(stdin(), OptionalActions::Now, &all)?;
    Ok(Some(Raw(before)))
}

/// Columns and rows, if there is one.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = termios::tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

//! How far a long command is: one line on a terminal that is written over, and nothing elsewhere.
//!
//! It goes to standard error. What a command prints in lines of its own goes through [`Progress::clear`] first, so that the two do
//! not run into each other.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use karmada_env::Env;
use parking_lot::Mutex;

/// Between two writes of the line.
const PACE: Duration = Duration::from_millis(100);
/// Where a terminal does not say how wide it is.
const WIDTH: usize = 80;
/// Before this much is done nobody can say how long the rest takes.
const EARLY: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    env: Env,
    begun: Duration,
    shows: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    done: u64,
    total: Option<u64>,
    at: String,
    written: Option<Duration>,
    is_there: bool,
}

impl Progress {
    /// Something begins that is called `what`, of so many parts if that is known.
    pub fn new(what: &'static str, total: Option<u64>, env: &Env) -> Self {
        Self::over(what, total, env, io::stderr().is_terminal())
    }

    fn over(what: &'static str, total: Option<u64>, env: &Env, shows: bool) -> Self {
        let state = Mutex::new(State { total, ..State::default() });
        Self { what, env: env.clone(), begun: env.now(), shows, state }
    }

    /// So many parts more are done; now it is `at` this one.
    pub fn add(&self, parts: u64, at: &str) {
        let mut state = self.state.lock();
        state.done += parts;
        at.clone_into(&mut state.at);
        self.write(&mut state);
    }

    /// So many are done in all.
    pub fn is_at(&self, done: u64, at: &str) {
        let mut state = self.state.lock();
        state.done = done;
        at.clone_into(&mut state.at);
        self.write(&mut state);
    }

    /// So many are done of so many, which is not known from the beginning.
    pub fn is_at_of(&self, done: u64, total: u64, at: &str) {
        self.state.lock().total = Some(total);
        self.is_at(done, at);
    }

    /// Takes the line away, for a line of another kind.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.is_there) {
            state.written = None;
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn write(&self, state: &mut State) {
        let now = self.env.now();
        if !self.shows || state.written.is_some_and(|written| now.saturating_sub(written) < PACE) {
            return;
        }
        (state.written, state.is_there) = (Some(now), true);
        let line = line(self.what, state, now.saturating_sub(self.begun), width());
        // A terminal that is gone is no reason to end.
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0).unwrap_or(WIDTH)
}

/// The line, no wider than the terminal.
fn line(what: &str, state: &State, took: Duration, width: usize) -> String {
    let mut line = match state.total {
        None => format!("{what}: {}", number(state.done)),
        Some(total) => {
            let share = (state.done.saturating_mul(100)).checked_div(total).unwrap_or(100).min(100);
            format!("{what}: {share}%, {} left", number(total.saturating_sub(state.done)))
        }
    };
    if let Some(total) = state.total.filter(|total| *total > state.done && state.done > 0 && took >= EARLY) {
        let rest = took.mul_f64((total - state.done) as f64 / state.done as f64);
        line.push_str(&format!(" (about {} s)", rest.as_secs() + 1));
    }
    if !state.at.is_empty() {
        line.push_str(&format!("  {}", state.at));
    }
    // A name from a file may hold what a terminal would obey.
    line.chars().filter(|c| !c.is_control()).take(width.saturating_sub(1)).collect()
}

/// `12,345`
fn number(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = Vec::new();
    if first > 0 {
        groups.push(&digits[..first]);
    }
    groups.extend((first..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use karmada_env::ManualClock;

    use super::*;

    #[test]
    fn what_is_done_and_what_is_left() {
        let state = |done, total, at: &str| State { done, total, at: at.to_owned(), ..State::default() };
        let secs = Duration::from_secs;
        let rows = [
            (state(0, Some(1200), ""), secs(0), 80, "apply: 0%, 1,200 left"),
            (state(300, Some(1200), "deployment/web"), secs(1), 80, "apply: 25%, 900 left  deployment/web"),
            (
                state(300, Some(1200), "deployment/web"),
                secs(10),
                80,
                "apply: 25%, 900 left (about 31 s)  deployment/web",
            ),
            (state(300, Some(1200), "deployment/web"), secs(1), 20, "apply: 25%, 900 lef"),
            (state(1200, Some(1200), ""), secs(10), 80, "apply: 100%, 0 left"),
            // More than was thought.
            (state(1300, Some(1200), ""), secs(10), 80, "apply: 100%, 0 left"),
            (state(0, Some(0), ""), secs(10), 80, "apply: 100%, 0 left"),
            (state(1_234_567, None, "works"), secs(10), 80, "apply: 1,234,567  works"),
            (state(1, None, "a\x1b[2Jb\n"), secs(10), 80, "apply: 1  a[2Jb"),
        ];
        for (state, took, width, want) in rows {
            assert_eq!(line("apply", &state, took, width), want);
        }
    }

    #[test]
    fn it_is_written_seldom_and_only_on_a_terminal() {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
        let env = Env::seeded(clock.clone(), 1);
        let progress = |shows| Progress::over("test", Some(3), &env, shows);
        let quiet = progress(false);
        quiet.add(1, "");
        assert_eq!(quiet.state.lock().written, None);
        let shown = progress(true);
        shown.add(1, "first");
        let written = shown.state.lock().written;
        assert!(written.is_some());
        shown.add(1, "second");
        assert_eq!(shown.state.lock().written, written, "too soon");
        clock.advance(PACE);
        shown.add(1, "third");
        assert!(shown.state.lock().written > written);
        shown.clear();
        assert!(!shown.state.lock().is_there);
        shown.is_at_of(1, 12, "");
        let state = shown.state.lock();
        assert_eq!(line("test", &state, PACE, 80), "test: 8%, 11 left");
    }
}

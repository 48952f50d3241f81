//! How often events are written or posted: so many times in a second, and some more at once after a pause.

use std::time::Duration;

use karmada_apiserver::audit::queue::{Lines, Lost};
use karmada_env::Env;
use tokio::{runtime::Handle, time::sleep};

/// A bucket that fills.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    rate: f64,
    burst: f64,
    /// What may be done now.
    left: f64,
    /// [`Env::now`] when that was so.
    at: Duration,
}

impl Pace {
    pub(super) fn new(rate: f64, burst: u32, now: Duration) -> Self {
        Self { rate, burst: f64::from(burst), left: f64::from(burst), at: now }
    }

    /// Takes one; for how long it has to be waited for.
    fn take(&mut self, now: Duration) -> Duration {
        self.left = (self.left + now.saturating_sub(self.at).as_secs_f64() * self.rate).min(self.burst) - 1.0;
        self.at = now;
        // What is owed is waited for, and no more than that: a clock may stand still.
        Duration::try_from_secs_f64(-self.left / self.rate).unwrap_or_default()
    }

    /// Waits until the next may be done. On a thread of its own.
    pub(super) fn wait(&mut self, env: &Env, runtime: &Handle) {
        let pause = self.take(env.now());
        if !pause.is_zero() {
            runtime.block_on(async { sleep(pause).await });
        }
    }
}

/// Lines of which so many are written at once, at a pace.
pub(super) struct Paced<T> {
    pub(super) to: T,
    pub(super) pace: Pace,
    /// How many at once.
    pub(super) lines: usize,
    pub(super) runtime: Handle,
    pub(super) env: Env,
}

impl<T: Lines> Lines for Paced<T> {
    /// Nobody waits for any of them, so that what is lost need not be the last: what comes after it is tried all the same.
    fn write(&mut self, mut lines: &[u8]) -> Result<(), Lost> {
        let mut lost: Option<Lost> = None;
        while !lines.is_empty() {
            let mut ends = lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
            let (some, rest) = lines.split_at(ends.nth(self.lines - 1).unwrap_or(lines.len()));
            self.pace.wait(&self.env, &self.runtime);
            if let Err(now) = self.to.write(some) {
                let before = lost.map_or(0, |lost| lost.lines);
                lost = Some(Lost { lines: before + now.lines, ..now });
            }
            lines = rest;
        }
        lost.map_or(Ok(()), Err)
    }

    fn end(&mut self) {
        self.to.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn some_go_at_once_and_then_so_many_in_a_second() {
        let mut pace = Pace::new(10.0, 3, Duration::ZERO);
        // when, and how long is waited then, in milliseconds
        for (now, want) in
            [(0, 0), (0, 0), (0, 0), (0, 100), (100, 100), (1000, 0), (1000, 0), (1000, 0), (1000, 100)]
        {
            let pause = pace.take(Duration::from_millis(now));
            assert!(
                pause.abs_diff(Duration::from_millis(want)) < Duration::from_millis(1),
                "{now}: {pause:?}"
            );
        }
    }

    /// Keeps what comes, and takes no more than so many bytes of a write.
    #[derive(Clone)]
    struct Kept(Arc<Mutex<Vec<String>>>, usize);

    impl Lines for Kept {
        fn write(&mut self, lines: &[u8]) -> Result<(), Lost> {
            if lines.len() > self.1 {
                return Err(Lost { lines: 1, why: std::io::ErrorKind::StorageFull.into() });
            }
            self.0.lock().push(String::from_utf8_lossy(lines).into_owned());
            Ok(())
        }
    }

    #[test]
    fn no_more_than_so_many_lines_are_written_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let kept = Kept(Arc::default(), 6);
        let (pace, env) = (Pace::new(1.0, 100, Duration::ZERO), Env::system());
        let mut paced = Paced { to: kept.clone(), pace, lines: 2, runtime: runtime.handle().clone(), env };
        assert!(paced.write(b"1\n2\n3\n").is_ok());
        assert_eq!(*kept.0.lock(), ["1\n2\n", "3\n"]);
        let lost = paced.write(b"1\n2\n333333\n4\n").expect_err("one is too long");
        assert_eq!(lost.lines, 1, "and those behind it in the same write are its own to count");
        kept.0.lock().clear();
        let lost = paced.write(b"333333\n2\n3\n4\n555555\n").expect_err("two are");
        assert_eq!(lost.lines, 2);
        assert_eq!(*kept.0.lock(), ["3\n4\n"], "what comes after what is lost is written");
    }
}

//! The last lines that were logged, for whoever asks a process for them: kept in memory, and bounded.

use std::{collections::VecDeque, io, sync::Arc};

use parking_lot::Mutex;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// No more lines are kept than this, nor more bytes than that.
const LINES: usize = 500;
const BYTES: usize = 64 << 10;

/// A line is cut after so many bytes.
const LINE: usize = 2 << 10;

/// See the module. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Recent(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    lines: VecDeque<Box<str>>,
    bytes: usize,
}

impl Recent {
    /// The lines, the oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().lines.iter().map(|line| line.to_string()).collect()
    }

    fn add(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(&line[..line.len().min(LINE)]);
        let line: Box<str> = line.trim_end().into();
        let mut inner = self.0.lock();
        inner.bytes += line.len();
        inner.lines.push_back(line);
        while inner.bytes > BYTES || inner.lines.len() > LINES {
            let Some(oldest) = inner.lines.pop_front() else { return };
            inner.bytes -= oldest.len();
        }
    }
}

/// Writes to standard error, and into [`Recent`] what is told at info or above: what is only logged when somebody looks
/// closely may show more than is meant to be passed on.
#[derive(Clone, Debug)]
pub(crate) struct Tee(pub(crate) Recent);

/// Writes one line.
pub(crate) struct Line(Option<Recent>);

impl io::Write for Line {
    // A line is formatted first, and comes whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(recent) = &self.0 {
            recent.add(line);
        }
        io::stderr().write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for Tee {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(None)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        Line((*meta.level() <= Level::INFO).then(|| self.0.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_no_more_than_a_bounded_number_of_bytes() {
        let recent = Recent::default();
        for n in 0..LINES + 7 {
            recent.add(format!("line {n}\n").as_bytes());
        }
        let lines = recent.lines();
        assert_eq!((lines.len(), lines[0].as_str()), (LINES, "line 7"));
        for _ in 0..LINES {
            recent.add("ä".repeat(LINE).as_bytes());
        }
        let lines = recent.lines();
        assert!(lines.iter().all(|line| line.len() <= LINE + 2), "{}", lines[0].len());
        assert!(lines.iter().map(String::len).sum::<usize>() <= BYTES && lines.len() > 20);
        recent.add(&[0xff; 9]);
        assert!(recent.lines().last().unwrap().starts_with('\u{fffd}'));
    }

    #[test]
    fn details_are_not_kept() {
        let recent = Recent::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::TRACE)
            .with_ansi(false)
            .with_writer(Tee(recent.clone()))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(work = "w", "carried out");
            tracing::debug!("a request");
            tracing::warn!("not carried out");
        });
        let lines = recent.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("carried out") && lines[0].contains("work=\"w\""), "{lines:?}");
    }
}

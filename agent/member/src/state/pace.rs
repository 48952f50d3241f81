//! How soon it is tried again to keep a state that was not taken.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(60);

/// Each attempt may write everything, on a card that bears so many writes.
const LONGEST: Duration = Duration::from_secs(4 * 3600);

/// Pauses that double until a state was kept for longer than the last of them.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Duration,
    kept: Option<Instant>,
}

impl Pace {
    /// A state is kept since then.
    pub(super) fn kept(&mut self, now: Instant) {
        self.kept.get_or_insert(now);
    }

    /// How long to wait after one more refusal.
    pub(super) fn next(&mut self) -> Duration {
        let lasted = self.kept.take().is_some_and(|kept| kept.elapsed() > self.last);
        self.last = if lasted { FIRST } else { (self.last * 2).clamp(FIRST, LONGEST) };
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_tried_less_and_less_often() {
        let mut pace = Pace::default();
        let minutes = |pace: &mut Pace| pace.next().as_secs() / 60;
        assert_eq!([minutes(&mut pace), minutes(&mut pace), minutes(&mut pace)], [1, 2, 4]);
        // Taken at the start of each round, and refused at once.
        pace.kept(Instant::now());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(minutes(&mut pace), 8);
        for _ in 0..10 {
            pace.next();
        }
        assert_eq!(minutes(&mut pace), 240);
        pace.kept(Instant::now());
        tokio::time::advance(Duration::from_secs(5 * 3600)).await;
        assert_eq!(minutes(&mut pace), 1);
    }
}

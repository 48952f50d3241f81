//! The way from requests to whoever keeps what is told: bounded, and nobody waits for what others have sent.
//!
//! ```text
//!   push ─▶ lines that wait ─▶ one thread ─▶ [`Lines`]: a file, or a webhook that takes many at once
//!      └──▶ one task for each event ───────▶ [`Posts`]: a webhook that somebody waits for
//! ```

use std::{
    fmt, io, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use karmada_env::Env;
use karmada_telemetry::metrics::Counter;
use parking_lot::{Condvar, Mutex};
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
};
use tokio_util::sync::CancellationToken;

use super::policy::Level;

/// How long events for a file are gathered while they come one after another: one write, and one turn of the thread, for
/// many.
const GATHER: Duration = Duration::from_millis(50);
/// Trouble is said again after so long.
const AGAIN: Duration = Duration::from_secs(300);

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Events.
    pub entries: usize,
    /// Their bytes, and those of bodies that wait for their event.
    pub bytes: usize,
    /// How long they are gathered at most, and how many are not waited with.
    pub gather: (Duration, usize),
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 10_000, bytes: 64 << 20, gather: (GATHER, usize::MAX) }
    }
}

/// Where lines go.
pub trait Lines: Send + 'static {
    /// Writes whole lines.
    ///
    /// # Errors
    /// When some of them, the last ones, were not written.
    fn write(&mut self, lines: &[u8]) -> Result<(), Lost>;

    /// There are no more.
    fn end(&mut self) {}
}

/// Where events go of which each is somebody's who waits: none waits for another, and none is refused with another.
pub trait Posts: Send + Sync + 'static {
    /// Posts one event, a line. Tries as often as it makes sense, and sees to it that there are not too many at a time.
    fn post(&self, line: Bytes) -> BoxFuture<'_, Result<(), String>>;
}

/// Lines that were not written.
#[derive(Debug)]
pub struct Lost {
    /// How many.
    pub lines: usize,
    /// Why.
    pub why: io::Error,
}

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(super) events: Counter,
    pub(super) dropped: Counter,
    pub(super) failed: Counter,
    pub(super) untold: Counter,
    pub(super) levels: [Counter; 4],
}

impl Counts {
    pub(super) fn level(&self, level: Level) {
        self.levels[level as usize].inc();
    }
}

/// Lines on their way.
pub struct Queue {
    limits: Limits,
    state: Mutex<State>,
    wake: Condvar,
    env: Env,
    /// Nothing, where a thread writes.
    posting: Option<Posting>,
    /// Nobody has taken anything for so long that somebody gave up waiting.
    away: AtomicBool,
    /// Everything is written that ever will be.
    pub(crate) done: CancellationToken,
    pub(crate) counts: Counts,
}

/// How events are posted one by one.
struct Posting {
    to: Arc<dyn Posts>,
    runtime: Handle,
    /// Tells the one that has been tried for longest without anybody's waiting for it to make room.
    crowded: Notify,
}

/// What becomes of a line that somebody waits for.
#[derive(Debug)]
pub(crate) enum Receipt {
    /// There was no room for it.
    Lost,
    /// Told when it is written, or lost.
    Sent(oneshot::Receiver<bool>),
}

#[derive(Default)]
struct State {
    /// One after another.
    lines: Vec<u8>,
    /// How many.
    entries: usize,
    /// Bytes of all that waits or is being written, and of bodies that wait for their event.
    bytes: usize,
    closed: bool,
    /// What the thread does.
    thread: Thread,
    /// When it was last said that something was dropped, and that something could not be posted.
    said: Option<Duration>,
    said_failed: Option<Duration>,
    /// How many are tried for which nobody waits any more, and which have not been told to make room.
    unawaited: usize,
    /// Who waits for which of the lines, by their places.
    waiting: Vec<(usize, oneshot::Sender<bool>)>,
}

/// What the thread that writes does.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Thread {
    #[default]
    Writes,
    /// Waits for a first line.
    Idle,
    /// Waits for more lines, for a short time.
    Gathers,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Whether it is time to say something again.
fn is_time(said: &mut Option<Duration>, now: Duration) -> bool {
    let is_time = said.is_none_or(|at| now.saturating_sub(at) >= AGAIN);
    if is_time {
        *said = Some(now);
    }
    is_time
}

impl Queue {
    /// Begins to write.
    ///
    /// # Errors
    /// When there is no thread.
    pub(crate) fn start(lines: impl Lines, limits: Limits, env: Env) -> io::Result<Arc<Self>> {
        let queue = Arc::new(Self::new(None, limits, env));
        let writer = queue.clone();
        std::thread::Builder::new().name("audit-log".to_owned()).spawn(move || {
            // However the thread ends, nobody waits for it any longer.
            let _done = writer.done.clone().drop_guard();
            writer.write(lines);
        })?;
        Ok(queue)
    }

    /// One that posts each line by itself. In a runtime.
    pub(crate) fn posting(to: impl Posts, limits: Limits, env: Env) -> Arc<Self> {
        let posting = Posting { to: Arc::new(to), runtime: Handle::current(), crowded: Notify::new() };
        Arc::new(Self::new(Some(posting), limits, env))
    }

    fn new(posting: Option<Posting>, limits: Limits, env: Env) -> Self {
        Self {
            limits,
            state: Mutex::default(),
            wake: Condvar::new(),
            env,
            posting,
            away: AtomicBool::new(false),
            done: CancellationToken::new(),
            counts: Counts::default(),
        }
    }

    /// Sends a line, or counts that there was no room for it. Lines about who was `refused` have half of the room, so that
    /// nobody keeps what others have done out of the log by asking.
    pub(crate) fn push(self: &Arc<Self>, line: &[u8], refused: bool) {
        self.send(line, refused, None);
    }

    /// The same, and somebody waits for what becomes of it.
    pub(crate) fn push_awaited(self: &Arc<Self>, line: &[u8], refused: bool) -> Receipt {
        let (tell, told) = oneshot::channel();
        if self.send(line, refused, Some(tell)) { Receipt::Sent(told) } else { Receipt::Lost }
    }

    fn send(self: &Arc<Self>, line: &[u8], refused: bool, tell: Option<oneshot::Sender<bool>>) -> bool {
        self.counts.events.inc();
        let share = if refused { 2 } else { 1 };
        let mut state = self.state.lock();
        let mut fits = state.entries < self.limits.entries / share
            && state.bytes.saturating_add(line.len()) <= self.limits.bytes / share;
        let gives_way = !fits && !refused && !state.closed && state.unawaited > 0;
        if let Some(posting) = self.posting.as_ref().filter(|_| gives_way) {
            // One goes that was given up, and this one has its place: whoever comes after an outage does not wait for the
            // pauses of those who came in it.
            state.unawaited -= 1;
            posting.crowded.notify_one();
            // A place for a place. Bytes there are no more of before it has gone: for whoever comes next.
            fits = state.bytes.saturating_add(line.len()) <= self.limits.bytes;
        }
        if !fits || state.closed {
            let say = !state.closed && is_time(&mut state.said, self.env.now());
            drop(state);
            self.counts.dropped.inc();
            if say {
                tracing::error!(
                    entries = self.limits.entries,
                    bytes = self.limits.bytes,
                    "audit events are dropped: more wait to be written than there is room for; they are counted in \
                     apiserver_audit_error_total"
                );
            }
            return false;
        }
        state.entries += 1;
        state.bytes += line.len();
        if let Some(posting) = &self.posting {
            drop(state);
            self.post(posting, Bytes::copy_from_slice(line), tell);
            return true;
        }
        state.lines.extend_from_slice(line);
        if let Some(tell) = tell {
            let place = state.entries - 1;
            state.waiting.push((place, tell));
        }
        let wake = match state.thread {
            Thread::Writes => false,
            Thread::Idle => true,
            Thread::Gathers => {
                let half = 2 * state.entries >= self.limits.entries || 2 * state.bytes >= self.limits.bytes;
                half || state.entries >= self.limits.gather.1
            }
        };
        if wake {
            state.thread = Thread::Writes;
        }
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        true
    }

    /// Posts a line by itself. That goes on when nobody waits for it any more.
    fn post(self: &Arc<Self>, posting: &Posting, line: Bytes, tell: Option<oneshot::Sender<bool>>) {
        let (queue, to) = (self.clone(), posting.to.clone());
        posting.runtime.spawn(async move {
            // Whoever waits is told, however this ends.
            let mut sent = Sent { queue: &queue, bytes: line.len(), tell, done: false };
            let mut posted = std::pin::pin!(to.post(line));
            let outcome = tokio::select! {
                biased;
                outcome = &mut posted => outcome,
                () = sent.unawaited() => {
                    let mut one = Unawaited::begin(&queue);
                    tokio::select! {
                        biased;
                        outcome = &mut posted => outcome,
                        () = queue.crowded() => {
                            one.told = true;
                            Err("there was no room to try it any longer".to_owned())
                        }
                    }
                }
            };
            match outcome {
                Ok(()) => sent.arrived(),
                Err(why) => queue.cannot(1, &why),
            }
        });
    }

    /// Somebody needs the room of a line for which nobody waits.
    async fn crowded(&self) {
        match &self.posting {
            Some(posting) => posting.crowded.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Some lines could not be written.
    fn cannot(&self, lines: u64, why: &dyn fmt::Display) {
        self.counts.failed.inc_by(lines);
        if is_time(&mut self.state.lock().said_failed, self.env.now()) {
            tracing::error!(
                "audit events cannot be written and are lost: {why}; they are counted in apiserver_audit_error_total, and \
                 writing is tried again"
            );
        }
    }

    /// Something was written.
    fn can(&self) {
        if self.away.swap(false, Ordering::Relaxed) {
            tracing::warn!("audit events are taken again: requests wait for them as before");
        }
        if self.state.lock().said_failed.take().is_some() {
            tracing::warn!("audit events are written again");
        }
    }

    /// Whether somebody gave up waiting since something was written last.
    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// Somebody has given up waiting; whether they are the first.
    pub(crate) fn gave_up(&self) -> bool {
        !self.away.swap(true, Ordering::Relaxed)
    }

    /// Bytes for which there is room.
    pub(crate) fn left(&self) -> usize {
        self.limits.bytes.saturating_sub(self.state.lock().bytes)
    }

    /// Room for a body that waits for its event.
    pub(crate) fn room(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        let mut state = self.state.lock();
        // The event needs as much again, while both are there.
        if state.bytes.saturating_add(bytes.saturating_mul(2)) > self.limits.bytes {
            return None;
        }
        state.bytes += bytes;
        drop(state);
        Some(Room { queue: self.clone(), bytes })
    }

    /// Takes no more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        if self.posting.is_some() && state.entries == 0 {
            self.done.cancel();
        }
        drop(state);
        self.wake.notify_one();
    }

    /// How many lines wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().entries
    }

    /// What the thread does.
    fn write(&self, mut to: impl Lines) {
        let (mut lines, mut waiting) = (Vec::new(), Vec::new());
        loop {
            let mut state = self.state.lock();
            while state.entries == 0 && !state.closed {
                state.thread = Thread::Idle;
                self.wake.wait(&mut state);
            }
            state.thread = Thread::Writes;
            if state.entries == 0 {
                break;
            }
            mem::swap(&mut state.lines, &mut lines);
            mem::swap(&mut state.waiting, &mut waiting);
            let count = mem::take(&mut state.entries);
            drop(state);
            let written = match to.write(&lines) {
                Ok(()) => {
                    self.can();
                    count
                }
                Err(Lost { lines, why }) => {
                    let lost = lines.min(count);
                    self.cannot(lost as u64, &why);
                    count - lost
                }
            };
            for (place, tell) in waiting.drain(..) {
                // Who has given up does not listen.
                let _ = tell.send(place < written);
            }
            let bytes = lines.len();
            lines.clear();
            // One large batch does not keep its memory for ever.
            lines.shrink_to(1 << 20);
            let mut state = self.state.lock();
            state.bytes = state.bytes.saturating_sub(bytes);
            let (gather, enough) = self.limits.gather;
            let waits = !state.closed && !gather.is_zero() && state.entries < enough;
            if waits && 2 * state.entries < self.limits.entries {
                state.thread = Thread::Gathers;
                self.wake.wait_for(&mut state, gather);
            }
        }
        to.end();
    }
}

/// An event on its way by itself; without [`Sent::arrived`] it is lost.
struct Sent<'a> {
    queue: &'a Queue,
    bytes: usize,
    tell: Option<oneshot::Sender<bool>>,
    done: bool,
}

impl Sent<'_> {
    /// Nobody waits for it any more.
    async fn unawaited(&mut self) {
        if let Some(tell) = &mut self.tell {
            tell.closed().await;
        }
    }

    fn arrived(mut self) {
        self.done = true;
        self.queue.can();
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.entries -= 1;
        state.bytes = state.bytes.saturating_sub(self.bytes);
        if state.closed && state.entries == 0 {
            self.queue.done.cancel();
        }
        drop(state);
        if let Some(tell) = self.tell.take() {
            let _ = tell.send(self.done);
        }
    }
}

/// A line that is tried though nobody waits for it.
struct Unawaited<'a> {
    queue: &'a Queue,
    /// It was told to make room.
    told: bool,
}

impl<'a> Unawaited<'a> {
    fn begin(queue: &'a Queue) -> Self {
        queue.state.lock().unawaited += 1;
        Self { queue, told: false }
    }
}

impl Drop for Unawaited<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        let others = if self.told { state.unawaited } else { state.unawaited.saturating_sub(1) };
        // There are no more than lines, whoever was told at the moment at which it ended by itself.
        state.unawaited = others.min(state.entries.saturating_sub(1));
    }
}

/// Room that a body has in the queue.
pub(crate) struct Room {
    queue: Arc<Queue>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.bytes = state.bytes.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Hands on what it gets, and does with it as it is told.
    struct Told {
        got: mpsc::Sender<Vec<u8>>,
        then: mpsc::Receiver<Result<(), usize>>,
    }

    impl Lines for Told {
        fn write(&mut self, lines: &[u8]) -> Result<(), Lost> {
            let _ = self.got.send(lines.to_vec());
            let then = self.then.recv().unwrap_or(Ok(()));
            then.map_err(|lines| Lost { lines, why: io::ErrorKind::StorageFull.into() })
        }
    }

    struct Story {
        queue: Arc<Queue>,
        got: mpsc::Receiver<Vec<u8>>,
        then: mpsc::Sender<Result<(), usize>>,
    }

    impl Story {
        fn begin(entries: usize, bytes: usize) -> Self {
            let ((got, read), (then, told)) = (mpsc::channel(), mpsc::channel());
            let limits = Limits { entries, bytes, ..Limits::default() };
            let queue = Queue::start(Told { got, then: told }, limits, Env::system()).unwrap();
            Self { queue, got: read, then }
        }

        fn got(&self) -> String {
            let got = self.got.recv_timeout(Duration::from_secs(60)).expect("lines are written");
            String::from_utf8(got).unwrap()
        }

        fn counts(&self) -> [u64; 3] {
            let Counts { events, dropped, failed, .. } = &self.queue.counts;
            [events.get(), dropped.get(), failed.get()]
        }

        async fn end(&self) {
            self.queue.close();
            tokio::time::timeout(Duration::from_secs(60), self.queue.done.cancelled()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_has_no_room_is_dropped_and_counted_and_nobody_waits() {
        let story = Story::begin(2, 100);
        story.queue.push(b"1\n", false);
        assert_eq!(story.got(), "1\n");
        // The disk does not answer: two more wait, the third has no place.
        for line in [b"2\n", b"3\n", b"4\n"] {
            story.queue.push(line, false);
        }
        assert_eq!((story.counts(), story.queue.waiting()), ([4, 1, 0], 2));
        story.then.send(Ok(())).unwrap();
        assert_eq!(story.got(), "2\n3\n", "in their order, and at once");
        story.then.send(Ok(())).unwrap();
        story.end().await;
        story.queue.push(b"5\n", false);
        assert_eq!(story.counts(), [5, 2, 0], "there is nobody to write it");
        // Bytes count like entries, also while they are being written.
        let story = Story::begin(100, 8);
        story.queue.push(b"12345\n", false);
        assert_eq!(story.got(), "12345\n");
        story.queue.push(b"123\n", false);
        story.queue.push(b"1\n", false);
        assert_eq!(story.counts(), [3, 1, 0]);
        drop(story.then);
        story.queue.close();
        assert_eq!(story.got.recv().unwrap(), b"1\n");
    }

    #[tokio::test]
    async fn who_is_refused_leaves_room_for_the_others() {
        let story = Story::begin(4, 100);
        story.queue.push(b"1\n", false);
        assert_eq!(story.got(), "1\n");
        for line in [b"2\n", b"3\n", b"4\n"] {
            story.queue.push(line, true);
        }
        story.queue.push(b"5\n", false);
        assert_eq!((story.counts(), story.queue.waiting()), ([5, 1, 0], 3));
        story.then.send(Ok(())).unwrap();
        assert_eq!(story.got(), "2\n3\n5\n");
        story.then.send(Ok(())).unwrap();
        story.end().await;
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_counted_and_the_rest_goes_on() {
        let story = Story::begin(10, 100);
        for (line, then, failed) in [(b"1\n", Err(1), 1), (b"2\n", Err(1), 2), (b"3\n", Ok(()), 2)] {
            story.queue.push(line, false);
            assert_eq!(story.got().as_bytes(), line);
            story.then.send(then).unwrap();
            if line == b"3\n" {
                story.end().await;
            }
            // The next line is only written after this one was counted.
            story.queue.push(b"x\n", false);
            if line != b"3\n" {
                assert_eq!(story.got(), "x\n");
                assert_eq!(story.counts()[2], failed);
                story.then.send(Ok(())).unwrap();
            }
        }
        assert_eq!(story.counts(), [6, 1, 2]);
    }

    #[tokio::test]
    async fn who_waits_is_told_of_their_own_line() {
        let story = Story::begin(10, 100);
        let told = |receipt| async {
            match receipt {
                Receipt::Sent(told) => told.await.ok(),
                Receipt::Lost => None,
            }
        };
        let first = story.queue.push_awaited(b"1\n", false);
        assert_eq!(story.got(), "1\n");
        let (second, third) =
            (story.queue.push_awaited(b"2\n", false), story.queue.push_awaited(b"3\n", false));
        story.then.send(Ok(())).unwrap();
        assert_eq!(told(first).await, Some(true));
        assert_eq!(story.got(), "2\n3\n");
        story.then.send(Err(1)).unwrap();
        assert_eq!(
            (told(second).await, told(third).await),
            (Some(true), Some(false)),
            "the last one is lost"
        );
        story.end().await;
        assert_eq!(told(story.queue.push_awaited(b"4\n", false)).await, None);
    }

    #[tokio::test]
    async fn bodies_take_room_until_they_are_told() {
        let story = Story::begin(10, 100);
        let room = story.queue.room(30).expect("there is room for it and for its event");
        assert!(story.queue.room(36).is_none());
        story.queue.push(&[b'x'; 71], false);
        assert_eq!(story.counts(), [1, 1, 0]);
        drop(room);
        assert!(story.queue.room(50).is_some());
        story.end().await;
    }
}

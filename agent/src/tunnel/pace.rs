//! What crosses a tunnel gives way to leases and Works, which go by a connection of their own over the same link.
//!
//! ```text
//!   tunnel's connection ── Paced: so many bytes, then it waits ◀── room ── Pacer ── GET /livez ──▶ hub, by the other connection
//! ```
//!
//! While bytes cross, the hub is asked something small by that other connection, again and again. A lease would wait as long
//! as that takes. Between two answers so many bytes cross: more of them while answers come as soon as they do on a link that
//! is free, and fewer when they come late. So what waits on the link is what crosses it within a moment, whatever the link
//! can carry and however much a router would keep; and nobody has to say what the link can.
//!
//! Both directions count together, what is received because its sender may send no more before it is read. A tunnel on
//! which little happens asks nothing.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};

/// Bytes before the link is known.
const FIRST: usize = 8 << 10;
/// And between two answers at least: it goes on whatever happens.
const LEAST: usize = 2 << 10;
/// While an answer is awaited for longer than this, as much may cross again, and a little in each direction whatever crosses in
/// the other: by that, both ends hear of each other.
const TRICKLE: Duration = Duration::from_secs(1);
const SPARE: usize = 512;
/// And at most.
const MOST: usize = 16 << 20;
/// Below this nobody is asked: a session in which somebody types is not worth it.
const LITTLE: usize = 4 << 10;
/// So much later than on a free link an answer may come.
const LATE: Duration = Duration::from_millis(200);
/// After so many answers the link is given a moment in which it is free, and is known anew: its way may be another.
const ANEW: u32 = 64;
/// After so many late ones in a row, though next to nothing crosses, it is known anew at once: it is not the tunnel that holds them
/// up, but the hub, or what else is on the link.
const STUCK: u32 = 8;
/// Where nothing at all has come for so long there is nobody: the hub answers whether it is there every ten seconds;
const SILENCE: Duration = Duration::from_secs(16);
/// longer by what was sent since, which its answer waits behind, at so many bytes a second,
const SLOW: usize = 4 << 10;
/// and never longer than that.
const LONGEST: Duration = Duration::from_secs(60);
/// From one question to the next at least.
const PAUSE: Duration = Duration::from_millis(25);
/// An answer that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much may cross.
#[derive(Clone, Debug)]
struct Pace {
    /// Between two answers.
    most: usize,
    /// How long an answer takes on the link when it is free.
    free: Option<Duration>,
    /// It has been too much before: from then on it grows slowly.
    met: bool,
    answers: u32,
    /// Late ones in a row while next to nothing crosses.
    stuck: u32,
}

impl Pace {
    const fn new() -> Self {
        // The first answers tell how the link is.
        Self { most: FIRST, free: None, met: false, answers: ANEW - 2, stuck: 0 }
    }

    /// Whether the link is let be free: for one answer, so that it is, and for the next, by which it is known.
    const fn looks(&self) -> bool {
        self.answers % ANEW >= ANEW - 2
    }

    /// What may cross before the next answer.
    const fn room(&self) -> usize {
        if self.looks() { LEAST } else { self.most }
    }

    /// An answer has come after so long; whether all that might cross has.
    fn answered(&mut self, took: Duration, used_up: bool) {
        let looked = self.looks();
        self.answers = self.answers.wrapping_add(1);
        if looked {
            if self.answers.is_multiple_of(ANEW) {
                self.free = Some(took);
            }
            return;
        }
        let free = self.free.map_or(took, |free| free.min(took));
        self.free = Some(free);
        let late = took.saturating_sub(free);
        // One that did not come says nothing of the link.
        let is_stuck = late > LATE && self.most == LEAST && took < PATIENCE;
        self.stuck = if is_stuck { self.stuck + 1 } else { 0 };
        if self.stuck == STUCK {
            (self.stuck, self.met) = (0, false);
            self.answers = self.answers / ANEW * ANEW + ANEW - 2;
            return;
        }
        let more = if late > LATE {
            self.met = true;
            self.most / 2
        } else if !used_up || late >= LATE / 2 {
            self.most
        } else if late < LATE / 4 && !self.met {
            self.most * 2
        } else {
            self.most + self.most / 8
        };
        self.most = more.clamp(LEAST, MOST);
    }
}

#[derive(Debug)]
struct State {
    pace: Pace,
    /// What may still cross before the next answer.
    left: usize,
    /// What has, since the last one.
    crossed: usize,
    /// All of it has.
    used_up: bool,
    /// What may cross besides: read, and written.
    spare: [usize; 2],
    /// When something was read, and what was written since.
    heard: Instant,
    unheard: usize,
    /// An answer is on its way.
    asked: bool,
    waiting: [Option<Waker>; 2],
}

/// Directions.
const READ: usize = 0;
const WRITTEN: usize = 1;

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    busy: Notify,
}

impl Shared {
    /// So many bytes have crossed in a direction.
    fn crossed(&self, way: usize, bytes: usize) {
        let mut state = self.state.lock();
        if way == READ && bytes > 0 {
            (state.heard, state.unheard) = (Instant::now(), 0);
        } else if way == WRITTEN {
            state.unheard = state.unheard.saturating_add(bytes);
        }
        let beyond = bytes.saturating_sub(state.left);
        state.left -= bytes - beyond;
        state.spare[way] = state.spare[way].saturating_sub(beyond);
        state.used_up |= state.left == 0;
        state.crossed += bytes;
        if !state.asked && (state.crossed >= LITTLE || state.left == 0) {
            state.asked = true;
            self.busy.notify_one();
        }
    }

    fn answered(&self, took: Duration) {
        let mut state = self.state.lock();
        let used_up = state.used_up;
        state.pace.answered(took, used_up);
        state.left = state.pace.room();
        (state.crossed, state.asked, state.used_up, state.spare) = (0, false, false, [0; 2]);
        state.wake();
    }

    /// The answer is late: a little may cross all the same.
    fn trickle(&self) {
        let mut state = self.state.lock();
        state.left = state.left.max(LEAST);
        state.spare = [SPARE; 2];
        state.wake();
    }
}

impl State {
    /// What may cross in a direction now; none where that is nothing, and then it is said when there is more.
    fn room(&mut self, way: usize, context: &Context<'_>) -> Option<usize> {
        let room = self.left.max(self.spare[way]);
        if room > 0 {
            return Some(room);
        }
        self.waiting[way] = Some(context.waker().clone());
        None
    }

    /// When there is nobody, if nothing comes until then.
    fn silent_at(&self) -> Instant {
        let on_its_way = Duration::from_secs((self.unheard / SLOW) as u64);
        self.heard + (SILENCE + on_its_way).min(LONGEST)
    }

    fn wake(&mut self) {
        for waker in self.waiting.iter_mut().filter_map(Option::take) {
            waker.wake();
        }
    }
}

/// A connection that gives way, and what has to run for it.
pub(super) fn paced<T>(io: T) -> (Paced<T>, Pacer) {
    let (pace, left) = (Pace::new(), FIRST);
    let state = State {
        pace,
        left,
        crossed: 0,
        used_up: false,
        spare: [0; 2],
        heard: Instant::now(),
        unheard: 0,
        asked: false,
        waiting: [None, None],
    };
    let shared = Arc::new(Shared { state: Mutex::new(state), busy: Notify::new() });
    (Paced { io, shared: shared.clone() }, Pacer(shared))
}

/// Asks, and makes room.
#[derive(Debug)]
pub(super) struct Pacer(Arc<Shared>);

impl Pacer {
    /// Runs as long as something comes by the connection. `ask` has an answer when one has come, whatever it says.
    pub(super) async fn run<F: Future<Output = ()>>(self, ask: impl Fn() -> F) {
        let Self(shared) = self;
        tokio::select! {
            () = Self::pace(&shared, ask) => {}
            () = Self::silence(&shared) => tracing::debug!("nothing was heard of the hub by the tunnel for too long"),
        }
    }

    async fn silence(shared: &Shared) {
        loop {
            let until = shared.state.lock().silent_at();
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    async fn pace<F: Future<Output = ()>>(shared: &Shared, ask: impl Fn() -> F) {
        loop {
            shared.busy.notified().await;
            let begun = Instant::now();
            let mut answer = pin!(timeout(PATIENCE, ask()));
            loop {
                tokio::select! {
                    biased;
                    _ = &mut answer => break,
                    () = sleep(TRICKLE) => shared.trickle(),
                }
            }
            shared.answered(begun.elapsed());
            sleep_until(begun + PAUSE).await;
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Paced<T> {
    io: T,
    shared: Arc<Shared>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Paced<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = self.shared.state.lock().room(READ, context);
        let Some(room) = room else { return Poll::Pending };
        let room = buffer.remaining().min(room);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        let read = Pin::new(&mut self.io).poll_read(context, &mut part);
        let count = part.filled().len();
        buffer.advance(count);
        self.shared.crossed(READ, count);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Paced<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let room = self.shared.state.lock().room(WRITTEN, context);
        let Some(room) = room else { return Poll::Pending };
        let written = Pin::new(&mut self.io).poll_write(context, &bytes[..bytes.len().min(room)]);
        if let Poll::Ready(Ok(count)) = &written {
            self.shared.crossed(WRITTEN, *count);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// A link of so many bytes a second, with this delay there and back, that a stream takes all of: how long what comes last
    /// waits on it, and how much of the link is used.
    fn on(rate: f64, delay: Duration) -> (Duration, f64) {
        let (mut pace, mut waiting) = (Pace::new(), 0.0_f64);
        let (mut worst, mut crossed, mut time) = (0.0_f64, 0.0, 0.0);
        for round in 0..2000 {
            let room = if round == 0 { FIRST } else { pace.room() };
            // Whoever asks does so when a little has crossed.
            let took = delay + Duration::from_secs_f64((waiting + room.min(LITTLE) as f64) / rate);
            let took_round = took.max(PAUSE).as_secs_f64();
            waiting += room as f64;
            worst = worst.max(waiting / rate);
            let gone = (took_round * rate).min(waiting);
            waiting -= gone;
            crossed += gone;
            time += took_round;
            pace.answered(took, true);
        }
        (Duration::from_secs_f64(worst), crossed / time / rate)
    }

    #[test]
    fn every_link_is_used_and_nobody_waits_long_on_it() {
        for (rate, delay) in [
            (32_000.0, 600),
            (32_000.0, 300),
            (32_000.0, 50),
            (125_000.0, 200),
            (1_250_000.0, 40),
            (12_500_000.0, 10),
            (500_000_000.0, 1),
        ] {
            let (late, used) = on(rate, MS(delay));
            assert!(late <= MS(1400), "{rate} bytes a second, {delay} ms: {late:?}");
            assert!(used > 0.7, "{rate} bytes a second, {delay} ms: {used}");
        }
    }

    #[test]
    fn it_never_stands_still_and_grows_only_by_use() {
        let mut pace = Pace::new();
        for _ in 0..10 {
            pace.answered(MS(1), false);
        }
        assert_eq!(pace.most, FIRST);
        pace.answered(MS(1), true);
        for _ in 0..50 {
            pace.answered(PATIENCE, true);
        }
        assert_eq!(pace.most, LEAST);
        for _ in 0..200 {
            pace.answered(MS(1), true);
        }
        assert_eq!(pace.most, MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_wait_for_an_answer_and_little_asks_nothing() {
        let (near, mut far) = duplex(MOST);
        let (mut paced, pacer) = paced(near);
        let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel();
        let (answer, answers) = tokio::sync::mpsc::unbounded_channel::<()>();
        let answers = Arc::new(tokio::sync::Mutex::new(answers));
        tokio::spawn(pacer.run(move || {
            let (asked, answers) = (asked.clone(), answers.clone());
            async move {
                let _ = asked.send(());
                answers.lock().await.recv().await;
            }
        }));
        paced.write_all(&[1; LITTLE - 1]).await.unwrap();
        sleep(MS(100)).await;
        assert!(asks.try_recv().is_err(), "nobody asks for a few bytes");
        let writing = tokio::spawn(async move {
            paced.write_all(&[2; 3 * FIRST]).await.unwrap();
            paced
        });
        asks.recv().await.unwrap();
        let mut heard = vec![0; FIRST];
        far.read_exact(&mut heard).await.unwrap();
        let more = timeout(MS(900), far.read_exact(&mut [0])).await;
        assert!(more.is_err(), "no byte before the answer");
        // And so on, to the last one.
        let answering = tokio::spawn(async move {
            let _ = answer.send(());
            while asks.recv().await.is_some() && answer.send(()).is_ok() {}
        });
        let mut rest = vec![0; 2 * FIRST + LITTLE - 1];
        far.read_exact(&mut rest).await.unwrap();
        let mut paced = writing.await.unwrap();
        // What comes waits, too, and arrives as it was sent.
        let sent: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let there = sent.clone();
        tokio::spawn(async move {
            far.write_all(&there).await.unwrap();
            drop(far);
        });
        let mut all = Vec::new();
        paced.read_to_end(&mut all).await.unwrap();
        assert!(all == sent);
        answering.abort();
    }

    #[test]
    fn a_hub_that_has_become_slow_is_known_anew_soon() {
        let mut pace = Pace::new();
        for _ in 0..80 {
            pace.answered(MS(50), true);
        }
        let mut rounds = 0;
        while pace.most > LEAST {
            pace.answered(MS(3000), true);
            rounds += 1;
            assert!(rounds < 64, "it gives way");
        }
        for _ in 0..(STUCK + 2 + 4) {
            pace.answered(MS(3000), true);
        }
        assert!(pace.most >= 16 * LEAST, "{pace:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_a_little_crosses_both_ways() {
        let (near, far) = duplex(MOST);
        let (paced, pacer) = paced(near);
        let pacing = tokio::spawn(pacer.run(std::future::pending::<()>));
        let (mut from, mut to) = tokio::io::split(paced);
        let (mut heard, mut says) = tokio::io::split(far);
        tokio::spawn(async move { to.write_all(&vec![1; 1 << 20]).await });
        tokio::spawn(async move { says.write_all(&vec![2; 1 << 20]).await });
        async fn count(mut of: impl AsyncRead + Unpin) -> usize {
            let (mut all, mut chunk) = (0, vec![0; 64 << 10]);
            let counting = async {
                while let Ok(read @ 1..) = of.read(&mut chunk).await {
                    all += read;
                }
            };
            let _ = timeout(MS(9_500), counting).await;
            all
        }
        let (here, there) = tokio::join!(count(&mut from), count(&mut heard));
        assert!(here >= 9 * SPARE && there >= 9 * SPARE, "{here} {there}");
        assert!(here + there >= FIRST + 9 * LEAST && here + there <= FIRST + 10 * (LEAST + 2 * SPARE));
        pacing.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_brings_nothing_is_given_up() {
        let (near, mut far) = duplex(MOST);
        let (mut paced, pacer) = paced(near);
        let begun = Instant::now();
        let pacing = tokio::spawn(pacer.run(|| std::future::ready(())));
        for _ in 0..5 {
            sleep(SILENCE / 2).await;
            far.write_all(b"x").await.unwrap();
            paced.read_exact(&mut [0]).await.unwrap();
        }
        let last = begun.elapsed();
        pacing.await.unwrap();
        assert_eq!(begun.elapsed(), last + SILENCE);
    }
}

//! A link that can be cut or slowed down, between an agent and its hub: a TCP proxy on the loopback; in process, see
//! [`crate::inprocess`].
//!
//! ```text
//!   agent ──▶ accept ─▶ Line ─▶ connect ──▶ hub       each way: read ─▶ in flight (when is each piece due?) ─▶ write
//!         ◀──        ◀─ Line ◀─         ◀──
//! ```

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use karmada_client::latest;
use karmada_env::{Random, SplitMix};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// What the link does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forwards them.
    Pass,
    /// Takes and keeps them, and answers nothing: what a dead radio link looks like from a socket. Connections
    /// that were open stay open, and new ones are accepted and hang. Nothing that was sent meanwhile arrives later,
    /// and no connection that lost something works again.
    BlackHole,
    /// Loses what comes from the agent, and brings what comes from the hub.
    LoseUp,
    /// Loses what comes from the hub, and brings what comes from the agent.
    LoseDown,
    /// Keeps everything, and brings it later.
    Hold,
    /// A captive portal: what was open hears nothing any more, and every new connection is answered by a page where somebody
    /// is to log in, without TLS.
    Portal,
    /// Forgets connections that have carried nothing for so long, as translators of addresses do: what they carry then is
    /// lost, and nobody is told.
    Forget(Duration),
    /// Closes every connection, and every new one at once.
    Refuse,
    /// Resets every connection, and every new one at once: what a router does that has forgotten them. In process,
    /// where there is nothing to reset, the same as [`Mode::Refuse`].
    Cut,
    /// Forwards them late and a few at a time.
    Slow(Slow),
}

impl Mode {
    /// Whether connections end, and no new one comes to be.
    const fn ends(self) -> bool {
        matches!(self, Self::Refuse | Self::Cut)
    }

    /// Whether a connection comes to be: it takes bytes both ways.
    pub(crate) const fn loses_any(self) -> bool {
        matches!(self, Self::BlackHole | Self::LoseUp | Self::LoseDown)
    }

    /// Whether nothing that is open works again.
    const fn swallows(self) -> bool {
        matches!(self, Self::BlackHole | Self::Portal)
    }

    /// Whether bytes of a direction are lost.
    const fn loses(self, way: Way) -> bool {
        match self {
            Self::BlackHole | Self::Portal => true,
            Self::LoseUp => matches!(way, Way::Up),
            Self::LoseDown => matches!(way, Way::Down),
            _ => false,
        }
    }

    const fn slow(self) -> Option<Slow> {
        match self {
            Self::Slow(slow) => Some(slow),
            _ => None,
        }
    }
}

/// A line of little capacity, the same both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    /// How long each byte is under way, after it was its turn.
    pub latency: Duration,
    /// How many bytes get their turn, those of all its connections together.
    pub bytes_per_second: u32,
    /// How long what one connection has sent may wait for its turn: what stands before the line keeps so much.
    pub queue: Duration,
    /// Whether it stands still at times.
    pub stalls: Option<Stalls>,
}

impl Slow {
    /// 2G at the edge of its cell: 300 ms each way and 4 kB/s.
    pub const EDGE: Self = Self {
        latency: Duration::from_millis(300),
        bytes_per_second: 4_000,
        queue: Duration::from_secs(1),
        stalls: None,
    };

    /// The same line, which stands still at times.
    pub const fn stalling(self, stalls: Stalls) -> Self {
        Self { stalls: Some(stalls), ..self }
    }

    fn time_of(self, bytes: usize) -> Duration {
        Duration::from_secs(1).mul_f64(bytes as f64 / f64::from(self.bytes_per_second.max(1)))
    }

    /// What is taken from a sender at a time: a tenth of a second.
    const fn piece(self) -> usize {
        let piece = self.bytes_per_second as usize / 10;
        if piece < 64 { 64 } else { piece }
    }

    /// What one connection has under way at most: the line is full, and some of it waits for its turn.
    fn capacity(self) -> usize {
        (f64::from(self.bytes_per_second) * (self.queue + self.latency).as_secs_f64()) as usize
    }
}

/// Packets that are lost and sent again: to TCP nothing is missing, everything behind them is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// Decides when and how long.
    pub seed: u64,
    /// From one to the next, on average.
    pub every: Duration,
    /// None is longer.
    pub longest: Duration,
}

/// When a link is up: windows that come again, as those of a ship or of a shop that dials at night.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// When the first window opens, from the beginning.
    pub first: Duration,
    /// From one to the next.
    pub every: Duration,
    /// For how long it is up each time.
    pub up: Duration,
    /// What it does at other times.
    pub down: Mode,
}

impl Schedule {
    /// What the link does so long after the beginning, and for how long it goes on so.
    pub fn at(self, since: Duration) -> (Mode, Duration) {
        let Some(since) = since.checked_sub(self.first) else { return (self.down, self.first - since) };
        let within = Duration::from_nanos((since.as_nanos() % self.every.as_nanos().max(1)) as u64);
        match self.up.checked_sub(within) {
            Some(left) if !left.is_zero() => (Mode::Pass, left),
            _ => (self.down, self.every - within),
        }
    }

    /// Has a link keep to it from now on, as long as what this returns is there.
    pub(crate) fn begin(self, mode: latest::Sender<Mode>) -> Scheduled {
        let mut task = JoinSet::new();
        task.spawn(async move {
            let begin = Instant::now();
            loop {
                let (now, lasts) = self.at(begin.elapsed());
                mode.send_replace(now);
                // To the end of a millisecond: timers are no finer.
                tokio::time::sleep(lasts.max(Duration::from_millis(1))).await;
            }
        });
        Scheduled { _task: task }
    }
}

/// A link keeps to a schedule as long as this is there.
#[derive(Debug)]
pub struct Scheduled {
    _task: JoinSet<()>,
}

/// A running proxy. Dropping it closes everything.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    mode: latest::Sender<Mode>,
    bytes: Arc<Bytes>,
    _tasks: JoinSet<()>,
}

/// When a line that connections share has a turn for the next byte, each way.
#[derive(Debug)]
pub(crate) struct Turns {
    up: Mutex<Instant>,
    down: Mutex<Instant>,
}

impl Turns {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { up: Mutex::new(now), down: Mutex::new(now) }
    }
}

/// Read at a time.
const BUFFER: usize = 16 * 1024;

/// Bytes that went through, at the TCP payload.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    up: AtomicU64,
    down: AtomicU64,
}

impl Bytes {
    /// Up and down.
    pub(crate) fn taken(&self) -> (u64, u64) {
        (self.up.load(Ordering::Relaxed), self.down.load(Ordering::Relaxed))
    }
}

impl Link {
    /// Starts a link on a free loopback port that leads to `target`.
    pub async fn open(target: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let mode = latest::Sender::new(Mode::Pass);
        let state = mode.subscribe();
        let bytes = Arc::new(Bytes::default());
        let mut tasks = JoinSet::new();
        let counted = bytes.clone();
        let turns = Arc::new(Turns::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((client, _)) = listener.accept().await else { return };
                let shared = (counted.clone(), turns.clone());
                connections.spawn(connection(client, target, state.clone(), shared));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, mode, bytes, _tasks: tasks })
    }

    /// Where to dial.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what the link does, from now on.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Has it keep to a schedule from now on, as long as what this returns is there.
    pub fn keep_to(&self, schedule: Schedule) -> Scheduled {
        schedule.begin(self.mode.clone())
    }

    /// Bytes so far: from the agent, and to the agent.
    pub fn bytes(&self) -> (u64, u64) {
        self.bytes.taken()
    }
}

async fn connection(
    mut client: TcpStream,
    target: SocketAddr,
    mode: latest::Receiver<Mode>,
    (bytes, turns): (Arc<Bytes>, Arc<Turns>),
) {
    let (receiver, opening) = (mode.clone(), *mode.borrow());
    let mut server = None;
    match opening {
        // A connection that begins in a black hole gets nowhere, also later: its first packets are gone.
        mode if mode.loses_any() => swallow(&mut client, receiver.clone()).await,
        Mode::Portal => portal(&mut client).await,
        Mode::Refuse | Mode::Cut => {}
        _ => {
            let Ok(stream) = TcpStream::connect(target).await else { return };
            let server = server.insert(stream);
            let _ = server.set_nodelay(true);
            let _ = client.set_nodelay(true);
            carry(&mut client, server, mode.clone(), &bytes, &turns).await;
        }
    }
    if *mode.borrow() == Mode::Cut {
        for end in [Some(&client), server.as_ref()].into_iter().flatten() {
            // Without lingering, closing is a reset.
            let _ = end.set_zero_linger();
        }
    }
}

/// Takes what comes and answers nothing, until the other end leaves or the link ends connections.
async fn swallow(mut stream: impl AsyncRead + Unpin, mut mode: latest::Receiver<Mode>) {
    let mut buffer = vec![0; BUFFER];
    loop {
        if mode.borrow_and_update().ends() {
            return;
        }
        tokio::select! {
            biased;
            changed = mode.changed() => if changed.is_err() { return },
            read = stream.read(&mut buffer) => if !matches!(read, Ok(n) if n > 0) { return },
        }
    }
}

/// Answers whatever is said by a page where somebody is to log in.
pub(crate) async fn portal(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let mut buffer = vec![0; BUFFER];
    if !matches!(stream.read(&mut buffer).await, Ok(n) if n > 0) {
        return;
    }
    let page = "<html><body>Welcome aboard. Please log in.</body></html>";
    let answer = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://login.example.com/\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}",
        page.len()
    );
    // Whoever does not wait for it does not get it.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Carries bytes both ways between two ends as the mode says, until either end closes or the link ends connections.
pub(crate) async fn carry<C, S>(
    client: C,
    server: S,
    mode: latest::Receiver<Mode>,
    bytes: &Bytes,
    turns: &Turns,
) where
    C: AsyncRead + AsyncWrite,
    S: AsyncRead + AsyncWrite,
{
    // A connection that lost bytes passes none any more: to TCP they are missing for ever.
    let lost = Lost::default();
    let (from_client, to_client) = split(client);
    let (from_server, to_server) = split(server);
    let up = Line::new(mode.clone(), &bytes.up, (&lost, &turns.up), Way::Up);
    let down = Line::new(mode, &bytes.down, (&lost, &turns.down), Way::Down);
    tokio::select! {
        biased;
        () = up.run(from_client, to_server) => {}
        () = down.run(from_server, to_client) => {}
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// From the agent to the hub.
    Up,
    /// From the hub to the agent.
    Down,
}

/// Which directions of a connection have lost something.
#[derive(Debug, Default)]
struct Lost {
    up: AtomicBool,
    down: AtomicBool,
    /// When something was last carried, either way.
    last: Mutex<Option<Instant>>,
}

impl Lost {
    fn of(&self, way: Way) -> &AtomicBool {
        match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        }
    }
}

/// One direction of a connection.
struct Line<'a> {
    mode: latest::Receiver<Mode>,
    count: &'a AtomicU64,
    lost: &'a Lost,
    /// What is under way, with the time at which it is there.
    flight: VecDeque<(Instant, Vec<u8>)>,
    in_flight: usize,
    /// When the next byte gets its turn, whichever connection's it is.
    free: &'a Mutex<Instant>,
    way: Way,
    stalls: Option<(Stalls, SplitMix, Instant)>,
}

impl<'a> Line<'a> {
    fn new(
        mode: latest::Receiver<Mode>,
        count: &'a AtomicU64,
        (lost, free): (&'a Lost, &'a Mutex<Instant>),
        way: Way,
    ) -> Self {
        Self { mode, count, lost, flight: VecDeque::new(), in_flight: 0, free, way, stalls: None }
    }

    async fn run(mut self, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
        let mut buffer = vec![0; BUFFER];
        let mut ended = false;
        loop {
            let mode = *self.mode.borrow_and_update();
            if mode.ends() {
                return;
            }
            let slow = mode.slow();
            if slow.is_none() {
                // What is still under way has nothing to wait for any more.
                let now = Instant::now();
                *self.free.lock() = now;
                self.flight.iter_mut().for_each(|(due, _)| *due = now);
            }
            let next = self.flight.front().map(|(due, _)| *due);
            if mode == Mode::Hold {
                if self.mode.changed().await.is_err() {
                    return;
                }
                continue;
            }
            if ended && next.is_none() {
                return;
            }
            let piece = slow.map_or(BUFFER, Slow::piece).min(BUFFER);
            let room = !ended && slow.map_or_else(|| next.is_none(), |slow| self.in_flight < slow.capacity());
            tokio::select! {
                biased;
                changed = self.mode.changed() => if changed.is_err() { return },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    let Some((_, bytes)) = self.flight.pop_front() else { continue };
                    self.in_flight -= bytes.len();
                    if !self.deliver(&mut to, mode, &bytes).await {
                        return;
                    }
                }
                read = from.read(&mut buffer[..piece]), if room => match read {
                    Err(_) => return,
                    Ok(0) => ended = true,
                    Ok(n) => match slow {
                        Some(slow) => self.send(slow, buffer[..n].to_vec()),
                        // Nothing is under way that this could overtake.
                        None => if !self.deliver(&mut to, mode, &buffer[..n]).await { return },
                    },
                },
            }
        }
    }

    /// Puts a piece behind those that are under way.
    fn send(&mut self, slow: Slow, piece: Vec<u8>) {
        let now = Instant::now();
        let stall = slow.stalls.map_or(Duration::ZERO, |stalls| self.stall(stalls, now));
        let turn = {
            let mut free = self.free.lock();
            *free = Instant::max(*free, now) + slow.time_of(piece.len()) + stall;
            *free
        };
        self.in_flight += piece.len();
        self.flight.push_back((turn + slow.latency, piece));
    }

    /// How long the line stands still now: mostly not at all.
    fn stall(&mut self, stalls: Stalls, now: Instant) -> Duration {
        if self.stalls.as_ref().is_none_or(|(known, ..)| *known != stalls) {
            // The two directions do not stand still together.
            let random = SplitMix::new(stalls.seed.wrapping_mul(2).wrapping_add(self.way as u64));
            let first = now + part(stalls.every * 2, &random);
            self.stalls = Some((stalls, random, first));
        }
        let Some((_, random, next)) = &mut self.stalls else { return Duration::ZERO };
        if now < *next {
            return Duration::ZERO;
        }
        let length = part(stalls.longest, random);
        *next = now + length + part(stalls.every * 2, random);
        length
    }

    /// Hands bytes over, or loses them. Answers whether there is anybody to hand bytes to.
    async fn deliver(&self, to: &mut (impl AsyncWrite + Unpin), mode: Mode, bytes: &[u8]) -> bool {
        let now = Instant::now();
        let idle = self.lost.last.lock().replace(now).map_or(Duration::ZERO, |last| now - last);
        let is_forgotten = matches!(mode, Mode::Forget(after) if idle > after);
        if mode.swallows() || is_forgotten {
            // Not even what would tell the other end that it is read arrives.
            self.lost.up.store(true, Ordering::Relaxed);
            self.lost.down.store(true, Ordering::Relaxed);
        }
        let lost = self.lost.of(self.way);
        if mode.loses(self.way) {
            lost.store(true, Ordering::Relaxed);
        }
        if lost.load(Ordering::Relaxed) {
            return true;
        }
        if to.write_all(bytes).await.is_err() || to.flush().await.is_err() {
            return false;
        }
        self.count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        true
    }
}

/// A duration drawn evenly from those up to `whole`.
fn part(whole: Duration, random: &SplitMix) -> Duration {
    whole.mul_f64((random.next_u64() >> 11) as f64 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// How long `bytes` take through a line in memory, first and last.
    async fn through(slow: Slow, bytes: usize) -> (Duration, Duration) {
        let (near, agent) = duplex(1 << 20);
        let (hub, far) = duplex(1 << 20);
        let mode = latest::Sender::new(Mode::Slow(slow));
        let state = mode.subscribe();
        let (counted, turns) = (Bytes::default(), Turns::new());
        let start = Instant::now();
        let transfer = async {
            let (mut near, mut far) = (near, far);
            near.write_all(&vec![7; bytes]).await.unwrap();
            let mut got = vec![0; bytes];
            far.read_exact(&mut got[..1]).await.unwrap();
            let first = start.elapsed();
            far.read_exact(&mut got[1..]).await.unwrap();
            assert!(got.iter().all(|b| *b == 7));
            // The other end leaves: the line ends, too.
            drop(near);
            let _ = far.read(&mut got).await;
            (first, start.elapsed())
        };
        let ((), times) = tokio::join!(carry(agent, hub, state, &counted, &turns), transfer);
        assert_eq!(counted.up.load(Ordering::Relaxed), bytes as u64);
        times
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_line_takes_its_time() {
        let (first, last) = through(Slow::EDGE, 40_000).await;
        let within = |time: Duration, low: u64, high: u64| {
            assert!((low..high).contains(&(time.as_millis() as u64)), "{time:?} is not {low} to {high} ms");
        };
        within(first, 300, 500);
        within(last, 10_300, 10_700);
        let stalls = Stalls { seed: 1, every: Duration::from_secs(2), longest: Duration::from_secs(4) };
        let (_, stalled) = through(Slow::EDGE.stalling(stalls), 40_000).await;
        within(stalled, 11_000, 40_000);
        assert_eq!(through(Slow::EDGE.stalling(stalls), 40_000).await.1, stalled, "a seed decides when");
    }

    #[tokio::test(start_paused = true)]
    async fn connections_share_a_line() {
        let slow = Slow { queue: Duration::from_secs(20), ..Slow::EDGE };
        let (mode, counted, turns) = (latest::Sender::new(Mode::Slow(slow)), Bytes::default(), Turns::new());
        let ((mut bulk, a), (b, mut _other)) = (duplex(1 << 20), duplex(1 << 20));
        let ((mut small, c), (d, mut far)) = (duplex(1 << 20), duplex(1 << 20));
        let carried = async {
            tokio::join!(
                carry(a, b, mode.subscribe(), &counted, &turns),
                carry(c, d, mode.subscribe(), &counted, &turns)
            )
        };
        let transfer = async {
            bulk.write_all(&[7; 40_000]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            let start = Instant::now();
            small.write_all(&[7; 10]).await.unwrap();
            far.read_exact(&mut [0; 10]).await.unwrap();
            start.elapsed()
        };
        let late = tokio::select! { late = transfer => late, _ = carried => panic!("the line goes on") };
        assert!((10_000..10_600).contains(&late.as_millis()), "{late:?} behind what the other has sent");
    }

    #[test]
    fn a_schedule_says_what_the_link_does_and_for_how_long() {
        let seconds = Duration::from_secs;
        let schedule =
            Schedule { first: seconds(50), every: seconds(100), up: seconds(10), down: Mode::Refuse };
        for (since, mode, lasts) in [
            (0, Mode::Refuse, 50),
            (49, Mode::Refuse, 1),
            (50, Mode::Pass, 10),
            (59, Mode::Pass, 1),
            (60, Mode::Refuse, 90),
            (149, Mode::Refuse, 1),
            (1_055, Mode::Pass, 5),
        ] {
            assert_eq!(schedule.at(seconds(since)), (mode, seconds(lasts)), "{since}");
        }
        let always = Schedule { first: seconds(0), up: seconds(100), ..schedule };
        assert_eq!(always.at(seconds(250)), (Mode::Pass, seconds(50)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_keeps_to_its_schedule_while_that_is_wanted() {
        let mode = latest::Sender::new(Mode::Pass);
        let seen = mode.subscribe();
        let schedule = Schedule {
            first: Duration::from_secs(60),
            every: Duration::from_secs(600),
            up: Duration::from_secs(60),
            down: Mode::BlackHole,
        };
        let scheduled = schedule.begin(mode);
        for (minute, is) in [
            (0, Mode::BlackHole),
            (1, Mode::Pass),
            (2, Mode::BlackHole),
            (10, Mode::BlackHole),
            (11, Mode::Pass),
        ] {
            let at = Instant::now();
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert_eq!(*seen.borrow(), is, "{minute}");
            let next = if minute == 2 { 8 * 60 } else { 60 };
            sleep_until(at + Duration::from_secs(next)).await;
        }
        drop(scheduled);
        let last = *seen.borrow();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(*seen.borrow(), last);
    }

    #[tokio::test]
    async fn a_cut_resets() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Link::open(server.local_addr().unwrap()).await.unwrap();
        let mut client = TcpStream::connect(link.address()).await.unwrap();
        let (mut hub, _) = server.accept().await.unwrap();
        client.write_all(b"hello").await.unwrap();
        let mut buffer = [0; 5];
        hub.read_exact(&mut buffer).await.unwrap();
        link.set(Mode::Cut);
        for end in [&mut client, &mut hub] {
            let error = end.read(&mut buffer).await.expect_err("a reset, no end");
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        link.set(Mode::Refuse);
        let mut client = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(client.read(&mut buffer).await.unwrap(), 0);
        link.set(Mode::Pass);
        let mut client = TcpStream::connect(link.address()).await.unwrap();
        client.write_all(b"again").await.unwrap();
        server.accept().await.unwrap().0.read_exact(&mut buffer).await.unwrap();
        assert_eq!((&buffer, link.bytes()), (b"again", (10, 0)));
    }
}

//! Small parts of what crosses a tunnel, put together.
//!
//! Each part has around it what HTTP/2, TLS and TCP add: some 90 bytes, for a line of a log or a crumb of a chunk. So small parts of an
//! answer are sent at a [pace](Pace): what there is meanwhile goes with the next.

use std::{
    fmt,
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// What is as large as that goes at once.
const SMALL: usize = 256;

/// How often something small is sent.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// So many times at once.
    pub at_once: u32,
    /// Then once in this time.
    pub each: Duration,
}

impl Pace {
    /// Of what a member answers: lines of a log are there a quarter of a second later, where there are many.
    pub const ANSWER: Self = Self { at_once: 16, each: Duration::from_millis(250) };
}

/// When something small may be sent.
#[derive(Debug)]
struct Turns {
    pace: Pace,
    left: u32,
    since: Instant,
}

impl Turns {
    fn new(pace: Pace) -> Self {
        Self { pace, left: pace.at_once, since: Instant::now() }
    }

    fn due(&mut self, now: Instant) -> Instant {
        let times = now.duration_since(self.since).as_millis() / self.pace.each.as_millis().max(1);
        if times > 0 {
            let most = self.pace.at_once.max(1);
            let left = u32::try_from(times).unwrap_or(u32::MAX).saturating_add(self.left);
            (self.left, self.since) = match left < most {
                true => (left, self.since + self.pace.each * (left - self.left)),
                false => (most, now),
            };
        }
        if self.left > 0 { now } else { self.since + self.pace.each }
    }

    fn goes(&mut self) {
        self.due(Instant::now());
        self.left = self.left.saturating_sub(1);
    }
}

/// A body in such parts.
pub struct Joined<B: Body> {
    body: B,
    turns: Turns,
    held: BytesMut,
    wait: Option<Pin<Box<Sleep>>>,
    /// What has come after what is held: the end, mostly.
    after: Option<After<B>>,
    has_ended: bool,
}

impl<B: Body> fmt::Debug for Joined<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined")
            .field("held", &self.held.len())
            .field("turns", &self.turns)
            .finish_non_exhaustive()
    }
}

type After<B> = Option<Result<Frame<Bytes>, <B as Body>::Error>>;

impl<B: Body<Data = Bytes> + Unpin> Joined<B> {
    /// What there is of this body, at this pace.
    pub fn new(body: B, pace: Pace) -> Self {
        let turns = Turns::new(pace);
        Self { body, turns, held: BytesMut::new(), wait: None, after: None, has_ended: false }
    }

    fn whole(&mut self) -> Frame<Bytes> {
        self.wait = None;
        Frame::data(self.held.split().freeze())
    }

    /// Takes parts until there is something to send. None where that is not yet so.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        while self.after.is_none() {
            let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(context) else {
                if self.held.is_empty() {
                    return Poll::Pending;
                }
                let due = self.turns.due(Instant::now());
                if due > Instant::now() {
                    ready!(
                        self.wait.get_or_insert_with(|| Box::pin(sleep_until(due))).as_mut().poll(context)
                    );
                }
                self.turns.goes();
                return Poll::Ready(Some(self.whole()));
            };
            let part = match next {
                Some(Ok(frame)) => frame.into_data().map_err(|frame| Some(Ok(frame))),
                end => Err(end),
            };
            match part {
                Ok(data) if self.held.is_empty() && data.len() >= SMALL => {
                    return Poll::Ready(Some(Frame::data(data)));
                }
                Ok(data) => {
                    self.held.extend_from_slice(&data);
                    if self.held.len() >= SMALL || (!self.held.is_empty() && self.body.is_end_stream()) {
                        return Poll::Ready(Some(self.whole()));
                    }
                }
                // Headers at its end, which nobody reads, are the end.
                Err(Some(Ok(_))) => self.after = Some(None),
                Err(after) => self.after = Some(after),
            }
        }
        Poll::Ready((!self.held.is_empty()).then(|| self.whole()))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Joined<B>
where
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<After<B>> {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(None);
        }
        if let Some(frame) = ready!(this.poll_more(context)) {
            return Poll::Ready(Some(Ok(frame)));
        }
        this.has_ended = true;
        Poll::Ready(this.after.take().flatten())
    }

    fn is_end_stream(&self) -> bool {
        let is_over = match &self.after {
            Some(after) => after.is_none(),
            None => self.body.is_end_stream(),
        };
        self.has_ended || (self.held.is_empty() && is_over)
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, held) = (self.body.size_hint(), self.held.len() as u64);
        let mut hint = SizeHint::new();
        // Upper first: the lower bound may not be above it.
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint.set_lower(rest.lower().saturating_add(held));
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, channel::mpsc, stream};
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    const LATER: Pace = Pace { at_once: 0, each: Duration::from_secs(10) };
    const PACE: Pace = Pace { at_once: 2, each: Duration::from_secs(1) };

    /// Sizes of parts as they come, and after how many milliseconds.
    async fn sizes(
        body: impl Body<Data = Bytes, Error = &'static str> + Unpin,
        pace: Pace,
    ) -> Vec<(usize, u128)> {
        let begun = Instant::now();
        let parts = Joined::new(body, pace).into_data_stream();
        parts.map(|part| (part.map_or(0, |part| part.len()), begun.elapsed().as_millis())).collect().await
    }

    /// So many bytes so often.
    fn each(
        bytes: usize,
        pause: Duration,
        count: usize,
    ) -> impl Body<Data = Bytes, Error = &'static str> + Unpin {
        let parts = stream::unfold(0, move |n| async move {
            tokio::time::sleep(pause).await;
            (n < count).then(|| (Ok(Frame::data(vec![b' '; bytes].into())), n + 1))
        });
        StreamBody::new(Box::pin(parts))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_small_goes_at_its_pace_and_all_else_at_once() {
        let ms = Duration::from_millis;
        // A few at once, then what has come in a second; the last with the end.
        let got = sizes(each(1, ms(90), 30), PACE).await;
        assert_eq!(got, [(1, 90), (1, 180), (9, 1000), (11, 2000), (8, 2790)]);
        let got = sizes(each(300, ms(1), 3), PACE).await;
        assert_eq!(got, [(300, 1), (300, 2), (300, 3)]);
        // As soon as there is enough.
        let got = sizes(each(100, ms(10), 8), PACE).await;
        assert_eq!(got, [(100, 10), (100, 20), (300, 50), (300, 80)]);
        // Who waits long may send a few at once again, and no more.
        let mut turns = Turns::new(PACE);
        tokio::time::advance(Duration::from_secs(100)).await;
        let now = Instant::now();
        for _ in 0..2 {
            assert_eq!(turns.due(now), now);
            turns.goes();
        }
        assert_eq!(turns.due(now), now + PACE.each);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_goes_with_the_end() {
        let parts =
            |count: usize| stream::iter((0..count).map(|_| Ok(Frame::data(Bytes::from_static(b"12345")))));
        let begun = Instant::now();
        for count in [1, 3, 50] {
            assert_eq!(sizes(StreamBody::new(parts(count)), LATER).await, [(5 * count, 0)]);
        }
        let full = http_body_util::Full::new(Bytes::from_static(b"{}")).map_err(|never| match never {});
        let mut joined = Joined::new(full, LATER);
        assert_eq!(joined.size_hint().exact(), Some(2));
        let frame: Result<_, &str> = joined.frame().await.unwrap();
        assert!(frame.unwrap().into_data().unwrap() == "{}" && joined.is_end_stream());
        // What has broken off says so, after all that has come.
        let broken = StreamBody::new(parts(2).chain(stream::iter([Err("cut")])));
        let mut joined = Joined::new(broken, LATER);
        assert_eq!(joined.frame().await.unwrap().unwrap().into_data().unwrap(), "1234512345");
        assert_eq!(joined.frame().await.unwrap().unwrap_err(), "cut");
        assert!(joined.frame().await.is_none() && joined.is_end_stream());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_lost_whoever_is_polled_when() {
        let (sender, parts) = mpsc::unbounded::<Result<Frame<Bytes>, &'static str>>();
        let mut joined = Joined::new(StreamBody::new(parts), Pace { at_once: 0, ..PACE });
        let mut heard = Vec::new();
        let mut sent = Vec::new();
        for n in 0..200_usize {
            let part = vec![n as u8; n % 7 * n % 40];
            sent.extend_from_slice(&part);
            sender.unbounded_send(Ok(Frame::data(part.into()))).unwrap();
            // Often there is nothing yet, and whoever waits goes.
            let waits = tokio::time::timeout(Duration::from_millis(n as u64 % 300), joined.frame()).await;
            if let Ok(Some(Ok(frame))) = waits {
                heard.extend_from_slice(&frame.into_data().unwrap());
            }
            let hint = joined.size_hint();
            assert!(hint.lower() as usize <= SMALL && !joined.is_end_stream());
        }
        drop(sender);
        heard.extend_from_slice(&joined.collect().await.unwrap().to_bytes());
        assert_eq!(heard, sent);
    }
}

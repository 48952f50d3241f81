//! A body on its way to the hub: counted, ended in its time, and told of when it is over. That of the request is counted, too,
//! and ends with it at the latest.

use std::{
    future::Future as _,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, SizeHint};
use karmada_client::joined::{Joined, Pace};
use karmada_core::spent::Spent;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::{Open, Record, toll::Share};

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// What is known of a request. It is told when this is dropped, whatever has ended it.
pub(super) struct Measured {
    pub(super) record: Record,
    /// Who pays for it.
    pub(super) share: Share,
    /// What says who asks has crossed with it, and not before.
    pub(super) brings_user: bool,
    /// Why they are refused, if it is that what may cross is used up.
    pub(super) spent: Option<Spent>,
    told: fn(&Record),
    due: Option<Instant>,
    upload: Arc<Upload>,
    /// To the member.
    connection: Option<AbortOnDropHandle<()>>,
    _open: Open,
}

impl Measured {
    pub(super) fn new(record: Record, told: fn(&Record), open: Open) -> Self {
        Self {
            record,
            share: Share::default(),
            brings_user: true,
            spent: None,
            told,
            due: None,
            upload: Arc::default(),
            connection: None,
            _open: open,
        }
    }

    /// The request's body, of which is counted what is sent.
    /// `waiting`: what of it has come, and nobody has read.
    pub(super) fn sending<B: Body>(&self, body: B, waiting: fn(&B) -> usize) -> Sent<B> {
        Sent { body, waiting, upload: self.upload.clone(), share: self.share.clone(), has_ended: false }
    }

    /// Runs a connection that ends with the request: one whose member takes nothing would not notice.
    pub(super) fn needs(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        self.connection = Some(AbortOnDropHandle::new(tokio::spawn(connection)));
    }

    /// When the answer is to have ended.
    pub(super) fn due(&mut self, due: Option<Instant>) {
        self.due = due;
    }

    /// Goes with this body.
    pub(super) fn over<B>(mut self, body: B) -> Answer
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Cause>,
    {
        self.record.whole = body.is_end_stream();
        let due = self.due.map(|due| Box::pin(sleep_until(due)));
        let body = Joined::new(body.map_err(Into::into).boxed_unsync(), Pace::ANSWER);
        Answer { body, due, measured: self }
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // In this order: what is counted after this is not sent.
        self.upload.is_told.store(true, Ordering::SeqCst);
        self.record.bytes += self.upload.bytes.load(Ordering::SeqCst);
        (self.told)(&self.record);
    }
}

/// What is known of a request's body.
#[derive(Debug, Default)]
struct Upload {
    bytes: AtomicU64,
    /// The request has been told of.
    is_told: AtomicBool,
}

/// The body of a request, on its way to the member. It is paid for as it arrives. A member may answer before it has all of it: when the answer
/// is over, no more is sent, since no record would say so. Where it is not read to its end, its user pays for what is under way of it, too.
pub(super) struct Sent<B: Body> {
    body: B,
    waiting: fn(&B) -> usize,
    upload: Arc<Upload>,
    share: Share,
    has_ended: bool,
}

impl<B: Body> Drop for Sent<B> {
    fn drop(&mut self) {
        if !self.has_ended && !self.body.is_end_stream() {
            self.share.charge_unread(&self.body, (self.waiting)(&self.body));
        }
    }
}

impl<B> Body for Sent<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Cause>,
{
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.upload.bytes.fetch_add(bytes as u64, Ordering::SeqCst);
            if self.upload.is_told.load(Ordering::SeqCst) {
                self.has_ended = true;
                return Poll::Ready(Some(Err("the request has been answered".into())));
            }
        } else {
            self.has_ended = true;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// See the module.
pub(super) struct Answer {
    body: Joined<UnsyncBoxBody<Bytes, Cause>>,
    due: Option<Pin<Box<Sleep>>>,
    measured: Measured,
}

impl Answer {
    /// Its head is all that goes.
    pub(super) fn is_head(&mut self) {
        self.measured.record.whole = true;
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        // One that always has something ends in its time, too.
        if let Some(due) = &mut self.due
            && due.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err("the member has taken too long".into())));
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let ended = self.body.is_end_stream();
        let Measured { record, share, .. } = &mut self.measured;
        match &frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                if let Err(why) = share.pay(bytes) {
                    return Poll::Ready(Some(Err(why.into())));
                }
                record.bytes += bytes as u64;
            }
            Some(Err(_)) => {}
            None => record.whole = true,
        }
        record.whole |= ended;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{Empty, Full, StreamBody};
    use karmada_client::latest;
    use karmada_env::Env;
    use parking_lot::Mutex;

    use super::{super::toll::Toll, *};

    static TOLD: Mutex<Vec<u64>> = Mutex::new(Vec::new());

    #[tokio::test]
    async fn what_is_sent_is_in_the_record_or_is_not_sent() {
        let open = latest::Sender::new(0_usize);
        let told = |record: &Record| TOLD.lock().push(record.bytes);
        let measured = Measured::new(Record::default(), told, Open::new(&open));
        let part = || Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"12345")));
        let parts = futures::stream::iter([part(), part(), part()]);
        let mut sent = measured.sending(StreamBody::new(parts), |_| 0);
        for _ in 0..2 {
            let frame = sent.frame().await.unwrap().unwrap();
            assert_eq!(frame.data_ref().map(Bytes::len), Some(5));
        }
        // The member has answered, and that has arrived.
        drop(measured.over(Empty::<Bytes>::new()));
        assert_eq!(*TOLD.lock(), [10]);
        assert!(sent.frame().await.unwrap().is_err(), "five bytes that nobody is told of");
    }

    #[tokio::test]
    async fn headers_at_the_end_of_a_body_are_its_end() {
        let open = latest::Sender::new(0_usize);
        let told = |record: &Record| assert!(record.whole && record.bytes == 5, "{record:?}");
        let measured = Measured::new(Record::default(), told, Open::new(&open));
        let body = || {
            let trailers = [(http::HeaderName::from_static("x-a"), http::HeaderValue::from_static("b"))];
            let data = Frame::data(Bytes::from_static(b"12345"));
            let frames = [data, Frame::trailers(trailers.into_iter().collect())];
            StreamBody::new(futures::stream::iter(frames.map(Ok::<_, Infallible>)))
        };
        let answered = measured.over(body()).collect().await.unwrap();
        assert!(answered.trailers().is_none() && answered.to_bytes() == "12345");
    }

    #[test]
    fn a_body_is_paid_for_where_it_is_not_read() {
        let (open, budget) = (latest::Sender::new(0_usize), Toll::full(64 << 10, Env::system()));
        let is_thrown_away = |bytes: usize| {
            let mut measured = Measured::new(Record::default(), |_| {}, Open::new(&open));
            measured.share = budget.share("jane", 0);
            drop(measured.sending(Full::new(Bytes::from(vec![b' '; bytes])), |_| 0));
            budget.share("jane", 0).ask()
        };
        assert!(is_thrown_away(0).is_ok());
        // 8 KiB may go at once.
        assert!(is_thrown_away(9 << 10).is_err());
    }
}

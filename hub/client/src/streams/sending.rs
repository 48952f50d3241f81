//! What is sent on a stream.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;

use super::broken;

/// One half of a stream. Dropped before its end, the stream is reset.
#[derive(Debug)]
pub struct Sending {
    stream: SendStream<Bytes>,
    has_ended: bool,
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.has_ended {
            self.stream.send_reset(Reason::CANCEL);
        }
    }
}

impl Sending {
    /// Of this stream, of which the headers were sent.
    pub fn new(stream: SendStream<Bytes>) -> Self {
        Self { stream, has_ended: false }
    }

    /// Whether the end was sent.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// How much of so many bytes can be sent now: some.
    ///
    /// # Errors
    /// The stream was reset, or its connection has ended.
    pub fn poll_room(&mut self, context: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        if self.has_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if let Poll::Ready(why) = self.poll_reset(context) {
            return Poll::Ready(Err(why));
        }
        self.stream.reserve_capacity(most);
        loop {
            let room = self.stream.capacity().min(most);
            if room > 0 {
                return Poll::Ready(Ok(room));
            }
            match ready!(self.stream.poll_capacity(context)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
    }

    /// Sends what there is [room](Self::poll_room) for; with the end, if it is that. An end after the end is none.
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, bytes: Bytes, is_last: bool) -> io::Result<()> {
        if self.has_ended && bytes.is_empty() {
            return Ok(());
        }
        self.stream.send_data(bytes, is_last).map_err(broken)?;
        self.has_ended |= is_last;
        Ok(())
    }

    /// Why the other end takes nothing more, as soon as it has said so.
    pub fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        self.stream.poll_reset(context).map(|reset| match reset {
            Ok(reason) => io::Error::new(io::ErrorKind::ConnectionReset, reason.description()),
            Err(error) => broken(error),
        })
    }

    async fn all(&mut self, mut bytes: Bytes, is_last: bool) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = poll_fn(|context| self.poll_room(context, bytes.len())).await?;
            let part = bytes.split_to(room);
            self.send(part, is_last && bytes.is_empty())?;
        }
        Ok(())
    }
}

/// Sends a body to its end. One that breaks resets the stream.
///
/// # Errors
/// When the body breaks, or nobody wants it any more.
pub async fn send<B>(body: B, to: Sending) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut body, mut to) = (pin!(body), to);
    while !to.has_ended {
        let next = poll_fn(|context| {
            if let Poll::Ready(why) = to.poll_reset(context) {
                return Poll::Ready(Err(why));
            }
            Pin::as_mut(&mut body).poll_frame(context).map(Ok)
        });
        match next.await?.transpose().map_err(Into::into)? {
            None => to.send(Bytes::new(), true)?,
            Some(frame) => match frame.into_data() {
                Ok(bytes) if bytes.is_empty() && !body.is_end_stream() => {}
                Ok(bytes) if bytes.is_empty() => to.send(bytes, true)?,
                Ok(bytes) => to.all(bytes, body.is_end_stream()).await?,
                // Headers at its end are the end: nobody reads them.
                Err(_) => to.send(Bytes::new(), true)?,
            },
        }
    }
    Ok(())
}

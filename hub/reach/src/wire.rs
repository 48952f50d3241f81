//! Connections to a member, as hyper's client wants them.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use karmada_client::{
    kubeconfig::Endpoint,
    link::{Io, Refuses, direct},
};

/// Dials one member, whatever the URI says.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    endpoint: Endpoint,
    refuses: Refuses,
}

impl Dialer {
    pub(crate) fn new(endpoint: Endpoint, refuses: Refuses) -> Self {
        Self { endpoint, refuses }
    }

    /// Where it is.
    pub(crate) fn server(&self) -> &Uri {
        &self.endpoint.server
    }
}

impl tower::Service<Uri> for Dialer {
    type Response = Wire;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Wire>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { endpoint, refuses } = self.clone();
        Box::pin(async move {
            direct::connect(&endpoint, refuses)
                .await
                .map(|io| Wire(TokioIo::new(io)))
                .map_err(io::Error::other)
        })
    }
}

/// One connection.
pub(crate) struct Wire(TokioIo<Box<dyn Io>>);

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// What went wrong, for whoever asked: the innermost cause says most.
pub(crate) fn why(error: &hyper_util::client::legacy::Error) -> String {
    let mut why: &dyn std::error::Error = error;
    while let Some(cause) = why.source() {
        why = cause;
    }
    match error.is_connect() {
        true => why.to_string(),
        false => format!("the connection broke off: {why}"),
    }
}

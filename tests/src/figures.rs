//! What a hub counts, as a test reads it.

use std::net::SocketAddr;

use karmada_client::Rest;
use karmada_telemetry::metrics::{Figures, OPEN, read};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The page of a hub.
pub async fn figures(api: &Rest) -> Figures {
    let page = api.get_bytes("/metrics", OPEN).await.expect("the page");
    let text = String::from_utf8_lossy(&page);
    read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// A page over plain HTTP, as a scraper asks for it.
///
/// # Errors
/// When nobody answers, or with no page.
pub async fn scrape(address: SocketAddr) -> Result<Figures, String> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let ask = format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {OPEN}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(ask.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    let answer = ask.await.map_err(|e| e.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no head")?;
    if !head.contains("application/openmetrics-text") {
        return Err(format!("no page: {head}"));
    }
    read(body).map_err(|error| format!("{error}\n{body}"))
}

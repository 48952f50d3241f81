//! Programs over links that break: which bytes go over them, with servers that give parts of documents and such that do not.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use karmada_apiserver::{
    listener::{Tls, serve},
    pki::Pki,
};
use karmada_core::upgrade::{Offer, Program};
use karmada_env::Env;
use karmada_meta::time::Time;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    folder::{Folder, tests::digest},
    programs::Programs,
    received::FETCHED,
    trouble::Trouble,
};

const SIZE: usize = 1 << 20;
const PIECE: usize = 32 << 10;
const PATIENCE: Duration = Duration::from_secs(120);

/// What a server does with a request for a part.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Parts {
    Gives,
    Ignores,
    /// It gives another part than it says.
    Lies,
    /// It names no document, so nobody asks it for a part.
    Untagged,
}

/// A server of one program whose answers break off.
struct Releases {
    bytes: Mutex<Bytes>,
    parts: Parts,
    /// After which byte of the program the next answers break off: once the client has kept what was sent.
    breaks: Mutex<VecDeque<usize>>,
    /// The parts that were asked for, and how many bytes went out.
    seen: Mutex<Vec<(String, usize)>>,
    received: PathBuf,
}

impl Releases {
    fn answer(self: &Arc<Self>, request: &Request<impl Sized>) -> Response<UnsyncBoxBody<Bytes, io::Error>> {
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let bytes = self.bytes.lock().clone();
        let tag = format!("\"{}\"", &digest(&bytes)[..16]);
        let asked = header("range").unwrap_or_default();
        let at = asked.strip_prefix("bytes=").and_then(|rest| rest.strip_suffix('-')?.parse::<usize>().ok());
        let at = at.filter(|_| self.parts != Parts::Ignores && header("if-range") == Some(tag.clone()));
        self.seen.lock().push((asked, 0));
        let answer = Response::builder();
        let answer = if self.parts == Parts::Untagged { answer } else { answer.header("etag", &tag) };
        let (answer, from) = match at {
            None => (answer, 0),
            Some(at) if at >= bytes.len() => {
                (answer.status(416).header("content-range", format!("bytes */{}", bytes.len())), bytes.len())
            }
            Some(at) => {
                let says = if self.parts == Parts::Lies { at + 1 } else { at };
                let range = format!("bytes {says}-{}/{}", bytes.len() - 1, bytes.len());
                (answer.status(206).header("content-range", range), at)
            }
        };
        let ends = self.breaks.lock().pop_front().unwrap_or(bytes.len()).max(from);
        let this = Arc::clone(self);
        let pieces = futures::stream::unfold(from, move |at| {
            let (this, bytes) = (Arc::clone(&this), bytes.clone());
            async move {
                if at == bytes.len() {
                    return None;
                }
                let next = (at + PIECE).min(ends);
                if next == at {
                    this.has_kept(at).await;
                    return Some((Err(io::Error::other("the link breaks")), at));
                }
                this.seen.lock().last_mut().unwrap().1 += next - at;
                Some((Ok(Frame::data(bytes.slice(at..next))), next))
            }
        });
        answer
            .header("content-length", self.bytes.lock().len() - from)
            .body(StreamBody::new(pieces).boxed_unsync())
            .unwrap()
    }

    /// Waits until the client has so much of it: what is still on its way when a link breaks is not what is counted here.
    async fn has_kept(&self, bytes: usize) {
        let kept = || fs::metadata(&self.received).map_or(0, |file| file.len());
        let waits = async {
            while kept() != bytes as u64 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waits).await.unwrap();
    }
}

struct World {
    releases: Arc<Releases>,
    programs: Programs,
    offer: Offer,
    dir: TempDir,
    _served: DropGuard,
}

/// A program that says that it is this version, and is so large.
fn program(version: &str) -> Bytes {
    let mut bytes =
        format!("#!/bin/sh\n[ \"$1\" = --version ] && echo karmada-agent {version}\nexit 0\n").into_bytes();
    bytes.resize(SIZE, b'#');
    bytes.into()
}

impl World {
    async fn new(parts: Parts, breaks: &[usize]) -> Self {
        let (dir, env, stop) = (tempfile::tempdir().unwrap(), Env::system(), CancellationToken::new());
        let (bytes, state) = (program("0.6.0"), dir.path().join("state"));
        let sha256 = digest(&bytes);
        let releases = Arc::new(Releases {
            bytes: Mutex::new(bytes),
            parts,
            breaks: Mutex::new(breaks.iter().copied().collect()),
            seen: Mutex::default(),
            received: state.join("slots").join(format!("{FETCHED}{sha256}")),
        });
        let pki = Pki::open_or_create(&dir.path().join("pki"), &[], &env).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = pki.server_url(listener.local_addr().unwrap().port());
        let answers = Arc::clone(&releases);
        let service = tower::service_fn(move |request: Request<_>| {
            let answer = answers.answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        tokio::spawn(serve(listener, Tls::new(&pki, &env).unwrap(), service, stop.clone()));
        let ca = dir.path().join("ca.pem");
        fs::write(&ca, pki.ca_pem()).unwrap();
        let offer = Offer {
            version: "0.6.0".to_owned(),
            begun: "2026-11-26T01:00:00Z".parse().unwrap(),
            image: String::new(),
            programs: vec![Program {
                arch: std::env::consts::ARCH.to_owned(),
                url: format!("{url}/agent"),
                sha256,
            }],
            returns: false,
            downgrade: false,
            spread: 0,
        };
        let programs =
            Programs { authorities: Some(ca), ..Programs::new(Folder::new(&state), format!("{url}/")) };
        Self { releases, programs, offer, dir, _served: stop.drop_guard() }
    }

    async fn goes(&self) -> Result<(), Trouble> {
        let now: Time = "2026-11-26T02:00:00Z".parse().unwrap();
        // As after a restart: what is known is on the disk.
        let programs = Programs {
            authorities: self.programs.authorities.clone(),
            ..Programs::new(Folder::new(&self.dir.path().join("state")), self.programs.from.clone())
        };
        tokio::time::timeout(PATIENCE, programs.fetch(&self.offer, now)).await.unwrap()
    }

    async fn is_there(&self) -> bool {
        self.programs.has(&self.offer).await.unwrap() && left(&self.releases.received).is_empty()
    }

    fn seen(&self) -> Vec<(String, usize)> {
        self.releases.seen.lock().clone()
    }
}

fn left(received: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(received.parent().unwrap()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(FETCHED)).collect()
}

fn asked(rows: &[(&str, usize)]) -> Vec<(String, usize)> {
    rows.iter().map(|(range, bytes)| ((*range).to_owned(), *bytes)).collect()
}

#[tokio::test]
async fn a_link_that_breaks_twice_carries_no_byte_twice() {
    let world = World::new(Parts::Gives, &[300_000, 500_000]).await;
    for _ in 0..2 {
        let error = world.goes().await.unwrap_err();
        assert!(matches!(&error, Trouble::Broke(why) if why.contains("broke off")), "{error:?}");
    }
    world.goes().await.unwrap();
    assert!(world.is_there().await);
    let want = [("", 300_000), ("bytes=300000-", 200_000), ("bytes=500000-", SIZE - 500_000)];
    assert_eq!(world.seen(), asked(&want));
    println!(
        "{} bytes of {SIZE} went over the link",
        world.seen().iter().map(|(_, bytes)| bytes).sum::<usize>()
    );
}

#[tokio::test]
async fn a_server_that_gives_no_parts_is_asked_for_all() {
    let world = World::new(Parts::Ignores, &[300_000, 500_000]).await;
    assert!(matches!(world.goes().await, Err(Trouble::Broke(_))), "nobody knows yet that it gives none");
    assert!(matches!(world.goes().await, Err(Trouble::Fetch(_))), "it comes no further by going on");
    world.goes().await.unwrap();
    assert!(world.is_there().await);
    let want = [("", 300_000), ("bytes=300000-", 500_000), ("bytes=500000-", SIZE)];
    assert_eq!(world.seen(), asked(&want));

    let world = World::new(Parts::Untagged, &[300_000]).await;
    assert!(matches!(world.goes().await, Err(Trouble::Fetch(_))));
    assert!(left(&world.releases.received).is_empty(), "nobody knows which document it is of");
    world.goes().await.unwrap();
    assert!(world.is_there().await);
    assert_eq!(world.seen(), asked(&[("", 300_000), ("", SIZE)]));
}

#[tokio::test]
async fn a_part_that_was_not_asked_for_is_not_taken() {
    let world = World::new(Parts::Lies, &[300_000]).await;
    assert!(matches!(world.goes().await, Err(Trouble::Broke(_))));
    // The next answer is looked at no further than its head.
    world.goes().await.unwrap();
    assert!(world.is_there().await);
    let ranges: Vec<_> = world.seen().into_iter().map(|(range, _)| range).collect();
    assert_eq!(ranges, ["", "bytes=300000-", ""]);
}

#[tokio::test]
async fn a_document_that_was_replaced_meanwhile_is_not_put_behind_the_old_one() {
    let world = World::new(Parts::Gives, &[300_000]).await;
    assert!(matches!(world.goes().await, Err(Trouble::Broke(_))));
    *world.releases.bytes.lock() = program("0.6.1");
    let error = world.goes().await.unwrap_err();
    assert!(matches!(&error, Trouble::Lasting(why) if why.contains("as was said")), "{error:?}");
    assert_eq!(world.seen(), asked(&[("", 300_000), ("bytes=300000-", SIZE)]));
    assert!(left(&world.releases.received).is_empty());
    // All of it had come when the agent ended: nothing is fetched for that.
    let world = World::new(Parts::Gives, &[300_000]).await;
    assert!(matches!(world.goes().await, Err(Trouble::Broke(_))));
    let all = world.releases.bytes.lock().clone();
    fs::write(&world.releases.received, &all).unwrap();
    world.goes().await.unwrap();
    assert!(world.is_there().await);
    let nothing = format!("bytes={SIZE}-");
    assert_eq!(world.seen(), asked(&[("", 300_000), (&nothing, 0)]));
}

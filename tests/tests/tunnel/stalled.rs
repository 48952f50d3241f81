//! Sessions that nobody reads.

use std::time::Duration;

use karmada_client::link::Io;
use karmada_tests::wait::PATIENCE;
use tokio::{io::AsyncWriteExt as _, task::JoinSet, time::timeout};

use crate::{asked, fleet, get, proxy, session, told, with_kubelet};

/// Of the 64 that a user may have at a time; with those of the next round more than a tunnel carries.
const SESSIONS: usize = 60;

/// Who stalls both ways and goes leaves nothing of that: not to themselves, nor to others.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_nobody_reads_leave_their_places_when_their_clients_go() {
    let Some(fleet) = fleet("stalled", &["--tunnel=full", "--tunnel-masters"]).await else { return };
    told(&fleet, "full").await;
    with_kubelet(&fleet).await;
    let fleet = std::sync::Arc::new(fleet);
    let version = format!("{}/version", proxy(&fleet));
    for round in 0..3 {
        let mut all = JoinSet::new();
        for _ in 0..SESSIONS {
            let fleet = fleet.clone();
            all.spawn(async move {
                let mut stream = session(&fleet, "attach?stdin=true").await;
                stuff(&mut stream).await;
                stream
            });
        }
        let open = timeout(PATIENCE, all.join_all()).await;
        let open = open.unwrap_or_else(|_| panic!("{round}: no session begins\n{}", fleet.logs()));
        // Beside all that, and a little after.
        for when in ["beside", "after"] {
            let (code, said) = timeout(PATIENCE, asked(&fleet.api, get(&version))).await.unwrap();
            assert_eq!(code, 200, "{round} {when}: {said}\n{}", fleet.logs());
        }
        drop(open);
        // What was given up counts for two seconds.
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

/// Says what is said back, and reads nothing of it until no more goes.
async fn stuff(stream: &mut (impl Io + ?Sized)) {
    let part = vec![b'x'; 64 << 10];
    while let Ok(written) = timeout(Duration::from_secs(2), stream.write_all(&part)).await {
        written.expect("it is open");
    }
}

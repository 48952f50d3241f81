//! `karmada-hub backup` and `karmada-hub restore`.

use std::{path::Path, time::Duration};

use http::Request;
use http_body_util::BodyExt;
use karmada_cli::{Failure, args::ServerArgs, ask::Server};
use karmada_env::Env;
use karmada_store::{Copy, OpenError, engine::Redb};
use kube::client::Body;
use tokio::time::timeout;

use super::{
    args::{BackupArgs, RestoreArgs},
    serve,
};
use crate::engine::backup::{self, BackupError, Whole, Writing};

/// A hub that says nothing for so long, in the midst of it, has something.
const SILENCE: Duration = Duration::from_secs(30);

/// Writes a backup of a hub, which may be running.
pub(super) async fn backup(args: BackupArgs, env: Env) -> Result<(), Failure> {
    let dir = &args.data_dir;
    if !dir.join("store.redb").is_file() {
        let why = "no hub has kept its objects here";
        return Err(Failure::usage(format!("--data-dir {}: {why}", dir.display())));
    }
    let (whole, how) = match Redb::open(dir) {
        Ok(mut engine) => {
            let copy = Copy::of_engine(&mut engine).map_err(Failure::failed)?;
            (backup::write(&args.to, dir, copy, &env).map_err(failure)?, "stopped")
        }
        Err(OpenError::InUse { .. }) => (running(dir, &args.to, &env).await?, "running"),
        Err(error) => return Err(failure(error.into())),
    };
    let Whole { revision, objects, kept, .. } = whole;
    let to = args.to.display();
    eprintln!("{to}: {objects} objects at revision {revision} of a hub that is {how}; {kept}");
    Ok(())
}

/// Asks the hub that holds the directory.
async fn running(dir: &Path, to: &Path, env: &Env) -> Result<Whole, Failure> {
    let kubeconfig = Some(dir.join("admin.kubeconfig"));
    let server = Server::open(&ServerArgs { kubeconfig, context: None, namespace: None }, env)?;
    server.reach().await?;
    let broken =
        |why: &dyn std::fmt::Display| Failure::failed(format!("copying the store of the hub: {why}"));
    let request = Request::get(serve::COPY_PATH).body(Body::empty()).map_err(|e| broken(&e))?;
    let sent = timeout(SILENCE, server.client().send(request)).await;
    let answer = sent.map_err(|_| broken(&"no answer"))?.map_err(|e| broken(&e))?;
    if !answer.status().is_success() {
        return Err(broken(&format!(
            "it answers {}; is it of this version, and is admin.kubeconfig its own?",
            answer.status()
        )));
    }
    let mut writing = Writing::begin(to, dir, env).map_err(failure)?;
    let mut body = answer.into_body();
    while let Some(frame) = timeout(SILENCE, body.frame()).await.map_err(|_| broken(&"it fell silent"))? {
        if let Ok(piece) = frame.map_err(|e| broken(&e))?.into_data() {
            writing.write(&piece).map_err(failure)?;
        }
    }
    writing.finish().map_err(failure)
}

/// Makes a data directory of a backup.
pub(super) fn restore(args: &RestoreArgs, env: &Env) -> Result<(), Failure> {
    let whole = backup::restore(&args.from, &args.data_dir, env).map_err(failure)?;
    let Whole { about, revision, objects, kept } = whole;
    eprintln!(
        "{}: {objects} objects at revision {revision}, as they were at {}; {kept}. Agents that know more than that keep their \
         members as they are until `karmada-hub confirm-restore` says that it counts",
        args.data_dir.display(),
        about.created_at
    );
    Ok(())
}

fn failure(error: BackupError) -> Failure {
    match error {
        BackupError::NotEmpty { .. } => Failure::usage(format!("--data-dir: {error}")),
        BackupError::Damaged { .. } => Failure::usage(format!("--from: {error}")),
        other => Failure::failed(other),
    }
}

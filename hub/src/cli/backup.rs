//! `karmada-hub backup` and `karmada-hub restore`.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use http::Request;
use http_body_util::BodyExt;
use karmada_cli::{Failure, args::ServerArgs, ask::Server, progress::Progress};
use karmada_env::Env;
use karmada_store::{Copy, OpenError, engine::Redb};
use kube::client::Body;
use serde_json::json;
use tokio::time::timeout;

use super::{
    args::{BackupArgs, RestoreArgs},
    serve,
};
use crate::engine::backup::{self, BackupError, Watch, Whole, Writing};

/// The file in a data directory that says when it was last backed up.
pub(super) const MARK: &str = "last-backup";
/// A hub that says nothing for so long, in the midst of it, has something.
const SILENCE: Duration = Duration::from_secs(30);

/// Writes a backup of a hub, which may be running.
pub(super) async fn backup(args: BackupArgs, env: Env) -> Result<(), Failure> {
    let dir = &args.data_dir;
    if !dir.join("store.redb").is_file() {
        return Err(serve::no_store(dir));
    }
    let (whole, how) = match Redb::open(dir) {
        Ok(mut engine) => {
            let copy = Copy::of_engine(&mut engine).map_err(Failure::failed)?;
            (backup::write(&args.to, dir, copy, &env).map_err(failure)?, "stopped")
        }
        Err(OpenError::InUse { .. }) => (running(dir, &args.to, &env).await?, "running"),
        Err(error) => return Err(failure(error.into())),
    };
    let Whole { about, revision, objects, kept } = whole;
    if let Err(error) = mark(dir, &about.created_at) {
        // The backup is whole all the same.
        eprintln!(
            "karmada-hub: {}: {error}; the hub's figures do not show this backup",
            dir.join(MARK).display()
        );
    }
    let to = args.to.display();
    let line = format!("{to}: {objects} objects at revision {revision} of a hub that is {how}; {kept}");
    if args.told.is_json() {
        let value = json!({
            "file": args.to.display().to_string(), "objects": objects, "revision": revision, "hub": how,
            "createdAt": about.created_at, "kept": kept.to_string(),
        });
        return args.told.say("", &value);
    }
    eprintln!("{line}");
    Ok(())
}

/// Tells whoever looks at the data directory when it was last backed up.
fn mark(dir: &Path, time: &str) -> io::Result<()> {
    let draft = dir.join(format!("{MARK}.new"));
    // The directory may be another user's: nothing that lies there is followed.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::File::create_new(&draft)?;
    file.write_all(format!("{time}\n").as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    fs::rename(draft, dir.join(MARK))
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
    let progress = Progress::new("backup (bytes)", None, env);
    while let Some(frame) = timeout(SILENCE, body.frame()).await.map_err(|_| broken(&"it fell silent"))? {
        if let Ok(piece) = frame.map_err(|e| broken(&e))?.into_data() {
            writing.write(&piece).map_err(failure)?;
            progress.add(piece.len() as u64, "");
        }
    }
    drop(progress);
    writing.finish().map_err(failure)
}

/// Makes a data directory of a backup.
pub(super) fn restore(args: &RestoreArgs, env: &Env) -> Result<(), Failure> {
    // It is read three times: twice to be checked.
    let file = fs::metadata(&args.from).map_err(|error| {
        let next = "name a file that `karmada-hub backup --to FILE` has written";
        Failure::usage(format!("--from {}: {error}; {next}", args.from.display()))
    })?;
    let bytes = file.len() * 3;
    let progress = Arc::new(Progress::new("restore (bytes)", Some(bytes), env));
    let shown = Arc::clone(&progress);
    let watch: Watch = Arc::new(move |bytes| shown.add(bytes, ""));
    let whole = backup::restore_watched(&args.from, &args.data_dir, env, &watch).map_err(failure)?;
    progress.clear();
    let Whole { about, revision, objects, kept } = whole;
    if args.told.is_json() {
        let value = json!({
            "dataDir": args.data_dir.display().to_string(), "objects": objects, "revision": revision,
            "createdAt": about.created_at, "kept": kept.to_string(),
        });
        return args.told.say("", &value);
    }
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

//! `karmada-hub export`: a hub's objects as YAML; and `import`, the way back into a data directory.

use std::{fs, os::unix::fs::DirBuilderExt, path::Path};

use karmada_cli::{Failure, apply, args::ServerArgs, ask::Server, print, progress::Progress};
use karmada_client::Rest;
use karmada_env::Env;
use karmada_objects::Objects;
use karmada_store::{OpenError, engine::redb::Redb};

use super::{
    args::{ExportArgs, ImportArgs},
    serve,
};
use crate::engine::{
    embedded::Embedded,
    export::{self, Dump, Part, yaml},
};

/// Reads everything and writes it.
pub(super) async fn run(args: ExportArgs, env: Env) -> Result<(), Failure> {
    let progress = Progress::new("export (kinds)", None, &env);
    let dump = match &args.data_dir {
        Some(dir) => stopped(dir, args.encryption_provider_config.as_deref(), &progress, &env).await?,
        None => {
            let server = ServerArgs { kubeconfig: args.kubeconfig, context: args.context, namespace: None };
            let server = Server::open(&server, &env)?;
            eprintln!(
                "the hub may be changing what is being read; for a move stop it, and export with --data-dir"
            );
            export::export(&server.objects, &progress).await.map_err(Failure::failed)?
        }
    };
    drop(progress);
    match &args.output {
        Some(dir) => files(&dump, dir)?,
        None => {
            for part in Part::ALL {
                print(&format!("# {part}\n{}", text(&dump, part)))?;
            }
        }
    }
    for note in &dump.notes {
        eprintln!("{note}");
    }
    Ok(())
}

/// Writes objects into a data directory that no hub runs on: nobody acts on them before all are there.
pub(super) async fn import(args: ImportArgs, env: Env) -> Result<(), Failure> {
    let embedded = at_rest(&args.data_dir, args.encryption_provider_config.as_deref(), &env)?;
    let server = Server::within(Objects::new(Rest::new(embedded.client())), "default", &env);
    let applied = apply::files_to(&server, &args.paths, true, args.told, &env).await;
    embedded.close().await.map_err(Failure::failed)?;
    applied
}

/// The objects in a data directory that no hub runs on.
async fn stopped(dir: &Path, config: Option<&Path>, progress: &Progress, env: &Env) -> Result<Dump, Failure> {
    let embedded = at_rest(dir, config, env)?;
    let dump = export::export(&Objects::new(Rest::new(embedded.client())), progress).await;
    embedded.close().await.map_err(Failure::failed)?;
    dump.map_err(Failure::failed)
}

/// The API over a data directory that no hub runs on.
fn at_rest(dir: &Path, config: Option<&Path>, env: &Env) -> Result<Embedded, Failure> {
    if !dir.join("store.redb").is_file() {
        return Err(serve::no_store(dir));
    }
    let engine = Redb::open(dir).map_err(|error| match error {
        OpenError::InUse { .. } => Failure::usage(format!(
            "{error}. Stop it first, or use its API while it runs (export and apply, --kubeconfig {})",
            dir.join("admin.kubeconfig").display()
        )),
        other => Failure::failed(other),
    })?;
    Embedded::at_rest(engine, serve::keys(config)?, env).map_err(Failure::failed)
}

fn text(dump: &Dump, part: Part) -> String {
    dump.part(part).map(yaml::document).collect()
}

fn files(dump: &Dump, dir: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::failed(format!("-o {}: {error}", dir.display()));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    for part in Part::ALL {
        let path = dir.join(part.file());
        serve::write_private(&path, &text(dump, part))
            .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        eprintln!("{}: {} objects", path.display(), dump.part(part).count());
    }
    Ok(())
}

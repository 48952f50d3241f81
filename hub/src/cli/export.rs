//! `karmada-hub export`: a hub's objects as YAML.

use std::{fs, os::unix::fs::DirBuilderExt, path::Path};

use karmada_cli::{Failure, args::ServerArgs, ask::Server, print, progress::Progress};
use karmada_client::Rest;
use karmada_env::Env;
use karmada_objects::Objects;
use karmada_store::{OpenError, engine::redb::Redb};

use super::{args::ExportArgs, serve};
use crate::engine::{
    embedded::Embedded,
    export::{self, Dump, Part, yaml},
};

/// Reads everything and writes it.
pub(super) async fn run(args: ExportArgs, env: Env) -> Result<(), Failure> {
    let progress = Progress::new("export", None, &env);
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

/// The objects in a data directory that no hub runs on.
async fn stopped(dir: &Path, config: Option<&Path>, progress: &Progress, env: &Env) -> Result<Dump, Failure> {
    if !dir.join("store.redb").is_file() {
        let why = "no hub has kept its objects here";
        return Err(Failure::usage(format!("--data-dir {}: {why}", dir.display())));
    }
    let engine = Redb::open(dir).map_err(|error| match error {
        OpenError::InUse { .. } => Failure::usage(format!(
            "{error}. Stop it, or export from it while it runs: --kubeconfig {}",
            dir.join("admin.kubeconfig").display()
        )),
        other => Failure::failed(other),
    })?;
    let embedded = Embedded::at_rest(engine, serve::keys(config)?, env).map_err(Failure::failed)?;
    let dump = export::export(&Objects::new(Rest::new(embedded.client())), progress).await;
    embedded.close().await.map_err(Failure::failed)?;
    dump.map_err(Failure::failed)
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

//! Secrets at rest, by the arguments: which keys there are, and when the store is to be written anew with others.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use karmada_apiserver::{
    encryption::{Encryption, EncryptionError, EncryptionFigures, config},
    storage::ApiStore,
};
use karmada_cli::Failure;
use karmada_env::Env;
use parking_lot::Mutex;
use tokio::{task::spawn_blocking, time::interval};
use tokio_util::sync::CancellationToken;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// After so many looks a command is asked whether its key is another, and a file that was refused is tried again.
const SELDOM: u32 = 12;
/// After the store could not be written anew it is tried again after this, and after twice as long each time,
const AGAIN: Duration = Duration::from_secs(10);
/// and not more seldom than this.
const AT_LAST: Duration = Duration::from_secs(600);
/// In the data directory: by what all of the store was written last.
const WRITTEN: &str = "encryption.written";

/// What a file is told that has what the guides for Kubernetes have.
const PLAIN_WORKS: &str = "Works are not encrypted, and carry the Secrets that go to clusters; list works.work.karmada.io beside \
                           secrets";

/// By what the store was written last is not known any more: whatever happens now, it is written anew.
fn forget(data: &Path) -> Result<(), String> {
    match fs::remove_file(data.join(WRITTEN)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// The keys of a store, for whoever reads it.
pub(in crate::cli) fn keys(file: Option<&Path>) -> Result<Arc<Encryption>, Failure> {
    open(file).map(|(encryption, _)| encryption)
}

fn open(file: Option<&Path>) -> Result<(Arc<Encryption>, Vec<u8>), Failure> {
    let Some(file) = file else { return Ok((Arc::new(Encryption::none()), Vec::new())) };
    let wrong =
        |why: String| Failure::usage(format!("--encryption-provider-config {}: {why}", file.display()));
    let text = read(file).map_err(wrong)?;
    let encryption = Encryption::new(&text).map_err(|error: EncryptionError| wrong(error.to_string()))?;
    Ok((Arc::new(encryption), text))
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let most = config::LARGEST as u64 + 1;
    File::open(file).and_then(|file| file.take(most).read_to_end(&mut text)).map_err(|e| e.to_string())?;
    Ok(text)
}

/// What is noteworthy of where a file of keys lies.
fn remarks(file: &Path, data: &Path) -> Vec<String> {
    let mut remarks = Vec::new();
    let mode = fs::metadata(file).map_or(0, |about| about.permissions().mode() & 0o777);
    if mode & 0o077 != 0 {
        remarks.push(format!("others than its owner may use it (mode {mode:03o}); it should have mode 600"));
    }
    if let (Ok(file), Ok(data)) = (file.canonicalize(), data.canonicalize())
        && file.starts_with(&data)
    {
        let pki = if file.starts_with(data.join("pki")) { ", and backups hold it, too" } else { "" };
        remarks.push(format!("it lies in the data directory: whoever has that has the key{pki}"));
    }
    remarks
}

/// Keeps a store encrypted as its file says.
#[derive(Debug)]
pub(super) struct Keeper {
    encryption: Arc<Encryption>,
    file: Option<PathBuf>,
    /// What was read last of it, and is in force;
    text: Vec<u8>,
    /// what was read of it and refused.
    refused: Option<Vec<u8>>,
    data: PathBuf,
    written: Arc<Mutex<String>>,
    every: Duration,
}

impl Keeper {
    /// Reads the file.
    pub(super) fn open(file: Option<&Path>, data: &Path) -> Result<Self, Failure> {
        let (encryption, text) = open(file)?;
        for remark in file.map(|file| remarks(file, data)).unwrap_or_default() {
            tracing::warn!("--encryption-provider-config: {remark}");
        }
        let written = fs::read_to_string(data.join(WRITTEN)).unwrap_or_default().trim().to_owned();
        if !written.is_empty() && written != encryption.digest() {
            forget(data).map_err(|why| Failure::failed(format!("{WRITTEN}: {why}")))?;
        }
        let written = Arc::new(Mutex::new(written));
        if encryption.leaves_works() {
            tracing::warn!("--encryption-provider-config: {PLAIN_WORKS}");
        }
        let file = file.map(Path::to_owned);
        Ok(Self { encryption, file, text, refused: None, data: data.to_owned(), written, every: LOOK })
    }

    /// For the store.
    pub(super) fn encryption(&self) -> Arc<Encryption> {
        self.encryption.clone()
    }

    /// For a page; none where nothing is encrypted.
    pub(super) fn figures(&self) -> Option<EncryptionFigures> {
        let figures = || EncryptionFigures::new(self.encryption.clone(), self.written.clone());
        self.file.is_some().then(figures)
    }

    /// Follows the file, and writes the store anew when values may stand in it that it would write otherwise.
    pub(super) async fn keep(mut self, store: ApiStore, env: Env, stop: CancellationToken) {
        let (mut looks, mut count) = (interval(self.every), 0_u32);
        let (mut not_before, mut wait) = (Duration::ZERO, AGAIN);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = looks.tick() => {}
            }
            // The first look is at what was just read.
            if count > 0 {
                self.look(count.is_multiple_of(SELDOM)).await;
            }
            count = count.wrapping_add(1);
            if env.now() < not_before || !self.encryption.is_due(&self.written.lock()) {
                continue;
            }
            let begun = env.now();
            match self.rewrite(&store).await {
                Ok(()) => {
                    wait = AGAIN;
                    let duration_ms = (env.now().saturating_sub(begun)).as_millis() as u64;
                    let keys = self.encryption.writing().join(", ");
                    tracing::info!(
                        duration_ms,
                        keys,
                        "all of the store was written anew as --encryption-provider-config has it"
                    );
                }
                Err(why) => {
                    not_before = env.now() + wait;
                    wait = (wait * 2).min(AT_LAST);
                    let keys = self.encryption.keys().join(", ");
                    tracing::error!(
                        keys,
                        "the store could not be written anew, and is tried again: no key may go meanwhile: {why}"
                    );
                }
            }
        }
    }

    async fn rewrite(&self, store: &ApiStore) -> Result<(), String> {
        let digest = self.encryption.digest();
        let done = store.rewrite().await.map_err(|error| error.to_string());
        self.encryption.rewritten(done.is_ok());
        done?;
        self.written.lock().clone_from(&digest);
        // If it is lost, the next start writes once more.
        fs::write(self.data.join(WRITTEN), digest + "\n").map_err(|error| format!("{WRITTEN}: {error}"))
    }

    /// Reads the file if it has changed.
    async fn look(&mut self, seldom: bool) {
        let Some(file) = self.file.clone() else { return };
        let text = match read(&file) {
            Ok(text) => text,
            Err(why) => {
                if seldom {
                    tracing::error!(file = %file.display(), "--encryption-provider-config cannot be read, and stays as it was: {why}");
                }
                return;
            }
        };
        let known = self.refused.as_ref() == Some(&text);
        if text == self.text {
            self.refused = None;
            if !seldom || !self.has_new_key().await {
                return;
            }
        } else if known && !seldom {
            return;
        }
        // First: what is written from then on may be written otherwise, and this program may end before it is noted.
        if let Err(why) = forget(&self.data) {
            tracing::error!(
                "--encryption-provider-config has changed, and stays as it was: {WRITTEN}: {why}"
            );
            return;
        }
        let (encryption, new) = (self.encryption.clone(), text.clone());
        match spawn_blocking(move || encryption.reload(&new)).await {
            Ok(Ok(())) => {
                let keys = self.encryption.writing().join(", ");
                tracing::info!(keys, "--encryption-provider-config has changed and is in force");
                if self.encryption.leaves_works() {
                    tracing::warn!("--encryption-provider-config: {PLAIN_WORKS}");
                }
                (self.text, self.refused) = (text, None);
            }
            Ok(Err(why)) => {
                if !known {
                    tracing::error!(file = %file.display(), "--encryption-provider-config has changed and is refused; the one from before stays in force: {why}");
                }
                self.refused = Some(text);
            }
            Err(error) => tracing::error!(%error, "reading --encryption-provider-config"),
        }
    }

    async fn has_new_key(&self) -> bool {
        let encryption = self.encryption.clone();
        match spawn_blocking(move || encryption.has_new_key()).await {
            Ok(Ok(new)) => new,
            Ok(Err(why)) => {
                tracing::warn!(
                    "what is encrypted stays so, and the hub goes on with the key that it has: {why}"
                );
                false
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;

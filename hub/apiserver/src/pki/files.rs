//! Private files: made whole or not at all, readable by their owner alone.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use super::{Credential, PkiError};

/// Mode of keys and kubeconfigs.
pub(super) const PRIVATE: u32 = 0o600;
/// Mode of what anyone may read.
pub(super) const PUBLIC: u32 = 0o644;

const BEGIN_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// Makes `dir` with all parents, only for its owner.
pub(super) fn create_private_dir(dir: &Path) -> Result<(), PkiError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|source| io("create", dir, source))
}

/// Writes a file whole: a temporary file beside it, synced, then renamed over it. A file that already holds
/// these bytes is left alone, its mode set right.
pub(super) fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> Result<(), PkiError> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return fs::set_permissions(path, Permissions::from_mode(mode))
            .map_err(|source| io("write", path, source));
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let write = || -> std::io::Result<()> {
        // One left by an interrupted start may have another mode.
        match fs::remove_file(temporary) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(temporary, path)?;
        match path.parent() {
            Some(dir) => fs::File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(|source| io("write", path, source))
}

/// Writes key and certificate into one file.
pub(super) fn write_credential(path: &Path, credential: &Credential) -> Result<(), PkiError> {
    let text = format!("{}{}", credential.key_pem, credential.certificate_pem);
    write_atomic(path, text.as_bytes(), PRIVATE)
}

/// Reads what [`write_credential`] wrote; `None` if there is no such file.
pub(super) fn read_credential(path: &Path) -> Result<Option<Credential>, PkiError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == ErrorKind::InvalidData => {
            return Err(damaged(path, "it is not text"));
        }
        Err(source) => return Err(io("read", path, source)),
    };
    let Some(at) = text.find(BEGIN_CERTIFICATE) else {
        return Err(damaged(path, "it holds no certificate"));
    };
    let (key, certificate) = text.split_at(at);
    if !key.contains("PRIVATE KEY-----") {
        return Err(damaged(path, "it holds no private key before the certificate"));
    }
    Ok(Some(Credential { key_pem: key.to_owned(), certificate_pem: certificate.to_owned() }))
}

fn damaged(path: &Path, detail: &str) -> PkiError {
    PkiError::Damaged { path: path.to_path_buf(), detail: detail.to_owned() }
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> PkiError {
    PkiError::Io { action, path: path.to_path_buf(), source }
}

//! Where a credential outlives the process: a Secret of the member, or a folder. A key is kept before anything is asked for
//! with it, so that after a crash the same is asked for.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_client::{Kubeconfig, Patch, Rest};
use karmada_member::Disk;
use serde_json::{Value, json};

/// The kubeconfig, as a file of the folder and as a field of the Secret; Karmada's name for it.
pub(crate) const KUBECONFIG: &str = "karmada-kubeconfig";

/// The key for which there is no certificate yet.
const KEY: &str = "pending-key";

/// The invitation by which the credential came.
const JOINED_BY: &str = "joined-by";

/// The same once more: where a disk spoils one file, the other has it.
const COPY: &str = "karmada-kubeconfig.copy";

/// What begins the last line of a file of ours, a comment in YAML: by the digest after it a spoiled file is known.
const SEAL: &str = "# sha256: ";

/// What the name of a file that was set aside ends with.
const SPOILED: &str = ".damaged";

/// Somebody else may write the Secret at the same time; then it is read again, so often.
const TRIES: usize = 5;

/// Where it is kept.
#[derive(Clone, Debug)]
pub(crate) enum Keep {
    /// Files of a folder that nobody else may read, and its disk.
    Folder(PathBuf, Disk),
    /// A Secret of the member.
    Secret { member: Rest, namespace: String, name: String },
}

/// What was found.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) kubeconfig: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) joined_by: Option<String>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The first two hold keys.
        let Self { kubeconfig, key, joined_by } = self;
        write!(f, "Kept({}, {}, {joined_by:?})", kubeconfig.is_some(), key.is_some())
    }
}

impl Keep {
    /// Files of a folder.
    pub(crate) fn folder(folder: PathBuf) -> Self {
        Self::Folder(folder, Disk::default())
    }

    /// The Secret that a kubeconfig is mounted from as `karmadactl register` has it, if there is one, `is_ours`, and we may
    /// write it.
    pub(crate) async fn behind_mount(
        member: &Rest,
        namespace: &str,
        is_ours: impl FnOnce(&str) -> bool,
    ) -> Result<Option<Self>, String> {
        let keep = Self::Secret {
            member: member.clone(),
            namespace: namespace.to_owned(),
            name: KUBECONFIG.to_owned(),
        };
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{KUBECONFIG}");
        match member.get(&path).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() || error.is_forbidden() => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", keep.place())),
        }
        if !keep.load().await?.kubeconfig.is_some_and(|text| is_ours(&text)) {
            return Ok(None);
        }
        let attributes =
            json!({"verb": "patch", "resource": "secrets", "namespace": namespace, "name": KUBECONFIG});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let reviewed = member.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await;
        let reviewed = reviewed.map_err(|error| format!("{}: {error}", keep.place()))?;
        Ok((reviewed["status"]["allowed"] == true).then_some(keep))
    }

    /// In words.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Folder(folder, _) => folder.join(KUBECONFIG).display().to_string(),
            Self::Secret { namespace, name, .. } => format!("Secret {namespace}/{name} of the member"),
        }
    }

    /// What is there, as far as it can be read; nothing is mended.
    pub(crate) async fn look(&self) -> Result<Option<String>, String> {
        match self {
            Self::Folder(folder, disk) => {
                let look = |folder: &Path| match found(folder) {
                    Found::Absent => Ok(None),
                    Found::Sound { text, .. } | Found::InCopy { text, .. } => Ok(Some(text)),
                    Found::Spoiled { why, .. } => {
                        Err(format!("{}: damaged ({why})", folder.join(KUBECONFIG).display()))
                    }
                };
                on_disk(folder, disk, look).await
            }
            Self::Secret { .. } => Ok(self.secret().await?.1.kubeconfig),
        }
    }

    /// What is there. What is damaged is mended, or set aside.
    pub(crate) async fn load(&self) -> Result<Kept, String> {
        match self {
            Self::Folder(folder, disk) => {
                let load = |folder: &Path| {
                    // By which invitation it came, and which key waits, is not worth an agent that has a credential.
                    let lenient = |name: &str| read(folder, name).unwrap_or_default();
                    let joined_by = lenient(JOINED_BY).map(|text| text.trim().to_owned());
                    Ok(Kept { kubeconfig: kubeconfig(folder)?, key: lenient(KEY), joined_by })
                };
                on_disk(folder, disk, load).await
            }
            Self::Secret { .. } => Ok(self.secret().await?.1),
        }
    }

    /// Keeps a key for which there is no certificate yet. Answers with the one that counts: there may be one already.
    pub(crate) async fn begin(&self, key: String) -> Result<String, String> {
        match self {
            Self::Folder(folder, disk) => {
                let begin = move |folder: &Path| match read(folder, KEY)? {
                    Some(there) => own(&folder.join(KEY)).map(|()| there),
                    None => write(folder, KEY, &key).map(|()| key),
                };
                on_disk(folder, disk, begin).await
            }
            Self::Secret { .. } => {
                for _ in 0..TRIES {
                    let (version, there) = self.secret().await?;
                    if let Some(there) = there.key {
                        return Ok(there);
                    }
                    if self.put(version, json!({KEY: STANDARD.encode(&key)})).await? {
                        return Ok(key);
                    }
                }
                Err(format!("{}: somebody else writes it again and again", self.place()))
            }
        }
    }

    /// Keeps a credential, with the invitation by which it came if it is not one renewed, and no key beside it any more.
    pub(crate) async fn finish(&self, kubeconfig: &str, joined_by: Option<&str>) -> Result<(), String> {
        match self {
            Self::Folder(folder, disk) => {
                let (sealed, joined_by) = (sealed(kubeconfig), joined_by.map(|by| format!("{by}\n")));
                let finish = move |folder: &Path| {
                    write(folder, KUBECONFIG, &sealed)?;
                    write(folder, COPY, &sealed)?;
                    if let Some(joined_by) = joined_by {
                        write(folder, JOINED_BY, &joined_by)?;
                    }
                    forget(folder, &[KEY])
                };
                on_disk(folder, disk, finish).await
            }
            Self::Secret { .. } => {
                for _ in 0..TRIES {
                    let (version, _) = self.secret().await?;
                    let mut data = json!({KUBECONFIG: STANDARD.encode(kubeconfig), KEY: Value::Null});
                    if let Some(joined_by) = joined_by {
                        data[JOINED_BY] = STANDARD.encode(joined_by).into();
                    }
                    if self.put(version, data).await? {
                        return Ok(());
                    }
                }
                Err(format!("{}: somebody else writes it again and again", self.place()))
            }
        }
    }

    /// Forgets the key: another one is to be made.
    pub(crate) async fn forget(&self) -> Result<(), String> {
        match self {
            Self::Folder(folder, disk) => on_disk(folder, disk, |folder| forget(folder, &[KEY])).await,
            Self::Secret { .. } => {
                let (version, there) = self.secret().await?;
                if there.key.is_some() {
                    self.put(version, json!({KEY: Value::Null})).await?;
                }
                Ok(())
            }
        }
    }

    /// Forgets everything, when the cluster has left.
    pub(crate) async fn forget_all(&self) -> Result<(), String> {
        match self {
            Self::Folder(folder, disk) => {
                // What a power cut has left of one may hold a key, too.
                let all = |name: &str| ["", ".new", SPOILED].map(|end| format!("{name}{end}"));
                let names: Vec<String> =
                    [KUBECONFIG, COPY, KEY, JOINED_BY].into_iter().flat_map(all).collect();
                on_disk(folder, disk, move |folder| forget(folder, &names)).await
            }
            Self::Secret { member, namespace, name } => {
                let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
                match member.delete(&path, &json!({})).await {
                    Err(error) if !error.is_not_found() => Err(format!("{}: {error}", self.place())),
                    _ => Ok(()),
                }
            }
        }
    }

    /// The Secret's version and content; no version if there is none.
    async fn secret(&self) -> Result<(Option<String>, Kept), String> {
        let Self::Secret { member, namespace, name } = self else { return Ok(Default::default()) };
        let secret = match member.get(&format!("/api/v1/namespaces/{namespace}/secrets/{name}")).await {
            Ok(secret) => secret,
            Err(error) if error.is_not_found() => return Ok(Default::default()),
            Err(error) => return Err(format!("{}: {error}", self.place())),
        };
        let field = |field: &str| -> Result<Option<String>, String> {
            let Some(encoded) = secret["data"][field].as_str().filter(|text| !text.is_empty()) else {
                return Ok(None);
            };
            let text = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            text.map(Some).ok_or_else(|| format!("{}: data.{field} is no text", self.place()))
        };
        let version = secret["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let kept = Kept { kubeconfig: field(KUBECONFIG)?, key: field(KEY)?, joined_by: field(JOINED_BY)? };
        Ok((Some(version), kept))
    }

    /// Writes fields of the Secret as it was read; false if somebody else was first.
    async fn put(&self, version: Option<String>, data: Value) -> Result<bool, String> {
        let Self::Secret { member, namespace, name } = self else { return Ok(true) };
        let collection = format!("/api/v1/namespaces/{namespace}/secrets");
        let written = match version {
            Some(version) => {
                let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
                member.patch(&format!("{collection}/{name}"), Patch::Merge, &patch).await
            }
            None => {
                let mut data = data;
                data.as_object_mut()
                    .into_iter()
                    .for_each(|fields| fields.retain(|_, value| !value.is_null()));
                let secret = json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                    "metadata": {"name": name, "namespace": namespace, "labels": {"app": "karmada-agent"}},
                    "data": data,
                });
                member.post(&collection, &secret).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(error) if error.is_conflict() || error.is_already_exists() => Ok(false),
            Err(error) => Err(format!("{}: {error}", self.place())),
        }
    }
}

fn wrong(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Beside the thread that does everything else, and not waited for without end.
async fn on_disk<T: Send + 'static>(
    folder: &Path,
    disk: &Disk,
    work: impl FnOnce(&Path) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let own = folder.to_owned();
    disk.run(folder, move || work(&own)).await?
}

/// A file's text; none if there is no file, or an empty one. What is no text was damaged, and is set aside.
fn read(folder: &Path, name: &str) -> Result<Option<String>, String> {
    let path = folder.join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text).filter(|text| !text.trim().is_empty())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            set_aside(folder, name, "it is no text").map(|()| None)
        }
        Err(error) => Err(wrong(&path, &error)),
    }
}

/// Lets a damaged file be none.
fn set_aside(folder: &Path, name: &str, why: &str) -> Result<(), String> {
    let (path, aside) = (folder.join(name), folder.join(format!("{name}{SPOILED}")));
    let moved = fs::rename(&path, &aside);
    moved
        .map_err(|error| format!("{}: damaged ({why}), and cannot be set aside: {error}", path.display()))?;
    tracing::error!(file = %path.display(), why, aside = %aside.display(), "what was kept of the credential for the hub is damaged and was set aside");
    Ok(())
}

/// How a folder's kubeconfig was found.
enum Found {
    /// There is no file: somebody has taken it away, and the copy is not asked.
    Absent,
    /// It can be used; `copied`: the copy says the same.
    Sound { text: String, copied: bool },
    /// It is damaged, and the copy can be used.
    InCopy { text: String, why: String, is_there: bool },
    /// It is damaged, and so is the copy.
    Spoiled { why: String, is_there: bool },
}

/// Looks at a folder's kubeconfig and its copy.
fn found(folder: &Path) -> Found {
    let (path, copy) = (folder.join(KUBECONFIG), folder.join(COPY));
    let found = match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Found::Absent,
        found => found,
    };
    let is_there = found.is_ok();
    let found = found.map_err(|error| error.to_string()).and_then(|bytes| opened(&path, bytes));
    let copy = fs::read(&copy).ok().and_then(|bytes| opened(&copy, bytes).ok());
    match (found, copy) {
        // What is left of a file that was cut may be a kubeconfig, too.
        (Ok(text), Some(copy)) if text.len() < copy.len() && copy.starts_with(&text) => {
            Found::InCopy { text: copy, why: "it was cut".to_owned(), is_there }
        }
        (Ok(text), copy) => Found::Sound { copied: copy.as_ref() == Some(&text), text },
        (Err(why), Some(text)) => Found::InCopy { text, why, is_there },
        (Err(why), None) => Found::Spoiled { why, is_there },
    }
}

/// What a folder's kubeconfig says. One that is spoiled is set aside and taken from its copy, if that is sound. One that the disk
/// does not let be read may be read later.
fn kubeconfig(folder: &Path) -> Result<Option<String>, String> {
    let path = folder.join(KUBECONFIG);
    match found(folder) {
        Found::Absent => Ok(None),
        Found::Sound { text, copied } => {
            // Whoever has put it there has made no copy.
            if !copied && let Err(error) = write(folder, COPY, &sealed(&text)) {
                tracing::warn!(error, "cannot write a copy of the credential for the hub");
            }
            Ok(Some(text))
        }
        Found::InCopy { text, why, is_there } => {
            tracing::warn!(
                file = %path.display(), why,
                "the credential for the hub is damaged, and its copy is used; whoever edits the file has to remove its last \
                 line, which begins with {SEAL}"
            );
            // Somebody may have edited it. A crash in between must not leave no file.
            let aside = folder.join(format!("{KUBECONFIG}{SPOILED}"));
            let aside = match is_there {
                true => fs::copy(&path, &aside).map(drop).map_err(|error| wrong(&aside, &error)),
                false => Ok(()),
            };
            if let Err(error) = aside.and_then(|()| write(folder, KUBECONFIG, &sealed(&text))) {
                tracing::warn!(error, "cannot write the credential anew");
            }
            Ok(Some(text))
        }
        Found::Spoiled { why, is_there: true } => set_aside(folder, KUBECONFIG, &why).map(|()| None),
        Found::Spoiled { why, is_there: false } => Err(format!("{}: {why}", path.display())),
    }
}

/// A kubeconfig with its digest.
fn sealed(text: &str) -> String {
    let text = text.trim_end();
    format!("{text}\n{SEAL}{}\n", digest(text))
}

/// What a file says whose digest is right. One without was written by somebody else, and is sound if it is a kubeconfig.
fn opened(path: &Path, bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    let text = text.trim_end();
    match text.rsplit_once('\n').and_then(|(text, last)| Some((text, last.strip_prefix(SEAL)?))) {
        Some((text, said)) if said == digest(text) => Ok(text.to_owned()),
        Some(_) => Err("its digest is another".to_owned()),
        None if text.is_empty() => Err("it is empty".to_owned()),
        None => match Kubeconfig::parse(path, text) {
            Ok(_) => Ok(text.to_owned()),
            Err(error) => Err(error.to_string()),
        },
    }
}

fn digest(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes files of a folder.
fn forget(folder: &Path, names: &[impl AsRef<Path>]) -> Result<(), String> {
    names.iter().try_for_each(|name| {
        let path = folder.join(name);
        remove(&path).map_err(|error| wrong(&path, &error))
    })
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a file is of our making: whoever may put one there must not choose our key.
fn own(path: &Path) -> Result<(), String> {
    let found = fs::symlink_metadata(path).map_err(|error| wrong(path, &error))?;
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    match found.is_file() && is_ours && found.mode() & 0o077 == 0 {
        true => Ok(()),
        false => Err(format!("{}: somebody else may have put it there; take it away", path.display())),
    }
}

/// Writes a file for its owner alone, so that a power cut leaves the old one or the new one.
fn write(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let (path, draft) = (folder.join(name), folder.join(format!("{name}.new")));
    let written = || -> std::io::Result<()> {
        remove(&draft)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        fs::File::open(folder)?.sync_all()
    };
    written().map_err(|error| wrong(&path, &error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_folder_keeps_it_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::folder(folder.path().to_path_buf());
        assert_eq!(keep.load().await.unwrap(), Kept::default());
        assert_eq!(keep.begin("one".into()).await.unwrap(), "one");
        assert_eq!(keep.begin("two".into()).await.unwrap(), "one", "what was begun goes on");
        let key = folder.path().join(KEY);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(keep.begin("two".into()).await.unwrap_err().contains("somebody else may have put it there"));
        fs::remove_file(&key).unwrap();
        std::os::unix::fs::symlink("elsewhere", &key).unwrap();
        fs::write(folder.path().join("elsewhere"), "theirs").unwrap();
        assert!(keep.begin("two".into()).await.is_err());
        fs::remove_file(folder.path().join("elsewhere")).unwrap();
        keep.forget().await.unwrap();
        assert_eq!(keep.begin("one".into()).await.unwrap(), "one");
        fs::write(folder.path().join("karmada-kubeconfig.new"), "half").unwrap();
        keep.finish("config", Some("abcdef sha256:1")).await.unwrap();
        keep.finish("renewed", None).await.unwrap();
        let kept = keep.load().await.unwrap();
        assert_eq!((kept.kubeconfig.as_deref(), kept.key), (Some("renewed"), None));
        assert_eq!(kept.joined_by.as_deref(), Some("abcdef sha256:1"), "a renewal is no other invitation");
        let mode = fs::metadata(folder.path().join(KUBECONFIG)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "no draft stays");
        fs::write(folder.path().join("pending-key.new"), "half").unwrap();
        keep.forget_all().await.unwrap();
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            0,
            "nothing stays of a cluster that has left"
        );
        let nowhere = Keep::folder(folder.path().join("nowhere"));
        assert!(nowhere.begin("x".into()).await.unwrap_err().contains("nowhere/pending-key"));
    }

    /// Every byte of either file is flipped, and each file is cut to any length.
    #[tokio::test]
    async fn what_a_disk_spoils_is_read_from_the_copy() {
        let whole = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: []\nusers: []\ncontexts: []";
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::folder(folder.path().to_path_buf());
        let [first, copy] = [KUBECONFIG, COPY].map(|name| folder.path().join(name));
        keep.finish(whole, None).await.unwrap();
        let bytes = fs::read(&first).unwrap();
        assert!(
            Kubeconfig::parse(&first, std::str::from_utf8(&bytes).unwrap()).is_ok(),
            "others read it, too"
        );
        let flipped = (0..bytes.len()).map(|at| {
            let mut other = bytes.clone();
            other[at] ^= 1;
            other
        });
        let cut = (0..bytes.len()).map(|length| bytes[..length].to_vec());
        for spoiled in flipped.chain(cut) {
            // What is no digest's any more has to be read as somebody else's file, and says the same.
            for path in [&first, &copy] {
                fs::write(path, &spoiled).unwrap();
                let text = keep.load().await.unwrap().kubeconfig.unwrap();
                assert_eq!(text.split("\n#").next().unwrap().trim_end(), whole, "{spoiled:?}");
            }
            fs::write(&first, &bytes).unwrap();
            fs::write(&copy, &bytes).unwrap();
        }
    }

    #[tokio::test]
    async fn what_somebody_else_has_written_is_copied_and_an_edit_is_not_lost() {
        let whole = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: []\nusers: []\ncontexts: []";
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::folder(folder.path().to_path_buf());
        let first = folder.path().join(KUBECONFIG);
        let aside = folder.path().join("karmada-kubeconfig.damaged");
        fs::write(&first, whole).unwrap();
        keep.load().await.unwrap();
        let mut spoiled = whole.as_bytes().to_vec();
        spoiled[20] ^= 0x80;
        fs::write(&first, &spoiled).unwrap();
        // Whoever only looks moves nothing.
        assert_eq!(keep.look().await.unwrap().as_deref(), Some(whole));
        assert_eq!((fs::read(&first).unwrap(), aside.exists()), (spoiled, false));
        assert_eq!(keep.load().await.unwrap().kubeconfig.as_deref(), Some(whole));
        let edited = fs::read_to_string(&first).unwrap().replace("current-context: a", "current-context: b");
        fs::write(&first, &edited).unwrap();
        assert_eq!(keep.load().await.unwrap().kubeconfig.as_deref(), Some(whole));
        assert_eq!(fs::read_to_string(&aside).unwrap(), edited);
        // Without its last line it counts.
        let edited = whole.replace("current-context: a", "current-context: b");
        fs::write(&first, &edited).unwrap();
        assert_eq!(keep.load().await.unwrap().kubeconfig.as_deref(), Some(edited.as_str()));
        fs::write(&first, [0xff]).unwrap();
        fs::write(folder.path().join(COPY), "").unwrap();
        assert!(keep.look().await.unwrap_err().contains("damaged"));
        assert_eq!(fs::read(&first).unwrap(), [0xff]);
    }

    #[tokio::test]
    async fn what_cannot_be_read_from_anywhere_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::folder(folder.path().to_path_buf());
        let [first, copy] = [KUBECONFIG, COPY].map(|name| folder.path().join(name));
        fs::write(&first, [0xff, 0]).unwrap();
        fs::write(&copy, "").unwrap();
        assert_eq!(keep.load().await.unwrap(), Kept::default());
        assert_eq!(fs::read(folder.path().join("karmada-kubeconfig.damaged")).unwrap(), [0xff, 0]);
        // What is only beside it hinders nobody who has it.
        let whole = sealed("apiVersion: v1\nkind: Config");
        fs::write(&first, &whole).unwrap();
        for name in [JOINED_BY, KEY] {
            fs::write(folder.path().join(name), [b'a', 0xff]).unwrap();
        }
        let kept = keep.load().await.unwrap();
        assert_eq!((kept.kubeconfig.is_some(), &kept.key, &kept.joined_by), (true, &None, &None));
        assert!(folder.path().join("joined-by.damaged").exists());
        assert_eq!(keep.begin("one".into()).await.unwrap(), "one");
        fs::create_dir(folder.path().join(JOINED_BY)).unwrap();
        assert_eq!(keep.load().await.unwrap().joined_by, None);
        fs::remove_dir(folder.path().join(JOINED_BY)).unwrap();
        keep.forget().await.unwrap();
        // What the disk does not let be read now is not set aside: it may pass.
        fs::remove_file(&first).unwrap();
        fs::create_dir(&first).unwrap();
        fs::write(&copy, "").unwrap();
        assert!(keep.load().await.unwrap_err().contains("karmada-kubeconfig: "));
        fs::write(&copy, &whole).unwrap();
        assert_eq!(keep.load().await.unwrap().kubeconfig.as_deref(), Some("apiVersion: v1\nkind: Config"));
        fs::remove_dir(&first).unwrap();
        // Somebody has taken it away.
        fs::write(&copy, sealed("apiVersion: v1\nkind: Config")).unwrap();
        assert_eq!(keep.load().await.unwrap(), Kept::default());
    }
}

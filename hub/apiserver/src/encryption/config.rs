//! kube-apiserver's file: `apiserver.config.k8s.io/v1` EncryptionConfiguration.
//!
//! ```yaml
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: EncryptionConfiguration
//! resources:
//! - resources: [secrets, works.work.karmada.io]
//!   providers:
//!   - aesgcm: {keys: [{name: key1, secret: <32 bytes in base64>}]}
//!   - identity: {}
//! ```
//!
//! The first provider writes, all read; `identity` is what is not encrypted. The first entry that has a resource decides
//! for it: `NAME` of the core group, `NAME.GROUP`, `*.GROUP`, `*.` (the core group) or `*.*`. Works hold the manifests of
//! what is propagated, Secrets included: whoever lists `secrets` wants `works.work.karmada.io`, too.
//!
//! What differs from kube-apiserver. `aesgcm` is AES-256-GCM and `secretbox` is ChaCha20-Poly1305, over a key that is derived
//! of the file's for each run of the hub; the store is not etcd, and nothing else reads it. `aescbc` is refused, as it does not
//! notice changes. `kms` names a command (`endpoint: exec:///usr/local/bin/ours`) where kube-apiserver
//! has a socket that speaks gRPC, which this hub does not: [`super::command`].

use std::{path::PathBuf, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_meta::duration;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::sealed::Cipher;
use crate::{body, findings::Findings, kinds::built_in_specs};

/// The version that is read.
const VERSION: &str = "apiserver.config.k8s.io/v1";
/// The largest file that is read.
pub const LARGEST: usize = 1 << 20;
/// The longest name of a key or provider.
const NAME: usize = 200;
/// For how long a command may run that does not say, as in kube-apiserver.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The longest time that one may ask for.
const LONGEST: Duration = Duration::from_secs(60);
/// What an endpoint begins with that is a command.
const EXEC: &str = "exec://";

/// What is encrypted, and how.
#[derive(Debug)]
pub struct Configuration {
    /// In order: the first that has a resource decides for it.
    pub rules: Vec<Rule>,
}

/// How some resources are kept.
#[derive(Debug)]
pub struct Rule {
    /// Which, as the file has them.
    pub resources: Vec<String>,
    /// The first writes, all read.
    pub providers: Vec<Provider>,
}

/// A way to keep a value.
#[derive(Debug)]
pub enum Provider {
    /// As it is.
    Identity,
    /// With keys of the file, of which the first writes.
    Keys {
        /// How.
        cipher: Cipher,
        /// The keys.
        keys: Vec<NamedKey>,
    },
    /// With a key that a command has.
    Kms {
        /// The provider's name.
        name: String,
        /// The command.
        command: PathBuf,
        /// How long a call may take.
        timeout: Duration,
    },
}

/// A key of the file. Prints without it.
pub struct NamedKey {
    /// Its name.
    pub name: String,
    /// The key.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for NamedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A list that may be `null`, as in Go.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default, deserialize_with = "nullable")]
    resources: Vec<FileRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    #[serde(default, deserialize_with = "nullable")]
    resources: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    providers: Vec<FileProvider>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileProvider {
    aesgcm: Option<Keys>,
    secretbox: Option<Keys>,
    aescbc: Option<Keys>,
    identity: Option<Value>,
    kms: Option<Kms>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default, deserialize_with = "nullable")]
    keys: Vec<FileKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileKey {
    #[serde(default)]
    name: String,
    #[serde(default)]
    secret: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kms {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    timeout: Option<String>,
    /// Of version 1, which is not read; here so that it is named together with that.
    #[serde(default, rename = "cachesize")]
    _cache_size: Option<i64>,
}

impl Configuration {
    /// Reads a configuration, in YAML or JSON.
    ///
    /// # Errors
    /// What is wrong with it: everything where it reads as one, the first of it where it does not. Never a key.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > LARGEST {
            return Err(format!("it has more than {LARGEST} bytes"));
        }
        let mut findings = Findings::default();
        let value = body::yaml(bytes, &mut findings)?;
        if let Some(finding) = findings.0.first() {
            return Err(finding.clone());
        }
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if (version, kind) != (VERSION, "EncryptionConfiguration") {
            return Err(format!(
                "it is apiVersion {version:?}, kind {kind:?}; must be apiVersion {VERSION:?}, kind \
                 \"EncryptionConfiguration\""
            ));
        }
        let file: File = serde_path_to_error::deserialize(value).map_err(|error| {
            // What serde says of a value that does not fit shows it, and it may be a key in the wrong place.
            let path = error.path().to_string();
            let why = error.into_inner().to_string();
            if path.contains("providers") && !why.contains("field `") {
                format!("{path}: is not what must stand there")
            } else {
                format!("{path}: {why}")
            }
        })?;
        let mut wrong = Vec::new();
        if file.resources.is_empty() {
            wrong.push("resources: there are none; at least one entry is needed".to_owned());
        }
        let mut seen = Vec::new();
        let rules = file.resources.into_iter().enumerate().map(|(i, rule)| {
            let at = format!("resources[{i}]");
            let FileRule { resources, providers } = rule;
            if resources.is_empty() {
                wrong.push(format!("{at}.resources: there are none"));
            }
            for (j, resource) in resources.iter().enumerate() {
                if let Some(why) = misnamed(resource) {
                    wrong.push(format!("{at}.resources[{j}] {resource:?}: {why}"));
                }
                if seen.contains(resource) {
                    wrong.push(format!("{at}.resources[{j}] {resource:?}: stands there twice"));
                } else if let Some(earlier) = seen.iter().find(|earlier| masks(earlier, resource)) {
                    wrong.push(format!(
                        "{at}.resources[{j}] {resource:?}: is masked by {earlier:?}, which stands before it; put it first"
                    ));
                }
                seen.push(resource.clone());
            }
            if providers.is_empty() {
                wrong.push(format!("{at}.providers: there are none"));
            }
            let mut names = Vec::new();
            let providers = providers.into_iter().enumerate().filter_map(|(j, provider)| {
                match provider.read(&mut names) {
                    Ok(provider) => Some(provider),
                    Err(why) => {
                        wrong.push(format!("{at}.providers[{j}]{why}"));
                        None
                    }
                }
            });
            Rule { providers: providers.collect(), resources }
        });
        let rules = rules.collect();
        if wrong.is_empty() { Ok(Self { rules }) } else { Err(wrong.join("; ")) }
    }
}

impl FileProvider {
    fn read(self, names: &mut Vec<String>) -> Result<Provider, String> {
        let Self { aesgcm, secretbox, aescbc, identity, kms } = self;
        let given =
            [aesgcm.is_some(), secretbox.is_some(), aescbc.is_some(), identity.is_some(), kms.is_some()];
        if given.iter().filter(|given| **given).count() != 1 {
            return Err(": must be one of aesgcm, secretbox, identity, kms".to_owned());
        }
        if aescbc.is_some() {
            return Err(
                ".aescbc: is not supported, since it does not notice changes; its keys may be used as those of aesgcm"
                    .to_owned(),
            );
        }
        if let Some(keys) = aesgcm {
            return keys.read("aesgcm", Cipher::AesGcm, &[16, 24, 32], names);
        }
        if let Some(keys) = secretbox {
            return keys.read("secretbox", Cipher::ChaCha, &[32], names);
        }
        match kms {
            Some(kms) => kms.read(names).map_err(|why| format!(".kms.{why}")),
            None => Ok(Provider::Identity),
        }
    }
}

fn good_name(name: &str, names: &mut Vec<String>) -> Result<(), String> {
    if name.is_empty() || name.len() > NAME || name.chars().any(|c| c.is_control() || c == ':') {
        return Err(format!("name: must have 1 to {NAME} bytes, and no colon"));
    }
    if names.iter().any(|other| other == name) {
        return Err(format!("name {name:?}: stands there twice"));
    }
    names.push(name.to_owned());
    Ok(())
}

impl Keys {
    fn read(
        self,
        field: &str,
        cipher: Cipher,
        lengths: &[usize],
        names: &mut Vec<String>,
    ) -> Result<Provider, String> {
        if self.keys.is_empty() {
            return Err(format!(".{field}.keys: there are none"));
        }
        let keys = self.keys.into_iter().enumerate().map(|(k, FileKey { name, secret })| {
            let at = |why: String| format!(".{field}.keys[{k}].{why}");
            good_name(&name, names).map_err(at)?;
            let secret =
                STANDARD.decode(secret.trim()).map_err(|_| at("secret: is not base64".to_owned()))?;
            if !lengths.contains(&secret.len()) {
                let found = secret.len();
                return Err(at(format!("secret: has {found} bytes; must have one of {lengths:?}")));
            }
            Ok(NamedKey { name, secret })
        });
        Ok(Provider::Keys { cipher, keys: keys.collect::<Result<_, _>>()? })
    }
}

impl Kms {
    fn read(self, names: &mut Vec<String>) -> Result<Provider, String> {
        let Self { api_version, name, endpoint, timeout, .. } = self;
        if api_version != "v2" {
            return Err(format!("apiVersion {api_version:?}: must be \"v2\""));
        }
        good_name(&name, names)?;
        let Some(path) = endpoint.strip_prefix(EXEC).filter(|path| path.starts_with('/')) else {
            return Err(format!(
                "endpoint {endpoint:?}: must be a command, as exec:///usr/local/bin/NAME; this hub does not speak gRPC \
                 to a socket"
            ));
        };
        let timeout = match timeout {
            None => TIMEOUT,
            Some(text) => duration::parse(&text).map_err(|why| format!("timeout {text:?}: {why}"))?,
        };
        if timeout.is_zero() || timeout > LONGEST {
            return Err(format!("timeout: must be more than 0 and at most {}", duration::format(LONGEST)));
        }
        Ok(Provider::Kms { name, command: path.into(), timeout })
    }
}

/// Whether a wildcard covers all that another pattern does.
fn masks(wildcard: &str, pattern: &str) -> bool {
    let group = pattern.split_once('.').map_or("", |(_, group)| group);
    wildcard == "*.*" || wildcard.strip_prefix("*.").is_some_and(|of| of == group)
}

/// Why a resource cannot be called so.
fn misnamed(resource: &str) -> Option<&'static str> {
    let odd = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '*'));
    if resource.is_empty() || resource.len() > 316 || resource.contains(odd) {
        return Some("must be NAME, NAME.GROUP, *.GROUP, *. or *.*, in lower case and without subresources");
    }
    match resource.split_once('.') {
        Some((name, group)) => {
            let stars = |part: &str| part.contains('*') && part != "*";
            let every_group = group == "*" && name != "*";
            let no_name = name.is_empty() || (group.is_empty() && name != "*");
            (stars(name) || stars(group) || every_group || no_name)
                .then_some("wildcards are *.GROUP, *. and *.* alone")
        }
        None if resource.contains('*') => Some("wildcards are *.GROUP, *. and *.* alone"),
        None => {
            let known =
                built_in_specs().iter().any(|spec| spec.group.is_empty() && spec.resource == resource);
            (!known).then_some("the core group has no such resource; of another group it is NAME.GROUP")
        }
    }
}

/// Whether a resource of the file covers one of the store (`GROUP/NAME`, `core/NAME`).
pub(super) fn covers(pattern: &str, storage: &str) -> bool {
    let (group, name) = match storage.split_once('/') {
        Some(("core", name)) => ("", name),
        Some((group, name)) => (group, name),
        None => ("", storage),
    };
    match pattern.split_once('.') {
        None => group.is_empty() && pattern == name,
        Some(("*", "*")) => true,
        Some(("*", of)) => of == group,
        Some((one, of)) => of == group && one == name,
    }
}

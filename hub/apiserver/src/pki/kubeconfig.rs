//! Kubeconfig files with everything embedded, so that one file is all a client needs.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;

use super::Credential;

/// The context by which Karmada's tools and articles call the hub.
pub const CONTEXT: &str = "karmada-apiserver";

/// What a kubeconfig says beside the credential.
#[derive(Clone, Copy, Debug)]
pub struct Kubeconfig<'a> {
    /// Name of the cluster entry and of the one context, which is current.
    pub context: &'a str,
    /// `https://host:port`.
    pub server: &'a str,
    /// Name of the user entry.
    pub user: &'a str,
    /// The authority to trust, PEM.
    pub ca_pem: &'a str,
}

impl Kubeconfig<'_> {
    /// The file's text. It is JSON, which is YAML too, so that no value can be misread.
    pub fn render(&self, credential: &Credential) -> String {
        let encode = |pem: &str| BASE64_STANDARD.encode(pem);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.context, "cluster": {
                "server": self.server,
                "certificate-authority-data": encode(self.ca_pem),
            }}],
            "users": [{"name": self.user, "user": {
                "client-certificate-data": encode(&credential.certificate_pem),
                "client-key-data": encode(&credential.key_pem),
            }}],
            "contexts": [{"name": self.context, "context": {"cluster": self.context, "user": self.user}}],
            "current-context": self.context,
        });
        let mut text =
            serde_json::to_string_pretty(&config).expect("invariant: JSON of strings has a text form");
        text.push('\n');
        text
    }
}

//! Where an API is and who we are to it: from a kubeconfig file, or from what a pod is given.
//!
//! Every error is one line and names the file and the field, since it is what a person sees who mistyped a path.
//! Files named in a kubeconfig are read relative to it, as kubectl does. What we do not speak (exec plugins, auth
//! providers, proxies of other kinds than HTTP's, impersonation) is refused by name rather than ignored.

mod stamps;

use std::{
    fmt,
    hash::{Hash as _, Hasher as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::Uri;
use serde::Deserialize;
use serde_json::{Value, json};

pub use self::stamps::Stamps;
pub use crate::tls::Tls;
use crate::{
    link::proxy::Proxy,
    tls::{Trust, tls},
};

/// What is wrong with a kubeconfig.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {field}: {problem}")]
pub struct KubeconfigError {
    /// The file, as it was given.
    pub file: String,
    /// The field within it.
    pub field: String,
    /// What is wrong and, where it is not plain, what to do.
    pub problem: String,
}

impl KubeconfigError {
    fn new(file: &Path, field: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self { file: file.display().to_string(), field: field.into(), problem: problem.to_string() }
    }
}

/// A kubeconfig file, read but not yet resolved to one context.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    path: PathBuf,
    content: Content,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Content {
    current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
}

#[derive(Clone, Debug, Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Option<Cluster>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: Option<String>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: Option<User>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    username: Option<String>,
    password: Option<String>,
    exec: Option<Value>,
    auth_provider: Option<Value>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the secrets.
        f.debug_struct("User").field("client_certificate", &self.client_certificate).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Option<Context>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: Option<String>,
    namespace: Option<String>,
}

/// What a context names.
struct Chosen<'a> {
    cluster_name: &'a str,
    cluster: Cluster,
    user_name: &'a str,
    user: User,
    namespace: String,
}

/// Where a server is and whom to believe there: a kubeconfig without a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// `https://HOST:PORT`.
    pub server: String,
    /// PEM of authorities; the system's if there are none.
    pub ca: Option<String>,
    /// The name that the server's certificate must have, if not that in `server`.
    pub server_name: Option<String>,
    /// The URL of a proxy.
    pub proxy: Option<String>,
    /// Any server is believed.
    pub insecure: bool,
}

impl Access {
    /// The endpoint for somebody who shows nothing.
    ///
    /// # Errors
    /// What cannot be used of it.
    pub fn endpoint(&self) -> Result<Endpoint, KubeconfigError> {
        let mut config: Value = serde_json::from_str(&self.kubeconfig("hub", "", "", "")).unwrap_or_default();
        config["users"] = json!([]);
        config["contexts"][0]["context"]["user"] = "".into();
        Kubeconfig::parse("what is known of the server", &config.to_string())?.endpoint(None)
    }

    /// The text of a kubeconfig with one context of this name, for a user who shows a certificate. It is JSON, which is
    /// YAML too, so that no value can be misread.
    pub fn kubeconfig(&self, context: &str, user: &str, certificate: &str, key: &str) -> String {
        let encode = |pem: &str| BASE64_STANDARD.encode(pem);
        let mut cluster = json!({"server": self.server});
        let mut set = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                cluster[field] = value;
            }
        };
        set("certificate-authority-data", self.ca.as_deref().map(|pem| encode(pem).into()));
        set("tls-server-name", self.server_name.as_deref().map(Value::from));
        set("proxy-url", self.proxy.as_deref().map(Value::from));
        set("insecure-skip-tls-verify", self.insecure.then_some(Value::Bool(true)));
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": cluster}],
            "users": [{"name": user, "user": {
                "client-certificate-data": encode(certificate),
                "client-key-data": encode(key),
            }}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": user}}],
            "current-context": context,
        });
        format!("{config:#}\n")
    }
}

/// Who we say we are, beside a client certificate.
#[derive(Clone)]
pub enum Credentials {
    /// Nothing: the certificate speaks, or nobody does.
    None,
    /// A bearer token that does not change.
    Token(String),
    /// A file with a bearer token that is replaced from time to time.
    TokenFile(PathBuf),
    /// User name and password.
    Basic(String, String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Token(_) => f.write_str("Token"),
            Self::TokenFile(path) => f.debug_tuple("TokenFile").field(path).finish(),
            Self::Basic(user, _) => f.debug_tuple("Basic").field(user).finish(),
        }
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name, or an address; one of IPv6 may stand in brackets.
    pub host: String,
    pub port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not HOST:PORT, such as hub.example.com:6443 or [2001:db8::1]:6443");
        let authority: http::uri::Authority = text.parse().map_err(|_| wrong())?;
        let port = authority.port_u16().filter(|port| *port != 0).ok_or_else(wrong)?;
        if authority.host().is_empty() || text.contains('@') {
            return Err(wrong());
        }
        Ok(Self { host: authority.host().to_owned(), port })
    }
}

/// One API server and one identity: all that a link needs.
#[derive(Clone)]
pub struct Endpoint {
    /// `https://host:port/prefix`.
    pub server: Uri,
    /// How to do TLS; none for `http://`.
    pub tls: Option<Tls>,
    /// Beside the client certificate in `tls`.
    pub credentials: Credentials,
    /// The namespace of the context, `default` if it names none.
    pub namespace: String,
    /// By which proxy it is reached; directly if there is none.
    pub proxy: Option<Proxy>,
    /// Where else the same server is reached, if not there: it proves under the same name that it is.
    pub others: Vec<Address>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("server", &self.server)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

impl Kubeconfig {
    /// Reads a kubeconfig file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, KubeconfigError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            KubeconfigError::new(path, "kubeconfig", format!("cannot read the file: {error}"))
        })?;
        Self::parse(path, &text)
    }

    /// Reads a kubeconfig's text; `path` is what errors name and what files in it are relative to.
    pub fn parse(path: impl AsRef<Path>, text: &str) -> Result<Self, KubeconfigError> {
        let path = path.as_ref().to_owned();
        let content: Option<Content> = serde_saphyr::from_str(text).map_err(|error| {
            let error = error.to_string();
            let line = error.lines().find(|l| !l.trim().is_empty()).unwrap_or("not YAML").to_owned();
            KubeconfigError::new(&path, "kubeconfig", format!("not a kubeconfig: {line}"))
        })?;
        Ok(Self { path, content: content.unwrap_or_default() })
    }

    /// The endpoint of a context, of the current one if none is named.
    pub fn endpoint(&self, context: Option<&str>) -> Result<Endpoint, KubeconfigError> {
        let Chosen { cluster_name, cluster, user_name, user, namespace } = self.chosen(context)?;
        self.resolve(cluster_name, &cluster, user_name, &user, namespace)
    }

    /// Where the server of a context is and whom to believe there, without who we are.
    pub fn access(&self, context: Option<&str>) -> Result<Access, KubeconfigError> {
        let Chosen { cluster_name, cluster, .. } = self.chosen(context)?;
        let ca = self.pem(
            cluster.certificate_authority_data.as_deref(),
            cluster.certificate_authority.as_deref(),
            &format!("clusters[{cluster_name}].cluster.certificate-authority"),
        )?;
        Ok(Access {
            server: cluster.server.unwrap_or_default(),
            ca: ca.map(|pem| String::from_utf8_lossy(&pem).into_owned()),
            server_name: cluster.tls_server_name.filter(|name| !name.is_empty()),
            proxy: cluster.proxy_url.filter(|url| !url.is_empty()),
            insecure: cluster.insecure_skip_tls_verify.unwrap_or(false),
        })
    }

    /// A number that changes when anything does that a context stands for, files that it names included; tokens of
    /// token files are read anew anyway.
    pub fn version(&self, context: Option<&str>) -> Result<u64, KubeconfigError> {
        let Chosen { cluster, user, namespace, .. } = self.chosen(context)?;
        let read =
            |file: &Option<String>| file.as_deref().and_then(|file| std::fs::read(self.relative(file)).ok());
        let mut hasher = std::hash::DefaultHasher::new();
        namespace.hash(&mut hasher);
        let Cluster { server, certificate_authority_data, tls_server_name, proxy_url, .. } = &cluster;
        (server, certificate_authority_data, tls_server_name, proxy_url).hash(&mut hasher);
        (&cluster.insecure_skip_tls_verify, read(&cluster.certificate_authority)).hash(&mut hasher);
        let User { client_certificate_data, client_key_data, token, token_file, .. } = &user;
        (client_certificate_data, client_key_data, token, token_file).hash(&mut hasher);
        (read(&user.client_certificate), read(&user.client_key), &user.username, &user.password)
            .hash(&mut hasher);
        Ok(hasher.finish())
    }

    /// The files that a context names, by which [`Kubeconfig::version`] may change beside the kubeconfig itself.
    pub fn named(&self, context: Option<&str>) -> Result<Vec<PathBuf>, KubeconfigError> {
        let Chosen { cluster, user, .. } = self.chosen(context)?;
        let named = [&cluster.certificate_authority, &user.client_certificate, &user.client_key];
        Ok(named
            .into_iter()
            .flatten()
            .filter(|file| !file.is_empty())
            .map(|file| self.relative(file))
            .collect())
    }

    fn chosen(&self, context: Option<&str>) -> Result<Chosen<'_>, KubeconfigError> {
        let wanted = context.filter(|c| !c.is_empty()).or(self.content.current_context.as_deref());
        let contexts = self.content.contexts.as_deref().unwrap_or_default();
        let (name, context) = match wanted.filter(|c| !c.is_empty()) {
            Some(name) => {
                let found = contexts.iter().find(|c| c.name == name);
                let Some(found) = found else {
                    let names: Vec<_> = contexts.iter().map(|c| c.name.as_str()).collect();
                    let problem = format!("no context named {name:?}; there are: {}", names.join(", "));
                    return Err(self.error("contexts", problem));
                };
                (name, found)
            }
            None => match contexts {
                [only] => (only.name.as_str(), only),
                _ => return Err(self.error("current-context", "not set; name a context")),
            },
        };
        let Some(context) = &context.context else {
            return Err(self.error(format!("contexts[{name}].context"), "missing"));
        };

        let clusters = self.content.clusters.as_deref().unwrap_or_default();
        let Some(cluster) = clusters.iter().find(|c| c.name == context.cluster) else {
            let problem = format!("no cluster named {:?} in clusters", context.cluster);
            return Err(self.error(format!("contexts[{name}].context.cluster"), problem));
        };
        let (cluster_name, cluster) = (cluster.name.as_str(), cluster.cluster.clone().unwrap_or_default());

        let (user_name, user) = match context.user.as_deref().filter(|u| !u.is_empty()) {
            None => ("", User::default()),
            Some(wanted) => {
                let users = self.content.users.as_deref().unwrap_or_default();
                let Some(found) = users.iter().find(|u| u.name == wanted) else {
                    let problem = format!("no user named {wanted:?} in users");
                    return Err(self.error(format!("contexts[{name}].context.user"), problem));
                };
                (found.name.as_str(), found.user.clone().unwrap_or_default())
            }
        };
        let namespace =
            context.namespace.clone().filter(|n| !n.is_empty()).unwrap_or_else(|| "default".into());
        Ok(Chosen { cluster_name, cluster, user_name, user, namespace })
    }

    fn resolve(
        &self,
        cluster_name: &str,
        cluster: &Cluster,
        user_name: &str,
        user: &User,
        namespace: String,
    ) -> Result<Endpoint, KubeconfigError> {
        let at = |field: &str| format!("clusters[{cluster_name}].cluster.{field}");
        let user_at = |field: &str| format!("users[{user_name}].user.{field}");
        let proxy = cluster.proxy_url.as_deref().filter(|url| !url.is_empty());
        let proxy = proxy
            .map(|url| Proxy::parse(url).map_err(|problem| self.error(at("proxy-url"), problem)))
            .transpose()?;
        for (set, field) in [(user.exec.is_some(), "exec"), (user.auth_provider.is_some(), "auth-provider")] {
            if set {
                let problem = "not supported; use a client certificate, token or tokenFile";
                return Err(self.error(user_at(field), problem));
            }
        }
        if user.impersonate.is_some() {
            return Err(self.error(user_at("as"), "impersonation is not supported"));
        }

        let server = cluster.server.as_deref().unwrap_or_default().trim();
        if server.is_empty() {
            return Err(self.error(at("server"), "missing"));
        }
        let server = parse_server(server).map_err(|problem| self.error(at("server"), problem))?;

        let ca = self.pem(
            cluster.certificate_authority_data.as_deref(),
            cluster.certificate_authority.as_deref(),
            &at("certificate-authority"),
        )?;
        let certificate = self.pem(
            user.client_certificate_data.as_deref(),
            user.client_certificate.as_deref(),
            &user_at("client-certificate"),
        )?;
        let key =
            self.pem(user.client_key_data.as_deref(), user.client_key.as_deref(), &user_at("client-key"))?;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(self.error(user_at("client-key"), "missing beside client-certificate"));
            }
            (None, Some(_)) => {
                return Err(self.error(user_at("client-certificate"), "missing beside client-key"));
            }
        };

        let tls = if server.scheme_str() == Some("https") {
            let insecure = cluster.insecure_skip_tls_verify.unwrap_or(false);
            if insecure && ca.is_some() {
                let problem = "cannot be set together with a certificate authority";
                return Err(self.error(at("insecure-skip-tls-verify"), problem));
            }
            let trust = match (insecure, ca) {
                (true, _) => Trust::Anything,
                (false, Some(pem)) => Trust::Roots(pem, at("certificate-authority")),
                (false, None) => Trust::System,
            };
            let identity = identity.map(|(certificate, key)| {
                (certificate, user_at("client-certificate"), key, user_at("client-key"))
            });
            let server_name = cluster.tls_server_name.clone().filter(|n| !n.is_empty());
            Some(
                tls(&server, server_name, trust, identity)
                    .map_err(|(field, problem)| self.error(field.unwrap_or_else(|| at("server")), problem))?,
            )
        } else {
            None
        };

        let credentials = match (&user.token, &user.token_file, &user.username) {
            (Some(token), _, _) if !token.is_empty() => Credentials::Token(token.clone()),
            (_, Some(file), _) if !file.is_empty() => {
                let path = self.relative(file);
                if let Err(error) = std::fs::metadata(&path) {
                    return Err(self.error(user_at("tokenFile"), format!("{}: {error}", path.display())));
                }
                Credentials::TokenFile(path)
            }
            (_, _, Some(name)) if !name.is_empty() => {
                Credentials::Basic(name.clone(), user.password.clone().unwrap_or_default())
            }
            _ => Credentials::None,
        };
        Ok(Endpoint { server, tls, credentials, namespace, proxy, others: Vec::new() })
    }

    fn error(&self, field: impl Into<String>, problem: impl fmt::Display) -> KubeconfigError {
        KubeconfigError::new(&self.path, field, problem)
    }

    fn relative(&self, file: &str) -> PathBuf {
        self.path.parent().unwrap_or_else(|| Path::new("")).join(file)
    }

    /// PEM from a `…-data` field or from the file that the plain field names; data wins, as in kubectl.
    fn pem(
        &self,
        data: Option<&str>,
        file: Option<&str>,
        field: &str,
    ) -> Result<Option<Vec<u8>>, KubeconfigError> {
        if let Some(data) = data.filter(|d| !d.is_empty()) {
            let compact: String = data.split_whitespace().collect();
            return BASE64_STANDARD
                .decode(compact)
                .map(Some)
                .map_err(|error| self.error(format!("{field}-data"), format!("not base64: {error}")));
        }
        let Some(file) = file.filter(|f| !f.is_empty()) else { return Ok(None) };
        let path = self.relative(file);
        std::fs::read(&path)
            .map(Some)
            .map_err(|error| self.error(field, format!("{}: {error}", path.display())))
    }
}

pub(crate) fn parse_server(text: &str) -> Result<Uri, String> {
    let text = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let uri: Uri = text.parse().map_err(|error| format!("{text:?} is not a URL: {error}"))?;
    match uri.scheme_str() {
        Some("https" | "http") => {}
        other => {
            return Err(format!("{text:?}: the scheme must be https or http, not {:?}", other.unwrap_or("")));
        }
    }
    if uri.host().unwrap_or_default().is_empty() {
        return Err(format!("{text:?} names no host"));
    }
    Ok(uri)
}

/// Where pods find their account.
pub const POD_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The endpoint of the cluster that a pod runs in, from its environment's `KUBERNETES_SERVICE_HOST` and
/// `KUBERNETES_SERVICE_PORT` and its account's folder ([`POD_ACCOUNT`]).
pub fn in_cluster(host: &str, port: &str, account: &Path) -> Result<Endpoint, KubeconfigError> {
    let ca_file = account.join("ca.crt");
    let ca = std::fs::read(&ca_file)
        .map_err(|error| KubeconfigError::new(&ca_file, "certificate authority", error))?;
    let token = account.join("token");
    if let Err(error) = std::fs::metadata(&token) {
        return Err(KubeconfigError::new(&token, "token", error));
    }
    let host =
        if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let environment = Path::new("environment");
    let server = parse_server(&format!("https://{host}:{port}"))
        .map_err(|problem| KubeconfigError::new(environment, "KUBERNETES_SERVICE_HOST", problem))?;
    let tls = tls(&server, None, Trust::Roots(ca, "certificate authority".into()), None)
        .map_err(|(_, problem)| KubeconfigError::new(&ca_file, "certificate authority", problem))?;
    let namespace = std::fs::read_to_string(account.join("namespace")).unwrap_or_default();
    let namespace =
        if namespace.trim().is_empty() { "default".to_owned() } else { namespace.trim().to_owned() };
    Ok(Endpoint {
        server,
        tls: Some(tls),
        credentials: Credentials::TokenFile(token),
        namespace,
        proxy: None,
        others: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    fn config(cluster: &str, user: &str) -> Result<Endpoint, String> {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        );
        Kubeconfig::parse("/etc/k/config", &text)
            .and_then(|kubeconfig| kubeconfig.endpoint(None))
            .map_err(|error| error.to_string())
    }

    fn pki() -> (String, String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec!["hub".into()]).unwrap().self_signed(&key).unwrap();
        let b64 = |text: String| BASE64_STANDARD.encode(text);
        (
            b64(certificate.pem()),
            b64(key.serialize_pem()),
            b64(rcgen::KeyPair::generate().unwrap().serialize_pem()),
        )
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (text, want) in [
            ("hub.example.com:6443", Some(("hub.example.com", 6443))),
            ("10.0.0.1:443", Some(("10.0.0.1", 443))),
            ("[2001:db8::1]:6443", Some(("[2001:db8::1]", 6443))),
            ("hub.example.com", None),
            ("hub.example.com:0", None),
            ("hub.example.com:x", None),
            ("https://hub.example.com:6443", None),
            ("user@hub:1", None),
            (":443", None),
            ("", None),
        ] {
            let read = text.parse::<Address>().ok();
            assert_eq!(read.as_ref().map(|read| (read.host.as_str(), read.port)), want, "{text}");
        }
    }

    #[test]
    fn a_full_config_is_read() {
        let (certificate, key, _) = pki();
        let endpoint = config(
            &format!("server: 'https://hub.example:6443/k', certificate-authority-data: {certificate}"),
            &format!("client-certificate-data: {certificate}, client-key-data: {key}"),
        )
        .unwrap();
        assert_eq!(endpoint.server, "https://hub.example:6443/k");
        assert_eq!(endpoint.namespace, "default");
        assert!(matches!(endpoint.credentials, Credentials::None));
        let tls = endpoint.tls.unwrap();
        assert_eq!(tls.server_name, ServerName::try_from("hub.example").unwrap());
        assert!(tls.config.client_auth_cert_resolver.has_certs());
    }

    #[test]
    fn errors_name_file_and_field() {
        let (certificate, key, other) = pki();
        let server = format!("server: 'https://h', certificate-authority-data: {certificate}");
        let rows = [
            ("", "", "clusters[k].cluster.server: missing"),
            (
                "server: 'ftp://x'",
                "",
                "clusters[k].cluster.server: \"ftp://x\": the scheme must be https or http",
            ),
            ("server: 'https://a b'", "", "clusters[k].cluster.server: \"https://a b\" is not a URL"),
            (
                "server: 'https://h', certificate-authority-data: '%'",
                "",
                "certificate-authority-data: not base64",
            ),
            (
                "server: 'https://h', certificate-authority-data: aGk=",
                "",
                "certificate-authority: holds no PEM certificate",
            ),
            (
                "server: 'https://h', certificate-authority: ca.crt",
                "",
                "certificate-authority: /etc/k/ca.crt: No such file",
            ),
            (
                "server: 'https://h', proxy-url: 'ftp://p'",
                "",
                "clusters[k].cluster.proxy-url: \"ftp://p\": only http:// and socks5:// proxies are supported",
            ),
            (server.as_str(), "exec: {command: aws}", "users[u].user.exec: not supported; use"),
            (server.as_str(), "tokenFile: t", "users[u].user.tokenFile: /etc/k/t: No such file"),
            (
                server.as_str(),
                &format!("client-certificate-data: {certificate}"),
                "users[u].user.client-key: missing",
            ),
            (
                server.as_str(),
                &format!("client-certificate-data: {certificate}, client-key-data: {other}"),
                "users[u].user.client-certificate: certificate and key do not fit",
            ),
            (
                server.as_str(),
                &format!("client-certificate-data: {key}, client-key-data: {key}"),
                "users[u].user.client-certificate: holds no PEM certificate",
            ),
        ];
        for (cluster, user, want) in rows {
            let error = config(cluster, user).expect_err(want);
            assert!(error.starts_with("/etc/k/config: ") && error.contains(want), "{error}\n  wanted {want}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn contexts_are_found_or_named() {
        let text = "contexts: [{name: a, context: {cluster: k}}, {name: b, context: {cluster: none}}]\n\
                    clusters: [{name: k, cluster: {server: 'http://localhost:1'}}]";
        let file = Kubeconfig::parse("f", text).unwrap();
        assert_eq!(file.endpoint(Some("a")).unwrap().server, "http://localhost:1");
        let rows = [
            (None, "f: current-context: not set; name a context"),
            (Some("c"), "f: contexts: no context named \"c\"; there are: a, b"),
            (Some("b"), "f: contexts[b].context.cluster: no cluster named \"none\" in clusters"),
        ];
        for (context, want) in rows {
            assert_eq!(file.endpoint(context).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn what_is_not_a_kubeconfig_is_told_in_one_line() {
        for text in ["[1,2", "just text", "clusters: 3", "\0"] {
            let error = Kubeconfig::parse("f", text).expect_err(text).to_string();
            assert!(error.starts_with("f: kubeconfig: not a kubeconfig: "), "{error}");
            assert_eq!(error.lines().count(), 1, "{error:?}");
        }
        assert!(
            Kubeconfig::load("/does/not/exist").unwrap_err().to_string().contains("cannot read the file")
        );
    }
}

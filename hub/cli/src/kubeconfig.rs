//! `karmada-hub kubeconfig NAME`: a kubeconfig that goes to a member through the hub, with the credentials that one has
//! for the hub, for programs that take no `--server`.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf, absolute},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use karmada_env::Env;
use karmada_objects::{key::Key, kinds::CLUSTERS};
use serde_json::{Value, json};

use super::{Failure, args::KubeconfigArgs, ask, ask::Server, print};

/// Writes it.
pub(super) async fn run(args: KubeconfigArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let cluster = server.objects.get(&CLUSTERS, &Key::cluster_scoped(args.name.as_str())).await;
    if cluster.map_err(|error| server.failure(&error))?.is_none() {
        return Err(Failure::failed(format!("there is no cluster {:?}", args.name)));
    }
    let file = ask::kubeconfig(&args.server)?;
    let wrong = |problem: String| Failure::usage(format!("{}: {problem}", file.display()));
    let text = fs::read_to_string(&file).map_err(|error| wrong(error.to_string()))?;
    let config: Value = serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let read = |name: &str| {
        let path = file.parent().unwrap_or_else(|| Path::new("")).join(name);
        fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let beside = |name: &str| {
        let path = file.parent().unwrap_or_else(|| Path::new("")).join(name);
        let path = absolute(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        path.into_os_string().into_string().map_err(|path| format!("{}: it is no text", path.display()))
    };
    let files = Files { read, beside };
    let mut made = through(&config, args.server.context.as_deref(), &args.name, &files).map_err(wrong)?;
    if let Some(address) = &args.address {
        let ca = args.certificate_authority.as_ref().map(|file| {
            fs::read(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
        });
        at(&mut made, &args.name, address, ca.transpose()?).map_err(Failure::usage)?;
    }
    // JSON is YAML, and no value can be misread.
    let text = format!("{made:#}\n");
    let Some(to) = &args.output else { return print(&text) };
    write(to, &text).map_err(|error| Failure::failed(format!("{}: {error}", to.display())))?;
    print(&format!("{} written: kubectl --kubeconfig {} get pods -A\n", to.display(), to.display()))
}

/// Has a kubeconfig of [`through`] go to another address of the hub, where others are believed.
fn at(made: &mut Value, name: &str, address: &str, ca: Option<Vec<u8>>) -> Result<(), String> {
    let address = address.trim_end_matches('/');
    if !address
        .strip_prefix("https://")
        .is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#']))
    {
        return Err(format!("--server: {address:?} is no https://HOST:PORT"));
    }
    let cluster = &mut made["clusters"][0]["cluster"];
    cluster["server"] = place(address, name).into();
    if let (Some(ca), Some(cluster)) = (ca, cluster.as_object_mut()) {
        cluster.insert("certificate-authority-data".to_owned(), BASE64_STANDARD.encode(ca).into());
        // These are of the other address.
        cluster.remove("insecure-skip-tls-verify");
        cluster.remove("tls-server-name");
    }
    Ok(())
}

/// Where a member is at an address of the hub.
fn place(server: &str, name: &str) -> String {
    format!("{server}/apis/cluster.karmada.io/v1alpha1/clusters/{name}/proxy")
}

/// For its owner alone: there are credentials in it.
fn write(to: &PathBuf, text: &str) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    file.write_all(text.as_bytes())
}

/// The files that a kubeconfig names, as seen from its folder.
struct Files<R, B> {
    read: R,
    /// Where one is, wherever it is looked for.
    beside: B,
}

/// A kubeconfig with one context, of a member's name, that goes through the hub of another's context. Files are written
/// out, so that it can be taken elsewhere; how else the user proves who they are stays as it is. A file that changes, and a program,
/// are named by where they are.
fn through(
    config: &Value,
    context: Option<&str>,
    name: &str,
    files: &Files<impl Fn(&str) -> Result<Vec<u8>, String>, impl Fn(&str) -> Result<String, String>>,
) -> Result<Value, String> {
    let current = config["current-context"].as_str().filter(|name| !name.is_empty());
    let context = context.or(current).ok_or("it has no current-context: name one by --context")?;
    let named = |list: &str, part: &str, name: &str| -> Result<Value, String> {
        let all = config[list].as_array().into_iter().flatten();
        let mut found = all.filter(|one| one["name"] == name).map(|one| one[part].clone());
        found.next().ok_or_else(|| format!("{list}: there is no {name:?}"))
    };
    let context = named("contexts", "context", context)?;
    let text = |field: &str| context[field].as_str().unwrap_or_default();
    let mut cluster = named("clusters", "cluster", text("cluster"))?;
    let mut user = match text("user") {
        "" => json!({}),
        user => named("users", "user", user)?,
    };
    let server = cluster["server"].as_str().unwrap_or_default().trim_end_matches('/').to_owned();
    cluster["server"] = place(&server, name).into();
    for (part, fields) in [
        (&mut cluster, &["certificate-authority"][..]),
        (&mut user, &["client-certificate", "client-key"][..]),
    ] {
        let part = part.as_object_mut().ok_or("what its context names has no fields")?;
        for field in fields {
            let Some(Value::String(file)) = part.remove(*field).filter(|file| *file != "") else { continue };
            let data = format!("{field}-data");
            // Data goes before a file, as in kubectl.
            if part.get(&data).is_none_or(|data| data == "") {
                part.insert(data, BASE64_STANDARD.encode((files.read)(&file)?).into());
            }
        }
    }
    if let Some(Value::String(file)) = user.get_mut("tokenFile").filter(|file| *file != "") {
        *file = (files.beside)(file)?;
    }
    // As kubectl reads it: a name alone is looked for elsewhere.
    if let Some(Value::String(program)) = user.pointer_mut("/exec/command")
        && program.contains('/')
    {
        *program = (files.beside)(program)?;
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_through_the_hub_with_the_same_credentials() {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "oidc"});
        let config = json!({
            "current-context": "hub",
            "clusters": [
                {"name": "other", "cluster": {"server": "https://other"}},
                {"name": "hub", "cluster": {"server": "https://hub:6443/", "certificate-authority": "ca.crt", "proxy-url": "http://p"}},
            ],
            "users": [
                {"name": "cert", "user": {"client-certificate": "me.crt", "client-key": "me.key", "client-key-data": "S0VZ"}},
                {"name": "login", "user": {"exec": exec}},
                {"name": "token", "user": {"tokenFile": "run/token", "exec": {"command": "./bin/oidc"}}},
                {"name": "there", "user": {"tokenFile": "/run/token"}},
            ],
            "contexts": [
                {"name": "hub", "context": {"cluster": "hub", "user": "cert", "namespace": "n"}},
                {"name": "login", "context": {"cluster": "hub", "user": "login"}},
                {"name": "token", "context": {"cluster": "hub", "user": "token"}},
                {"name": "there", "context": {"cluster": "hub", "user": "there"}},
                {"name": "broken", "context": {"cluster": "none"}},
            ],
        });
        let read = |name: &str| match name {
            "none" => Err("it is not there".to_owned()),
            name => Ok(name.as_bytes().to_vec()),
        };
        let beside = |name: &str| Ok(Path::new("/home/jane/.kube").join(name).to_string_lossy().into_owned());
        let files = &Files { read, beside };
        let made = through(&config, None, "m", files).unwrap();
        let token = through(&config, Some("token"), "m", files).unwrap();
        let user = json!({"tokenFile": "/home/jane/.kube/run/token", "exec": {"command": "/home/jane/.kube/./bin/oidc"}});
        assert_eq!(token["users"][0]["user"], user);
        let there = through(&config, Some("there"), "m", files).unwrap();
        assert_eq!(there["users"][0]["user"], json!({"tokenFile": "/run/token"}));
        assert_eq!(
            made["clusters"][0],
            json!({"name": "m", "cluster": {
                "server": "https://hub:6443/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy",
                "certificate-authority-data": "Y2EuY3J0", "proxy-url": "http://p",
            }})
        );
        let mut elsewhere = made.clone();
        at(&mut elsewhere, "m", "https://hub-1:6443/", Some(b"its".to_vec())).unwrap();
        assert_eq!(
            elsewhere["clusters"][0]["cluster"],
            json!({
                "server": "https://hub-1:6443/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy",
                "certificate-authority-data": "aXRz", "proxy-url": "http://p",
            })
        );
        assert_eq!(elsewhere["users"], made["users"]);
        for address in ["http://hub:6443", "hub:6443", "https://", "https://hub/x"] {
            assert!(at(&mut elsewhere, "m", address, None).unwrap_err().contains("--server"), "{address}");
        }
        let user = json!({"client-certificate-data": "bWUuY3J0", "client-key-data": "S0VZ"});
        assert_eq!(made["users"][0], json!({"name": "m", "user": user}));
        assert_eq!(made["contexts"][0], json!({"name": "m", "context": {"cluster": "m", "user": "m"}}));
        assert_eq!(through(&config, Some("login"), "m", files).unwrap()["users"][0]["user"]["exec"], exec);
        for (context, why) in
            [("broken", "clusters: there is no \"none\""), ("x", "contexts: there is no \"x\"")]
        {
            assert_eq!(through(&config, Some(context), "m", files).unwrap_err(), why);
        }
        assert!(through(&json!({}), None, "m", files).unwrap_err().contains("--context"));
        let missing = json!({"current-context": "a", "clusters": [{"name": "a", "cluster": {"certificate-authority": "none"}}],
                             "contexts": [{"name": "a", "context": {"cluster": "a"}}]});
        assert_eq!(through(&missing, None, "m", files).unwrap_err(), "it is not there");
    }
}

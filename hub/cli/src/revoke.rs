//! `karmada-hub cluster revoke`: the credentials of an agent end before their time.

use karmada_api::consts::extension;
use karmada_apiserver::authn::epochs::{End, Record};
use karmada_client::{Error, Rest};
use karmada_core::{admit::agent::has_registered, ways::Ways};
use karmada_env::Env;
use karmada_meta::{names::cluster_name_errors, text};
use karmada_objects::kinds::CLUSTERS;
use serde_json::{Value, json};

use super::{
    Failure, agents,
    args::{ClusterArgs, ClusterCommand, RevokeArgs},
    ask::Server,
    told::Told,
};

/// Somebody else may write a record in between; then it is looked at again, so often.
const TRIES: u32 = 8;
/// The most that is shown of a field that an agent may have written.
const SAID: usize = 200;
/// A check that only a hub with an API of its own has.
const OWN_API: &str = "/readyz/karmada-controllers";

/// Does what is asked of clusters.
pub(super) async fn run(args: ClusterArgs, env: Env) -> Result<(), Failure> {
    match args.command {
        ClusterCommand::Revoke(args) => revoke(args, env).await,
    }
}

async fn revoke(args: RevokeArgs, env: Env) -> Result<(), Failure> {
    for name in &args.names {
        if let Some(why) = cluster_name_errors(name).first() {
            return Err(Failure::usage(format!("{name:?}: {why}")));
        }
    }
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let rest = server.objects.rest();
    match is_elsewhere(&server).await {
        Ok(true) => return revoke_elsewhere(&server, &args.names, args.told, &env).await,
        Ok(false) => {}
        // A record that nobody reads would end nothing.
        Err(error) if error.is_forbidden() => {
            return Err(Failure::failed(format!(
                "you may not get {OWN_API}, which shows whether this is a hub with the embedded API: {error}"
            )));
        }
        Err(error) => return Err(server.failure(&error)),
    }
    let mut absent = Vec::new();
    for name in &args.names {
        let there = rest.get(&CLUSTERS.object(None, name)).await;
        let is_absent = there.as_ref().is_err_and(Error::is_not_found);
        // Also of a cluster that has gone or not come yet: its agent may have credentials before it has a Cluster.
        let epoch = end(rest, name, &env).await.map_err(|error| server.failure(&error))?;
        if is_absent {
            // Whoever has misspelled a name must know that a stolen credential still holds.
            let line = format!(
                "cluster/{name} not found; credentials of that name are refused (epoch {epoch} counts now)"
            );
            args.told.say(&line, &json!({"cluster": name, "result": "notFound", "epoch": epoch}))?;
            absent.push(name.as_str());
            continue;
        }
        let line = format!(
            "cluster/{name} credentials revoked (epoch {epoch} counts now). To let its agent in again: karmada-hub \
             token create --cluster {name}"
        );
        args.told.say(&line, &json!({"cluster": name, "result": "revoked", "epoch": epoch}))?;
        match there {
            Ok(cluster) => {
                note(to_check(&cluster, name));
                note(waits(&cluster, name));
            }
            Err(error) => note(Some(format!(
                "what stands in cluster/{name} was not read ({error}). Check where the hub dials for it: kubectl get cluster \
                 {name} -o yaml"
            ))),
        }
    }
    if absent.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "there is no Cluster {}. If you meant another one, its credentials are still valid (karmada-hub get clusters)",
        absent.join(", ")
    )))
}

/// Says something that is no result.
fn note(words: Option<String>) {
    if let Some(words) = words {
        eprintln!("note: {words}");
    }
}

/// What of a Cluster its agent may have said when it registered, and by which the hub sends users' requests after the agent's
/// credential has ended: somebody who knows the member has to look at it.
fn to_check(cluster: &Value, name: &str) -> Option<String> {
    let spec = &cluster["spec"];
    if spec["syncMode"] == "Push" {
        return None;
    }
    // Somebody else has written it, and a person reads it.
    let plain =
        |value: &Value| value.as_str().filter(|said| !said.is_empty()).map(|said| text::line(said, SAID));
    let mut fields = Vec::new();
    for field in ["apiEndpoint", "proxyURL"] {
        fields.extend(plain(&spec[field]).map(|said| format!("spec.{field} ({said})")));
    }
    if spec["insecureSkipTLSVerification"] == true {
        fields.push("spec.insecureSkipTLSVerification".to_owned());
    }
    if spec["proxyHeader"].as_object().is_some_and(|headers| !headers.is_empty()) {
        fields.push("spec.proxyHeader".to_owned());
    }
    for field in ["secretRef", "impersonatorSecretRef"] {
        fields.extend(plain(&spec[field]["name"]).map(|secret| format!("spec.{field} (Secret {secret})")));
    }
    (!fields.is_empty()).then(|| {
        format!(
            "by these fields of cluster/{name} the hub dials the member itself, and its agent may have written them: {}. If they \
             are not the member's, remove them (kubectl edit cluster {name}), and delete the Secrets",
            fields.join(", ")
        )
    })
}

/// What keeps the hub from dialling a member whose agent is heard no more: the agent has offered a tunnel, and the platform wants it.
fn waits(cluster: &Value, name: &str) -> Option<String> {
    let ways = Ways::read(cluster);
    (ways.is_dialled && ways.is_by_tunnel()).then(|| {
        format!(
            "users reach cluster/{name} by its agent's tunnel alone, so not until an agent has joined again. To have the hub dial \
             spec.apiEndpoint until then: kubectl annotate cluster {name} {}-",
            extension::TUNNEL
        )
    })
}

/// Whether the API server is not a hub's own: then no record says which credentials count.
pub(super) async fn is_elsewhere(server: &Server) -> Result<bool, Error> {
    match server.objects.rest().get_text(OWN_API).await {
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) if error.is_unreachable() || matches!(error.code(), Some(401 | 403)) => Err(error),
        // One that fails is there, too.
        Err(_) | Ok(_) => Ok(false),
    }
}

/// Until when certificates that were given before are good, for people.
pub(super) fn until(seen: &agents::Seen) -> String {
    seen.until().map_or_else(
        || "until it expires".to_owned(),
        |until| format!("until it expires ({until} at the latest, as far as the hub has seen)"),
    )
}

/// On an API server that is not the hub's own: what the hub has given is taken back, with the rights of whoever asks.
async fn revoke_elsewhere(server: &Server, names: &[String], told: Told, env: &Env) -> Result<(), Failure> {
    let mut others = Vec::new();
    for name in names {
        let revoked = agents::revoke(&server.objects, name, env.wall()).await;
        if !revoked.map_err(|error| server.failure(&error))? {
            others.push(name.as_str());
            continue;
        }
        let line = format!(
            "cluster/{name}: the rights of its agent on the hub are removed, and its tokens deleted. To let it in again: \
             karmada-hub token create --cluster {name}"
        );
        told.say(&line, &json!({"cluster": name, "result": "revoked"}))?;
        let seen = agents::look(&server.objects, name).await.map_err(|error| server.failure(&error))?;
        let cluster = server.objects.rest().get(&CLUSTERS.object(None, name)).await;
        if let Ok(cluster) = cluster {
            note(to_check(&cluster, name));
            note(waits(&cluster, name));
        }
        eprintln!(
            "note: this server cannot revoke a certificate. The old one of {name} cannot be renewed, but {} it is valid again once an \
             agent joins under that name. If others may have it, join under another name, or wait",
            until(&seen)
        );
    }
    if others.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "the hub has given the agent of {} nothing on this server, but for tokens, which have ended: whoever gave it its \
         credentials takes them back (a service account of manifests/hub/agent-rbac.yaml: kubectl -n karmada-system delete \
         serviceaccount karmada-agent-NAME; a certificate: the roles and bindings karmada-agent-NAME, or \
         system:karmada:NAME:agent, agent-secret and agent-work of karmadactl register)",
        others.join(", ")
    )))
}

/// Ends the epoch of a cluster. Answers which counts now.
pub(super) async fn end(rest: &Rest, cluster: &str, env: &Env) -> Result<u64, Error> {
    let now = env.wall();
    change_record(rest, cluster, |record| record.end(End::Revoked, "", now)).await.map(|record| record.epoch)
}

/// The record of a cluster's credentials, and the Secret that it stands in, if it was ever written.
///
/// # Errors
/// When it cannot be read.
pub async fn read_record(rest: &Rest, cluster: &str) -> Result<(Record, Option<Value>), Error> {
    let there = match rest.get(&Record::path(cluster)).await {
        Ok(secret) => Some(secret),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error),
    };
    let record = there.as_ref().map(Record::read).transpose().map_err(|cause| broken(cluster, cause))?;
    Ok((record.unwrap_or_default(), there))
}

/// Changes the record of a cluster's credentials. Answers with what it is from then on; what is so already is not written.
///
/// # Errors
/// When it cannot be read or written, or `change` knows no record after it.
pub async fn change_record(
    rest: &Rest,
    cluster: &str,
    change: impl Fn(&Record) -> Option<Record>,
) -> Result<Record, Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (record, there) = read_record(rest, cluster).await?;
        let next = change(&record)
            .ok_or_else(|| broken(cluster, "there is no epoch after the one that counts".to_owned()))?;
        if next == record {
            return Ok(next);
        }
        let secret = next.write(cluster, there.clone());
        let written = match there {
            Some(_) => rest.put(&Record::path(cluster), &secret).await,
            None => rest.post(&Record::collection(), &secret).await,
        };
        match written {
            Ok(_) => return Ok(next),
            Err(error) if tries < TRIES && (error.is_conflict() || error.is_already_exists()) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether an agent has registered by the name of a cluster.
///
/// # Errors
/// When the server cannot be asked.
pub async fn is_registered(rest: &Rest, cluster: &str) -> Result<bool, Error> {
    match rest.get(&CLUSTERS.object(None, cluster)).await {
        Ok(cluster) => Ok(has_registered(&cluster)),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

fn broken(cluster: &str, cause: String) -> Error {
    Error::Answer { method: http::Method::GET, path: Record::path(cluster), cause }
}

#[cfg(test)]
mod tests {
    use karmada_meta::object;

    use super::*;

    #[test]
    fn what_an_agent_may_have_said_is_named() {
        let of = |spec: Value| to_check(&json!({"metadata": {"name": "m"}, "spec": spec}), "m");
        let secret = |name: &str| json!({"namespace": "karmada-cluster", "name": name});
        let words = of(json!({
            "syncMode": "Pull", "apiEndpoint": "https://thief", "proxyURL": "http://thief:3128",
            "insecureSkipTLSVerification": true, "proxyHeader": {"a": "b"},
            "secretRef": secret("m"), "impersonatorSecretRef": secret("m-impersonator"),
        }));
        let words = words.unwrap();
        for word in [
            "spec.apiEndpoint (https://thief)",
            "spec.proxyURL (http://thief:3128)",
            "spec.insecureSkipTLSVerification",
            "spec.proxyHeader",
            "spec.secretRef (Secret m)",
            "spec.impersonatorSecretRef (Secret m-impersonator)",
            "kubectl edit cluster m",
        ] {
            assert!(words.contains(word), "{word}: {words}");
        }
        // One that is reached by a tunnel alone, and one where the platform has said all that.
        assert_eq!(
            of(json!({"syncMode": "Pull", "apiEndpoint": "", "insecureSkipTLSVerification": false})),
            None
        );
        assert_eq!(
            of(json!({"syncMode": "Push", "apiEndpoint": "https://m", "secretRef": secret("m")})),
            None
        );
    }

    #[test]
    fn a_tunnel_that_nobody_serves_any_more_is_named() {
        for (mode, given, wanted, dialled, named) in [
            ("Pull", Some("full"), Some("read-only"), true, true),
            ("Pull", Some("full"), None, true, false),
            ("Pull", None, Some("full"), true, false),
            ("Pull", Some("full"), Some("off"), true, false),
            ("Pull", Some("full"), Some("full"), false, false),
            ("Push", Some("full"), Some("full"), true, false),
        ] {
            let mut cluster = json!({"metadata": {"name": "m"}, "spec": {"syncMode": mode}});
            for (key, value) in [(extension::TUNNEL, given), (extension::TUNNEL_WANTED, wanted)] {
                if let Some(value) = value {
                    object::set_annotation(&mut cluster, key, value);
                }
            }
            if dialled {
                cluster["spec"]["apiEndpoint"] = json!("https://10.0.0.1:6443");
                cluster["spec"]["impersonatorSecretRef"] =
                    json!({"namespace": "karmada-cluster", "name": "m-impersonator"});
            }
            let words = waits(&cluster, "m");
            assert_eq!(words.is_some(), named, "{mode} {given:?} {wanted:?} {dialled}");
            assert!(words.is_none_or(|words| words.contains("cluster m agent.karmada.io/tunnel-")));
        }
    }
}

//! `karmada-hub join` and `unjoin`: members that the hub itself works on. What they make, and how it is named, is what
//! `karmadactl join` makes, so that either undoes what the other has done. Unlike `karmadactl unjoin`, ours deletes nothing from
//! a cluster that is not the one that has joined, and no namespace with anything of others' in it.
//!
//! ```text
//!   on the member   namespace karmada-cluster ─ accounts karmada-NAME, which may do everything, and karmada-impersonator,
//!                   which may do nothing by itself ─ a token of each, in a Secret
//!   on the hub      Secrets NAME {token, caBundle} and NAME-impersonator {token} in karmada-cluster ─ the Cluster, in Push mode
//! ```

mod leave;

use std::{fs, path::Path, time::Duration};

use karmada_api::consts::{label, namespace};
use karmada_client::{Error, Kubeconfig, Patch, Rest, link::client_for};
use karmada_env::Env;
use karmada_meta::{names::joining_name_errors, object};
use karmada_objects::kinds::{CLUSTERS, NAMESPACES, SECRETS};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Failure,
    args::{JoinArgs, UnjoinArgs},
    ask::Server,
    told::one_line,
};

/// The account by which the hub acts in users' names.
const IMPERSONATOR: &str = "karmada-impersonator";
/// How long the member may take to make a token.
const TOKEN: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// For each request to the member.
const PATIENCE: Duration = Duration::from_secs(12);
const GROUP: &str = "rbac.authorization.k8s.io";

/// A member, as whoever joins it reaches it.
struct Member {
    rest: Rest,
    /// Of its kubeconfig.
    server: String,
    insecure: bool,
    proxy: String,
}

impl Member {
    fn open(file: &Path, context: Option<&str>, env: &Env) -> Result<Self, Failure> {
        let endpoint = Kubeconfig::load(file).and_then(|config| config.endpoint(context));
        let endpoint = endpoint.map_err(Failure::usage)?;
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
        let config: Value = serde_saphyr::from_str(&text)
            .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
        let cluster = cluster_of(&config, context);
        let server = endpoint.server.to_string().trim_end_matches('/').to_owned();
        let (client, _) =
            client_for(endpoint, concat!("karmada-hub/", env!("CARGO_PKG_VERSION")), env.clone());
        Ok(Self {
            rest: Rest::new(client).with_deadline(PATIENCE),
            server,
            insecure: cluster["insecure-skip-tls-verify"].as_bool().unwrap_or(false),
            proxy: cluster["proxy-url"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// What stands in the way, in the member's words.
    fn failed(&self, what: &str, error: &Error) -> Failure {
        Failure::failed(format!("{what} on the member at {}: {error}", self.server))
    }

    /// Makes something that may be there already.
    async fn ensure(&self, collection: &str, object: &Value) -> Result<(), Failure> {
        match self.rest.post(collection, object).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => {
                let what = format!(
                    "cannot make {} {}",
                    object["kind"].as_str().unwrap_or_default(),
                    object::name(object)
                );
                Err(self.failed(&what, &error))
            }
        }
    }

    /// A token of an account of this name, and what proves the member's API, both in base64.
    async fn token_of(&self, account: &str) -> Result<(String, String), Failure> {
        let within = format!("/api/v1/namespaces/{}", namespace::CLUSTER);
        let meta = json!({"name": account, "namespace": namespace::CLUSTER, "labels": {label::SYSTEM: label::SYSTEM_VALUE}});
        let made = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta});
        self.ensure(&format!("{within}/serviceaccounts"), &made).await?;
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": meta,
        });
        secret["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": account});
        self.ensure(&format!("{within}/secrets"), &secret).await?;
        let until = Instant::now() + TOKEN;
        loop {
            let found = self.rest.get(&format!("{within}/secrets/{account}")).await;
            let found =
                found.map_err(|error| self.failed(&format!("cannot read Secret {account}"), &error))?;
            let entry = |key: &str| found["data"][key].as_str().unwrap_or_default().to_owned();
            if !entry("token").is_empty() {
                return Ok((entry("token"), entry("ca.crt")));
            }
            if Instant::now() >= until {
                return Err(Failure::failed(format!(
                    "the member at {} has put no token into Secret {}/{account} within {} s: its kube-controller-manager does that",
                    self.server,
                    namespace::CLUSTER,
                    TOKEN.as_secs()
                )));
            }
            sleep(LOOK).await;
        }
    }

    /// Takes something away that may be gone already.
    async fn remove(&self, path: &str) -> Result<(), Failure> {
        match self.rest.delete(path, &json!({})).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(self.failed(&format!("cannot delete {path}"), &error)),
        }
    }
}

/// The cluster that a context of a kubeconfig names.
fn cluster_of(config: &Value, context: Option<&str>) -> Value {
    let named = |list: &str, part: &str, name: &str| {
        let mut all = config[list].as_array().into_iter().flatten();
        all.find(|one| one["name"] == name).map(|one| one[part].clone()).unwrap_or_default()
    };
    let context = context.or_else(|| config["current-context"].as_str()).unwrap_or_default();
    let context = named("contexts", "context", context);
    named("clusters", "cluster", context["cluster"].as_str().unwrap_or_default())
}

/// What an account may do that does everything.
fn role(name: &str) -> [Value; 2] {
    let meta = json!({"name": name, "labels": {label::SYSTEM: label::SYSTEM_VALUE}});
    let version = format!("{GROUP}/v1");
    [
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": meta,
            "rules": [
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["get"]},
            ],
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": meta,
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [{
                "kind": "ServiceAccount", "namespace": namespace::CLUSTER,
                "name": name.strip_prefix(ROLE).unwrap_or_default(),
            }],
        }),
    ]
}

/// What the name of that role begins with; the account's follows.
const ROLE: &str = "karmada-controller-manager:";

/// The account that does everything, for a cluster.
fn account(cluster: &str) -> String {
    format!("karmada-{cluster}")
}

fn system_namespace() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": namespace::CLUSTER, "labels": {label::SYSTEM: label::SYSTEM_VALUE}},
    })
}

/// Joins a member.
pub(super) async fn join(args: JoinArgs, env: Env) -> Result<(), Failure> {
    if let Some(why) = joining_name_errors(&args.name).first() {
        return Err(Failure::usage(format!("{:?} is no name of a cluster: {why}", args.name)));
    }
    let member = Member::open(&args.cluster_kubeconfig, args.cluster_context.as_deref(), &env)?;
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let hub = server.objects.rest().clone();
    let name = &args.name;
    let system = member.rest.get(&NAMESPACES.object(None, "kube-system")).await;
    let system = system.map_err(|error| member.failed("cannot read Namespace kube-system", &error))?;
    let id = object::uid(&system).to_owned();
    let clusters = hub.get(&CLUSTERS.collection(None)).await.map_err(|error| server.failure(&error))?;
    if clusters["items"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|one| object::name(one) == name || one["spec"]["id"] == *id)
    {
        return Err(Failure::failed(format!(
            "the cluster ID {id} or the cluster name {name} has been registered"
        )));
    }
    // First on the member: what is not finished there has changed nothing on the hub.
    member.ensure(&NAMESPACES.collection(None), &system_namespace()).await?;
    let (impersonator, _) = member.token_of(IMPERSONATOR).await?;
    let own = account(name);
    let (token, ca) = member.token_of(&own).await?;
    for (object, plural) in role(&format!("{ROLE}{own}")).iter().zip(["clusterroles", "clusterrolebindings"])
    {
        member.ensure(&format!("/apis/{GROUP}/v1/{plural}"), object).await?;
    }
    let done = async {
        match hub.post(&NAMESPACES.collection(None), &system_namespace()).await {
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
        // Before the tokens are there: from then on no agent of that name may read them.
        let made = hub.post(&CLUSTERS.collection(None), &cluster(&args, &member, &id)).await?;
        let owner = json!([{
            "apiVersion": CLUSTERS.api_version(), "kind": "Cluster", "name": name, "uid": object::uid(&made),
            "controller": true, "blockOwnerDeletion": true,
        }]);
        let second = format!("{name}-impersonator");
        for (secret, data) in
            [(name, json!({"token": token, "caBundle": ca})), (&second, json!({"token": impersonator}))]
        {
            let made = json!({
                "apiVersion": "v1", "kind": "Secret", "data": data,
                "metadata": {
                    "name": secret, "namespace": namespace::CLUSTER,
                    "labels": {label::SYSTEM: label::SYSTEM_VALUE}, "ownerReferences": owner,
                },
            });
            match hub.post(&SECRETS.collection(Some(namespace::CLUSTER)), &made).await {
                // What an earlier attempt has left there may be of a token that counts no more.
                Err(error) if error.is_already_exists() => {
                    let path = SECRETS.object(Some(namespace::CLUSTER), secret);
                    let change = json!({"data": data, "metadata": {"ownerReferences": owner}});
                    hub.patch(&path, Patch::Merge, &change).await?;
                }
                made => drop(made?),
            }
        }
        Ok(())
    };
    if let Err(error) = done.await {
        let error: Error = error;
        return Err(Failure::failed(format!(
            "{error}; what there is of cluster {name} on the hub goes with: karmada-hub unjoin {name}"
        )));
    }
    let line = format!("cluster({name}) is joined successfully");
    args.told.say(&line, &json!({"cluster": name, "result": "joined"}))?;
    reached(&hub, &server, name, args.wait).await
}

/// Waits until the hub has reached the member.
async fn reached(hub: &Rest, server: &Server, name: &str, wait: Duration) -> Result<(), Failure> {
    let until = Instant::now() + wait;
    while !wait.is_zero() {
        let cluster = hub.get(&CLUSTERS.object(None, name)).await.map_err(|error| server.failure(&error))?;
        let said = ready(&cluster);
        match said {
            Some(("True", ..)) => break,
            _ if Instant::now() < until => sleep(LOOK).await,
            said => {
                let said = said.map_or_else(
                    || {
                        "the Cluster has no condition Ready: does this hub work on clusters in push mode?"
                            .to_owned()
                    },
                    |(status, reason, message)| {
                        format!("its Cluster says Ready={status} ({reason}): {message}")
                    },
                );
                return Err(Failure::failed(format!(
                    "cluster({name}) is joined, and the hub has not reached it within {} s: {said}",
                    wait.as_secs()
                )));
            }
        }
    }
    Ok(())
}

/// What a Cluster's condition Ready says: its status, reason and message.
fn ready(cluster: &Value) -> Option<(&str, &str, &str)> {
    let mut all = cluster["status"]["conditions"].as_array().into_iter().flatten();
    let ready = all.find(|one| one["type"] == "Ready")?;
    let text = |field: &str| ready[field].as_str().unwrap_or_default();
    Some((text("status"), text("reason"), text("message")))
}

/// The Cluster as it is made.
fn cluster(args: &JoinArgs, member: &Member, id: &str) -> Value {
    let name = &args.name;
    let reference = |name: &str| json!({"namespace": namespace::CLUSTER, "name": name});
    let mut spec = json!({
        "syncMode": "Push", "id": id, "apiEndpoint": member.server,
        "secretRef": reference(name), "impersonatorSecretRef": reference(&format!("{name}-impersonator")),
    });
    for (field, value) in [
        ("provider", args.cluster_provider.as_deref().map(Value::from)),
        ("region", args.cluster_region.as_deref().map(Value::from)),
        ("zones", Some(args.cluster_zones.clone()).filter(|zones| !zones.is_empty()).map(Value::from)),
        ("insecureSkipTLSVerification", member.insecure.then_some(true.into())),
        ("proxyURL", Some(member.proxy.as_str()).filter(|proxy| !proxy.is_empty()).map(Value::from)),
    ] {
        if let Some(value) = value {
            spec[field] = value;
        }
    }
    json!({"apiVersion": CLUSTERS.api_version(), "kind": "Cluster", "metadata": {"name": name}, "spec": spec})
}

/// Lets go of a member: the hub takes away what it has put there, and then the Cluster.
pub(super) async fn unjoin(args: UnjoinArgs, env: Env) -> Result<(), Failure> {
    let name = &args.name;
    let member = match &args.cluster_kubeconfig {
        Some(file) => Some(Member::open(file, args.cluster_context.as_deref(), &env)?),
        None => None,
    };
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let hub = server.objects.rest().clone();
    let path = CLUSTERS.object(None, name);
    let cluster = match hub.get(&path).await {
        Ok(cluster) if cluster["spec"]["syncMode"] != "Push" => {
            return Err(Failure::failed(format!(
                "cluster {name} is in pull mode: its agent leaves with karmada-agent leave or karmadactl unregister"
            )));
        }
        Ok(cluster) => Some(cluster),
        Err(error) if error.is_not_found() && member.is_some() => None,
        Err(error) => return Err(server.failure(&error)),
    };
    let mut leaving = leave::Leaving::new(name, args.force);
    // Before anything is deleted.
    let there = match &member {
        Some(there) => {
            let uid = leaving.proven(there, cluster.as_ref(), args.cluster_id.as_deref()).await?;
            uid.map(|uid| (there, uid))
        }
        None => None,
    };
    if cluster.is_some() {
        hub.delete(&path, &json!({})).await.map(drop).map_err(|error| server.failure(&error))?;
    }
    let done = departs(name, &server, there.as_ref().map(|(there, _)| *there), &mut leaving, args.wait).await;
    done.map_err(|why| match &there {
        Some((_, uid)) => again(why, uid),
        None => why,
    })?;
    let notes = leaving.notes();
    for note in notes {
        eprintln!("note: {}", one_line(note));
    }
    let line = format!("cluster({name}) is unjoined successfully");
    let mut told = json!({"cluster": name, "result": "unjoined"});
    if !notes.is_empty() {
        told["notes"] = json!(notes);
    }
    args.told.say(&line, &told)
}

/// Waits until a Cluster is gone; then what join has made on the member goes, if that is known.
async fn departs(
    name: &str,
    server: &Server,
    member: Option<&Member>,
    leaving: &mut leave::Leaving<'_>,
    wait: Duration,
) -> Result<(), Failure> {
    let path = CLUSTERS.object(None, name);
    let until = Instant::now() + wait;
    loop {
        match server.objects.rest().get(&path).await {
            Err(error) if error.is_not_found() => break,
            Err(error) => return Err(server.failure(&error)),
            Ok(_) if Instant::now() >= until => {
                return Err(Failure::failed(format!(
                    "cluster {name} is still there after {} s: the hub first takes away what it has put on the member. See the \
                     Works in karmada-es-{name}, and wait with --wait",
                    wait.as_secs()
                )));
            }
            Ok(_) => sleep(LOOK).await,
        }
    }
    match member {
        Some(member) => leaving.tidy(member, server).await,
        None => Ok(()),
    }
}

/// Says how to go on: by then the Cluster may be gone, which says which one is its member. A uid goes into a shell, so it has no
/// other signs than a uid has.
fn again(why: Failure, uid: &str) -> Failure {
    if !uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return why;
    }
    Failure::failed(format!("{why}. To go on, run the same command with --cluster-id {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_to_go_on_is_said_by_the_uid() {
        let said = |uid: &str| again(Failure::failed("it is still there"), uid).to_string();
        assert_eq!(
            said("0b0e-4711"),
            "it is still there. To go on, run the same command with --cluster-id 0b0e-4711"
        );
        assert_eq!(said("$(x)"), "it is still there", "nobody pastes what a member makes up");
    }

    #[test]
    fn the_context_says_which_cluster() {
        let config = json!({
            "current-context": "a",
            "clusters": [{"name": "x", "cluster": {"server": "https://x"}}, {"name": "y", "cluster": {"server": "https://y"}}],
            "contexts": [{"name": "a", "context": {"cluster": "x"}}, {"name": "b", "context": {"cluster": "y"}}],
        });
        assert_eq!(cluster_of(&config, None)["server"], "https://x");
        assert_eq!(cluster_of(&config, Some("b"))["server"], "https://y");
        assert_eq!(cluster_of(&config, Some("c")), Value::Null);
    }

    #[test]
    fn how_the_hub_fares_is_read_of_the_cluster() {
        assert_eq!(ready(&json!({})), None);
        let other = json!({"type": "Other", "status": "True"});
        let is = json!({"type": "Ready", "status": "False", "reason": "r", "message": "m"});
        let cluster = json!({"status": {"conditions": [other, is]}});
        assert_eq!(ready(&cluster), Some(("False", "r", "m")));
    }

    #[test]
    fn names_are_karmadas() {
        let [role, binding] = role(&format!("{ROLE}{}", account("m")));
        assert_eq!(object::name(&role), "karmada-controller-manager:karmada-m");
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        assert_eq!(binding["subjects"][0]["name"], "karmada-m");
    }
}

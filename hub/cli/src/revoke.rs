//! `karmada-hub cluster revoke`: the credentials of an agent end before their time.

use karmada_apiserver::authn::epochs::{End, Record};
use karmada_client::{Error, Rest};
use karmada_env::Env;
use karmada_meta::names::cluster_name_errors;
use karmada_objects::kinds::CLUSTERS;

use super::{
    Failure,
    args::{ClusterArgs, ClusterCommand, RevokeArgs},
    ask::Server,
    print,
};

/// Somebody else may write a record in between; then it is looked at again, so often.
const TRIES: u32 = 8;
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
    if let Err(error) = rest.get_text(OWN_API).await
        && error.is_not_found()
    {
        return Err(Failure::failed(
            "this server is no hub with an API of its own: it gave the agents their credentials, and takes them back \
             (for those of manifests/hub/agent-rbac.yaml: kubectl -n karmada-system delete serviceaccount karmada-agent-NAME)",
        ));
    }
    for name in &args.names {
        let epoch = end(rest, name, &env).await.map_err(|error| server.failure(&error))?;
        print(&format!(
            "cluster/{name} credentials revoked (epoch {epoch} counts now); for new ones: karmada-hub credentials \
             --data-dir DIR --cluster {name}\n"
        ))?;
        // Right for a cluster that has gone or not come yet. Whoever has misspelled a name must know that a stolen
        // credential still holds.
        match rest.get(&CLUSTERS.object(None, name)).await {
            Err(error) if error.is_not_found() => {
                eprintln!(
                    "note: there is no Cluster {name}; if another was meant, its credentials still hold"
                );
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Ends the epoch of a cluster. Answers which counts now.
async fn end(rest: &Rest, cluster: &str, env: &Env) -> Result<u64, Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        let there = match rest.get(&Record::path(cluster)).await {
            Ok(secret) => Some(secret),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let broken =
            |cause: String| Error::Answer { method: http::Method::GET, path: Record::path(cluster), cause };
        let record = there.as_ref().map(Record::read).transpose().map_err(broken)?.unwrap_or_default();
        let next = record
            .end(End::Revoked, "", env.wall())
            .ok_or_else(|| broken("there is no epoch after it".to_owned()))?;
        let secret = next.write(cluster, there.clone());
        let written = match there {
            Some(_) => rest.put(&Record::path(cluster), &secret).await,
            None => rest.post(&Record::collection(), &secret).await,
        };
        match written {
            Ok(_) => return Ok(next.epoch),
            Err(error) if tries < TRIES && (error.is_conflict() || error.is_already_exists()) => {}
            Err(error) => return Err(error),
        }
    }
}

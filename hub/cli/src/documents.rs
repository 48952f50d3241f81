//! What the commands that look find, as documents, for whoever has a client in this process: the page of the hub. What a client
//! may read decides what is in them.

use karmada_env::Env;
use karmada_objects::Objects;
use serde_json::{Value, json};

use super::{
    Failure,
    ask::Server,
    cordon,
    drain::{self, How},
    explain, failback,
    whatif::{self, Wanted},
};

/// What `explain KIND NAME -o json` prints.
///
/// # Errors
/// When there is no such object, or the client may not read what it takes.
pub async fn explain(
    objects: Objects,
    namespace: &str,
    kind: &str,
    name: &str,
    env: &Env,
) -> Result<Value, Failure> {
    explain::document(&Server::within(objects, namespace, env), kind, name).await
}

/// What `what-if -o json` prints, of `most` objects at most; `of` says how many there are, if there are more.
///
/// # Errors
/// When there is no such cluster, or the client may not read what it takes.
pub async fn what_if(objects: Objects, wanted: &Wanted, most: usize, env: &Env) -> Result<Value, Failure> {
    let server = Server::within(objects, "", env);
    Ok(whatif::look(&server, wanted, None, most).await?.document(wanted))
}

/// Does what `cordon` and `uncordon` do. Whether that was not so before.
///
/// # Errors
/// When there is no such cluster, or the client may not change it.
pub async fn cordon(objects: Objects, cluster: &str, cordons: bool, env: &Env) -> Result<bool, Failure> {
    let server = Server::within(objects, "", env);
    match cordons {
        true => cordon::cordoned(&server, cluster, false).await,
        false => cordon::uncordoned(&server, cluster, false).await,
    }
}

/// Does what `drain` does, without waiting: what has become of `most` objects at most, and how many move. What kept it from
/// going on, when something had been done already, is its `problem`.
///
/// # Errors
/// When there is no such cluster, or the client may not change it.
pub async fn drain(objects: Objects, cluster: &str, most: usize, env: &Env) -> Result<Value, Failure> {
    let server = Server::within(objects, "", env);
    let how = How { cluster, grace: None, force: false, dry_run: false };
    let (mut rows, mut moving, mut done) = (Vec::new(), 0, false);
    let mut say = |_: &str, row: Value| {
        done = true;
        moving += usize::from(!row["to"].is_null());
        keep(&mut rows, most, row)
    };
    match drain::start(&server, how, &mut say).await {
        Ok(begun) => Ok(json!({
            "cluster": cluster, "moving": begun.moving.len(), "cannotMove": begun.stuck.len(), "objects": rows,
        })),
        Err(Failure::Failed(why) | Failure::Answered { why, .. }) if done => Ok(json!({
            "cluster": cluster, "moving": moving, "cannotMove": 0, "objects": rows, "problem": why,
        })),
        Err(failure) => Err(failure),
    }
}

/// Does what `failback --cluster` does, without waiting for what comes of it.
///
/// # Errors
/// When there is no such cluster, or the client may not read what it takes or write a WorkloadRebalancer.
pub async fn failback(objects: Objects, cluster: &str, most: usize, env: &Env) -> Result<Value, Failure> {
    let server = Server::within(objects, "", env);
    let wanted = failback::Wanted::to_cluster(cluster);
    let mut rows = Vec::new();
    let begun =
        failback::start(&server, &wanted, false, env, &mut |_, row| keep(&mut rows, most, row)).await?;
    Ok(json!({
        "cluster": cluster, "moving": begun.objects, "workloadRebalancer": begun.rebalancer, "objects": rows,
    }))
}

/// Keeps what is said of an object, as long as there is room.
fn keep(rows: &mut Vec<Value>, most: usize, row: Value) -> Result<(), Failure> {
    if rows.len() < most && row.get("object").is_some() {
        rows.push(row);
    }
    Ok(())
}

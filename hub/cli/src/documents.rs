//! What the commands that look find, as documents, for whoever has a client in this process: the page of the hub. What a client
//! may read decides what is in them.

use karmada_env::Env;
use karmada_objects::Objects;
use serde_json::Value;

use super::{
    Failure,
    ask::Server,
    cordon, explain,
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

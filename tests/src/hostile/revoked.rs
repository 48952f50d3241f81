//! A credential that was revoked ends, on connections that are open and on new ones, and never comes back.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::time::{sleep, timeout};

use super::{
    client::Ask,
    ground::{Ground, cluster, join, works},
};
use crate::bench::now;

/// Within which it ends: a second, and some for a machine that is busy.
const SOON: Duration = Duration::from_secs(3);
const JOINING: Duration = Duration::from_secs(60);

/// Revokes the credential of an agent that has joined. Answers what was wrong.
pub(super) async fn all(ground: &Ground) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Err(why) = steps(ground, &mut wrong).await {
        wrong.push(why);
    }
    wrong.into_iter().map(|why| format!("revoked: {why}")).collect()
}

async fn steps(ground: &Ground, wrong: &mut Vec<String>) -> Result<(), String> {
    let (name, who) = &ground.people.leaver;
    join(name, who, JOINING).await?;
    let text = |error: std::io::Error| error.to_string();
    let wire = who.wire().await.map_err(text)?;
    let watch = wire.open(Ask::get(&format!("{}?watch=true", works(name)))).await.map_err(text)?;
    if watch.status() != 200 {
        return Err(format!("its own watch: {}", watch.status()));
    }
    let done = ground.command(&["cluster", "revoke", name]);
    if !done.status.success() {
        return Err(format!("karmada-hub cluster revoke: {}", String::from_utf8_lossy(&done.stderr).trim()));
    }
    let begun = now();
    let mut body = watch.into_body();
    let ends = async { while let Some(Ok(_)) = body.frame().await {} };
    if timeout(SOON, ends).await.is_err() {
        wrong.push(format!("its watch goes on after {SOON:?}"));
    }
    // Over the connection that was open, and over a new one.
    let path = cluster(name);
    loop {
        let code = wire.ask(Ask::get(&path)).await.map(|answer| answer.code);
        if !matches!(code, Ok(code) if code < 400) {
            break;
        }
        if begun.elapsed() > SOON {
            wrong.push(format!("its connection is answered {code:?} after {SOON:?}"));
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    let fresh = async |what: &str| match timeout(JOINING, who.ask(Ask::get(&path))).await {
        Ok(Ok(answer)) if answer.code < 400 || answer.code == 404 => Some(format!("{what}: {}", answer.code)),
        _ => None,
    };
    wrong.extend(fresh("a new connection is answered").await);
    // Whose Cluster is deleted cannot register it anew.
    let deleted = ground.people.admin.ask(Ask::delete(&path)).await.map_err(text)?;
    if deleted.code >= 400 {
        return Err(format!("its Cluster cannot be deleted: {}", deleted.code));
    }
    wrong.extend(fresh("with its Cluster deleted, it is answered").await);
    if join(name, who, SOON).await.is_ok() {
        wrong.push("it joined again".to_owned());
    }
    Ok(())
}

//! `karmada-hub ui`: an address that logs one browser in, for whoever has a kubeconfig.

use karmada_env::Env;
use serde_json::json;

use super::{Failure, args::UiArgs, ask::Server};

/// Where the hub gives one out.
const TICKETS: &str = "/ui/ticket";
/// How long it is good.
const SECONDS: u32 = 60;

/// Prints the address. What makes it good stands behind the `#`, which no browser sends to anybody.
pub(super) async fn run(args: UiArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let answer = server.objects.rest().post(TICKETS, &json!({})).await.map_err(|error| match error {
        error if error.is_not_found() => Failure::failed(format!(
            "{} serves no page: only a hub with an API of its own does",
            server.address()
        )),
        error => server.failure(&error),
    })?;
    let ticket = answer["ticket"].as_str().ok_or_else(|| Failure::failed("the hub gave no ticket"))?;
    let url = format!("{}/ui#ticket={ticket}", server.address());
    args.told.say(&url, &json!({"url": url, "seconds": SECONDS, "uses": 1}))?;
    // Not where a script reads the address.
    if !args.told.is_json() {
        eprintln!("Open it within {SECONDS} s; it works once.");
    }
    Ok(())
}

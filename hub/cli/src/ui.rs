//! `karmada-hub ui`: an address that logs one browser in, for whoever has a kubeconfig.

use karmada_env::Env;
use serde_json::json;

use super::{Failure, args::UiArgs, ask::Server, print};

/// Where the hub gives one out.
const TICKETS: &str = "/ui/ticket";

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
    print(&format!("{}/ui#ticket={ticket}\n", server.address()))?;
    // Not where a script reads the address.
    eprintln!("Open it within 60 s; it works once.");
    Ok(())
}

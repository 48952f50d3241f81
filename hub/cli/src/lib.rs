//! The commands that only talk to an API: they look, explain, suppose and move things, from wherever there is a kubeconfig.
//!
//! ```text
//!   arguments ──▶ ask::Server ──▶ karmada_objects ──▶ the API
//!                                       │
//!                 placed, known ◀───────┘   bindings, Clusters, and how fresh what is known of them is
//!                       │
//!                 karmada_core, which decides as on the hub ──▶ table, report ──▶ a person
//! ```
//!
//! Nothing here knows how a hub runs; `karmada-hub` brings these commands together with those that run it.

pub mod agents;
pub mod apply;
pub mod args;
pub mod ask;
pub mod ca;
mod confirm;
mod cordon;
pub mod documents;
mod drain;
mod explain;
mod failback;
mod follow;
mod get;
mod join;
mod known;
mod kubeconfig;
mod members;
mod placed;
pub mod progress;
mod reach;
pub mod revoke;
mod rollout;
mod shown;
mod table;
mod token;
mod ui;
mod upgrade;
mod waves;
mod whatif;

use karmada_env::Env;

pub use args::Command;
pub use karmada_telemetry::told::{self, Failure, print};
pub use whatif::{Assumed, Wanted};

/// Does what a command says.
///
/// # Errors
/// When it cannot be done, or was tried and failed.
pub async fn run(command: Command, env: Env) -> Result<(), Failure> {
    match command {
        Command::Cluster(args) => revoke::run(args, env).await,
        Command::Token(args) => token::run(args, env).await,
        Command::Ca(args) => ca::run(args, env).await,
        Command::Get(args) => get::run(args, env).await,
        Command::Explain(args) => explain::run(args, env).await,
        Command::Ui(args) => ui::run(args, env).await,
        Command::WhatIf(args) => whatif::run(args, env).await,
        Command::Cordon(args) => cordon::cordon(args, env).await,
        Command::Uncordon(args) => cordon::uncordon(args, env).await,
        Command::Taint(args) => cordon::taint(args, env).await,
        Command::Drain(args) => drain::run(args, env).await,
        Command::Failback(args) => failback::run(args, env).await,
        Command::Rollout(args) => rollout::run(args, env).await,
        Command::Upgrade(args) => upgrade::run(args, env).await,
        Command::ConfirmRestore(args) => confirm::run(args, env).await,
        Command::Apply(args) => apply::run(args, env).await,
        Command::Join(args) => join::join(args, env).await,
        Command::Unjoin(args) => join::unjoin(args, env).await,
        Command::Kubeconfig(args) => kubeconfig::run(args, env).await,
        Command::Logs(args) => reach::logs(args, env).await,
        Command::Exec(args) => reach::exec::run(args, env).await,
        Command::Top(args) => reach::top::run(args, env).await,
        Command::PortForward(args) => reach::forward::run(args, env).await,
    }
}

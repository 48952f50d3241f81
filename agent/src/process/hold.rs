//! `karmada-agent hold`: whoever stands at the machine holds changes of the hub's back, or lets them come.
//!
//! It is written on the agent's Lease on the member: there it outlives the agent and its machine, every agent of the cluster
//! finds it before it does anything, who may hold is the member's to say, and nothing has to be asked for it, since the agent
//! renews the Lease anyway and finds that somebody has changed it.

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Parser, ValueEnum};
use karmada_api::consts::extension::{HOLD_MACHINE, HOLD_MACHINE_UNTIL};
use karmada_client::{Patch, Rest, lease, link::client_for};
use karmada_core::hold::{ByHand, Held};
use karmada_env::Env;
use karmada_member::claim::on_member;
use karmada_meta::time::Time;
use karmada_telemetry::told::Told;
use serde_json::{Value, json};

use super::{
    Failure, USER_AGENT, args, ended, flags, member_endpoint, on_runtime,
    status::{self, Status},
};

/// How long the member may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest hold with an end.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Hold back the hub's changes on this member, for example while somebody works there.
///
/// Changes from the hub wait, including deletions. The agent keeps the objects as it has applied them and corrects
/// drift, also while the hub is away. The removal of the whole cluster does not wait. The hold takes effect within ten
/// seconds. karmada-agent status and the Cluster's condition ChangesHeld show it.
#[derive(Debug, Parser)]
#[command(name = "karmada-agent hold", disable_help_subcommand = true)]
struct Flags {
    /// on: hold changes back from now on. off: end the hold. show: print whether there is a hold.
    #[arg(value_enum)]
    what: What,
    /// The reason, which the hub shows.
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    /// End the hold after this time. Without it: the hold lasts until karmada-agent hold off.
    #[arg(long = "for", value_name = "TIME", value_parser = args::duration)]
    lasts: Option<Duration>,
    /// Name of the member cluster on the hub. Without it, the command asks the agent on this machine at --address.
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,
    /// Address on which that agent serves its health.
    #[arg(long, value_name = "HOST:PORT", default_value = status::ADDRESS)]
    address: String,
    /// Kubeconfig for the member. Without it: the Pod's service account, or outside of a Pod the kubeconfig that
    /// kubectl uses.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in that kubeconfig. Without it: the current context.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The namespace on the member for the agent's Lease, as in the agent's flag of the same name.
    #[arg(long, value_name = "NAME", default_value = "karmada-system")]
    leader_elect_resource_namespace: String,
    #[command(flatten)]
    told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    On,
    Off,
    /// Print whether there is a hold.
    Show,
}

/// Its command line.
pub(super) fn command() -> clap::Command {
    <Flags as clap::CommandFactory>::command()
}

/// The command. `arguments` begin after the word.
pub(super) fn main(arguments: Vec<OsString>) -> ExitCode {
    match flags::<Flags>("karmada-agent hold", arguments) {
        Ok(flags) => ended("karmada-agent hold", on_runtime(run(flags))),
        Err(code) => code,
    }
}

async fn run(flags: Flags) -> Result<(), Failure> {
    if flags.what != What::On && (flags.lasts.is_some() || !flags.why.is_empty()) {
        return Err(Failure::Usage("--why and --for are for hold on".into()));
    }
    if flags.lasts.is_some_and(|lasts| lasts > LONGEST || lasts.is_zero()) {
        return Err(Failure::Usage("--for: must be more than 0 and at most 8784h".into()));
    }
    let env = Env::system();
    let cluster = match &flags.cluster_name {
        Some(name) => name.clone(),
        None => asked(&flags.address)?,
    };
    let member = member_endpoint(flags.kubeconfig.as_deref(), flags.context.as_deref(), true)?;
    let (client, _link) = client_for(member, USER_AGENT, env.clone());
    let member = Rest::new(client).with_deadline(PATIENCE);
    let (namespace, name) = (&flags.leader_elect_resource_namespace, on_member(&cluster));
    let path = lease::resource().object(Some(namespace), &name);
    let failed = |error: karmada_client::Error| {
        Failure::Failed(if error.is_absence_of(&name) {
            format!(
                "no agent of a cluster {cluster} has worked on this member yet: there is no Lease {namespace}/{name}. Check \
                 --cluster-name and --kubeconfig"
            )
        } else {
            format!("the Lease {namespace}/{name} on the member: {error}")
        })
    };
    let lease = match flags.what {
        What::Show => member.get(&path).await,
        What::On | What::Off => member.patch(&path, Patch::Merge, &change(&flags, &env)).await,
    };
    let held = held(&lease.map_err(failed)?, &env);
    let value = json!({
        "cluster": cluster, "held": held.is_some(), "message": held.as_ref().map(|held| &held.message),
        "until": held.as_ref().and_then(|held| held.until),
    });
    flags.told.say(&shown(held.as_ref()), &value)
}

/// The name of the cluster whose agent works here.
fn asked(address: &str) -> Result<String, Failure> {
    let wrong = |why: String| Failure::Failed(format!("--cluster-name is missing, and {why}"));
    let text = status::get(address, &format!("{}?limit=1", status::JSON)).map_err(wrong)?;
    let status: Status = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(status.cluster)
}

/// What is changed of the Lease.
fn change(flags: &Flags, env: &Env) -> Value {
    let on = flags.what == What::On;
    let until = flags.lasts.filter(|_| on).map(|lasts| Time::from_system(env.wall() + lasts).to_string());
    json!({"metadata": {"annotations": {
        HOLD_MACHINE: on.then_some(&flags.why), HOLD_MACHINE_UNTIL: until,
    }}})
}

/// What a Lease says.
fn held(lease: &Value, env: &Env) -> Option<Held> {
    let annotation = |key| lease::annotation(lease, key);
    let hold = ByHand::read(annotation(HOLD_MACHINE), annotation(HOLD_MACHINE_UNTIL));
    hold.and_then(|hold| hold.held(env.wall()))
}

/// The same for people.
fn shown(held: Option<&Held>) -> String {
    match held {
        Some(held) => format!("{}; what was applied before is kept as it is", held.message),
        None => "nobody at the machine holds changes back".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_written_and_taken_off_whole() {
        let env = Env::system();
        let flags = |line: &str| {
            flags::<Flags>("hold", line.split_whitespace().map(OsString::from).collect()).unwrap()
        };
        let annotations = |line: &str| change(&flags(line), &env)["metadata"]["annotations"].clone();
        assert_eq!(annotations("on --why router"), json!({HOLD_MACHINE: "router", HOLD_MACHINE_UNTIL: null}));
        assert_eq!(annotations("off"), json!({HOLD_MACHINE: null, HOLD_MACHINE_UNTIL: null}));
        let lease = json!({"metadata": {"annotations": annotations("on --for 2h")}});
        let words = shown(held(&lease, &env).as_ref());
        assert!(words.starts_with("somebody at the machine holds changes back until 20"), "{words}");
        assert_eq!(shown(held(&json!({}), &env).as_ref()), "nobody at the machine holds changes back");
    }
}

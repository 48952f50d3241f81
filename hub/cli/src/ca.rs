//! `karmada-hub ca`: the hub's authority and the key of service accounts' tokens change, one step at a time.

use std::time::Duration;

use karmada_env::Env;
use serde_json::{Value, json};

use super::{
    Failure,
    args::{CaArgs, CaCommand, CaRotateArgs, CaStatusArgs},
    ask::Server,
    print,
};

/// Where a hub is asked for it. Nobody but administrators may: no role that every server has gives it to anyone else.
pub const PATH: &str = "/karmada-hub/authority";
/// How often it is asked whether a step can be done.
const AGAIN: Duration = Duration::from_secs(10);
/// What has stages comes back here.
const SETTLED: &str = "settled";

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// The CA that signs the certificates of the hub, of agents and of users.
    Authority,
    /// The key that signs service account tokens.
    ServiceAccounts,
}

impl What {
    /// What they are called.
    pub const NAMES: [&str; 2] = ["authority", "service-accounts"];

    /// By its name.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Authority, Self::ServiceAccounts].into_iter().find(|what| what.as_str() == name)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Authority => Self::NAMES[0],
            Self::ServiceAccounts => Self::NAMES[1],
        }
    }

    /// Its stage, in what a hub says of itself.
    fn stage(self, status: &Value) -> &str {
        let field = match self {
            Self::Authority => "authority",
            Self::ServiceAccounts => "serviceAccounts",
        };
        status[field]["stage"].as_str().unwrap_or_default()
    }

    /// What the next step does.
    fn next(self, stage: &str) -> &'static str {
        match (self, stage) {
            (Self::Authority, SETTLED) => "makes an authority that is trusted beside the one that signs",
            (Self::Authority, "introduced") => {
                "lets the new authority sign; first give those who do not renew by themselves (kubectl, scrapers, sites \
                 with a kubeconfig) the certificates of pki/ca.crt to trust"
            }
            (Self::Authority, _) => {
                "trusts the old authority no more, once all agents have certificates of the new one"
            }
            (Self::ServiceAccounts, SETTLED) => {
                "makes a key that is trusted and shown to others beside the one that signs"
            }
            (Self::ServiceAccounts, "introduced") => "lets the new key sign",
            (Self::ServiceAccounts, _) => "trusts the old key no more, once its tokens have ended",
        }
    }
}

/// Does what is asked.
pub(super) async fn run(args: CaArgs, env: Env) -> Result<(), Failure> {
    match args.command {
        CaCommand::Status(args) => status(args, env).await,
        CaCommand::Rotate(args) => rotate(args, env).await,
    }
}

async fn ask(server: &Server, step: Option<&Value>) -> Result<Value, Failure> {
    let rest = server.objects.rest();
    let answer = match step {
        None => rest.get(PATH).await,
        Some(step) => rest.post(PATH, step).await,
    };
    answer.map_err(|error| match error.is_not_found() {
        true => Failure::failed(
            "this server has no authority of its own that could be changed: it is no hub with an API of its own, or an older one",
        ),
        false => server.failure(&error),
    })
}

async fn status(args: CaStatusArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let status = ask(&server, None).await?;
    if args.told.is_json() { args.told.say("", &status) } else { print(&render(&status)) }
}

async fn rotate(args: CaRotateArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let step = json!({"what": args.what.as_str(), "force": args.force});
    let mut said = String::new();
    loop {
        let answer = ask(&server, Some(&step)).await?;
        let refused = answer["refused"].as_str();
        let stage = args.what.stage(&answer);
        match refused {
            None => {
                let line = format!("{}: {stage}", args.what.as_str());
                let next = (stage != SETTLED).then(|| args.what.next(stage));
                args.told.say(&line, &json!({"what": args.what.as_str(), "stage": stage, "next": next}))?;
            }
            Some(why) if !args.wait => return Err(Failure::failed(why)),
            Some(why) if why != said => {
                eprintln!("waiting: {why}");
                why.clone_into(&mut said);
            }
            Some(_) => {}
        }
        if refused.is_none() && (stage == SETTLED || !args.wait) {
            if stage != SETTLED && !args.told.is_json() {
                print(&format!("the next step {}\n", args.what.next(stage)))?;
            }
            return Ok(());
        }
        if refused.is_some() {
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// What a hub says of itself, for people.
fn render(status: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    let authority = &status["authority"];
    let stage = What::Authority.stage(status);
    lines.push(format!("authority: {stage}"));
    let one = |what: &str, one: &Value| {
        format!("  {what:<8} {}, key {}, until {}", text(&one["name"]), text(&one["id"]), text(&one["until"]))
    };
    lines.push(one("signs", &authority["signs"]));
    if authority["other"].is_object() {
        lines.push(one("trusted", &authority["other"]));
        let behind = authority["behind"].as_array().map(Vec::as_slice).unwrap_or_default();
        let all = authority["clusters"].as_u64().unwrap_or_default();
        let there = all.saturating_sub(behind.len() as u64);
        lines.push(format!("  clusters {there} of {all} have certificates of the one that signs"));
        for cluster in behind {
            lines.push(format!(
                "           not {} ({})",
                text(&cluster["cluster"]),
                text(&cluster["certificate"])
            ));
        }
    }
    lines.push(format!("  next     karmada-hub ca rotate: {}", What::Authority.next(stage)));
    let stage = What::ServiceAccounts.stage(status);
    lines.push(format!("service accounts: {stage}"));
    for (at, key) in status["serviceAccounts"]["keys"].as_array().into_iter().flatten().enumerate() {
        let what = if at == 0 { "signs" } else { "trusted" };
        let until = key["tokensUntil"].as_str().map(|until| format!(", tokens until {until}"));
        lines.push(format!("  {what:<8} {}{}", text(&key["id"]), until.unwrap_or_default()));
    }
    lines.push(format!(
        "  next     karmada-hub ca rotate service-accounts: {}",
        What::ServiceAccounts.next(stage)
    ));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_with_who_is_behind() {
        let authority = |name: &str| json!({"name": name, "id": "ab12", "until": "2036-01-01T00:00:00Z"});
        let status = json!({
            "authority": {"stage": "changed", "signs": authority("karmada-x"), "other": authority("karmada"), "clusters": 2,
                          "behind": [{"cluster": "shop-3", "certificate": "old"}]},
            "serviceAccounts": {"stage": "settled", "keys": [{"id": "k1", "tokensUntil": "2026-01-01T00:00:00Z"}]},
        });
        let text = render(&status);
        for line in [
            "authority: changed\n  signs    karmada-x, key ab12, until 2036-01-01T00:00:00Z\n  trusted  karmada, key ab12",
            "  clusters 1 of 2 have certificates of the one that signs\n           not shop-3 (old)\n",
            "service accounts: settled\n  signs    k1, tokens until 2026-01-01T00:00:00Z\n",
            "rotate: trusts the old authority no more",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
        for (what, name) in [What::Authority, What::ServiceAccounts].into_iter().zip(What::NAMES) {
            assert_eq!((What::of(name), what.as_str()), (Some(what), name));
        }
    }
}

//! `karmada-hub cordon`, `uncordon` and `taint`: what keeps objects away from clusters, or drives them away.

use std::time::Duration;

use karmada_api::consts::{
    extension::CONFIRM_REMOVALS,
    taint::{NO_SCHEDULE, UNSCHEDULABLE},
};
use karmada_core::taint_edits::{self, Done, Edit};
use karmada_env::Env;
use karmada_meta::{object, time::Time};
use karmada_objects::{Part, key::Key, kinds};
use serde_json::{Value, json};

use super::{
    Failure,
    args::{CordonArgs, TaintArgs},
    ask::Server,
    known,
    told::Told,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Keeps new objects away from clusters.
pub(super) async fn cordon(args: CordonArgs, env: Env) -> Result<(), Failure> {
    let server = open(&args, &env).await?;
    each(&args.names, async |name| {
        let done = cordoned(&server, name, args.dry_run).await?;
        let word = if done { "cordoned" } else { "already cordoned" };
        said(args.told, &format!("{name} cluster {word}"), name, word, args.dry_run)
    })
    .await
}

/// Lets them come again.
pub(super) async fn uncordon(args: CordonArgs, env: Env) -> Result<(), Failure> {
    let server = open(&args, &env).await?;
    each(&args.names, async |name| {
        let done = uncordoned(&server, name, args.dry_run).await?;
        let word = if done { "uncordoned" } else { "already uncordoned" };
        said(args.told, &format!("{name} cluster {word}"), name, word, args.dry_run)
    })
    .await
}

/// Puts taints on clusters and takes them off.
pub(super) async fn taint(args: TaintArgs, env: Env) -> Result<(), Failure> {
    let (names, edits) = split(&args.words).map_err(Failure::usage)?;
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    each(&names, async |name| {
        let done = change(&server, name, args.dry_run, |live, now| {
            taint_edits::apply(live, &edits, args.overwrite, now)
        })
        .await?;
        let word = match done {
            Done::Unchanged => "unchanged",
            Done::Tainted => "tainted",
            Done::Untainted => "untainted",
            Done::Modified => "modified",
        };
        said(args.told, &format!("cluster/{name} {word}"), name, word, args.dry_run)
    })
    .await
}

/// Says what came of a cluster.
fn said(told: Told, line: &str, cluster: &str, result: &str, dry_run: bool) -> Result<(), Failure> {
    told.say(line, &json!({"cluster": cluster, "result": result, "dryRun": dry_run}))
}

async fn open(args: &CordonArgs, env: &Env) -> Result<Server, Failure> {
    let server = Server::open(&args.server, env)?;
    server.reach().await?;
    Ok(server)
}

/// Does something to each cluster; a failure of one does not keep it from the others.
pub(super) async fn each(
    names: &[String],
    what: impl AsyncFn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for name in names {
        match what(name).await {
            Ok(()) => {}
            Err(Failure::Failed(reason) | Failure::Answered { why: reason, .. }) => failures.push(reason),
            Err(usage) => return Err(usage),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::failed(failures.join("; "))) }
}

/// Names and edits, from the words of the command line: `[cluster] NAME… EDIT…`.
fn split(words: &[String]) -> Result<(Vec<String>, Vec<Edit>), String> {
    let names = words.iter().take_while(|word| !Edit::looks_like_one(word)).count();
    let (mut names, edits) = words.split_at(names);
    if let Some(stray) = edits.iter().find(|word| !Edit::looks_like_one(word)) {
        return Err(format!("names come before taints: {stray:?}"));
    }
    // As karmadactl has it; a cluster may still be called so, if it stands alone.
    if let [first, rest @ ..] = names
        && ["cluster", "clusters"].contains(&first.to_lowercase().as_str())
        && !rest.is_empty()
    {
        names = rest;
    }
    if names.is_empty() {
        return Err("name a cluster: NAME key=value:Effect".to_owned());
    }
    if edits.is_empty() {
        return Err("say what to do: key=value:Effect puts a taint on, key:Effect- takes it off".to_owned());
    }
    Ok((names.to_vec(), taint_edits::parse_all(edits.iter().map(String::as_str))?))
}

/// Keeps new objects away from one cluster. Whether that was not so before.
pub(super) async fn cordoned(server: &Server, name: &str, dry_run: bool) -> Result<bool, Failure> {
    let edit = [Edit::add(UNSCHEDULABLE, NO_SCHEDULE)];
    // A value that somebody gave the taint is as good.
    let cordon = |live: &mut Value, now| taint_edits::apply(live, &edit, false, now).or(Ok(Done::Unchanged));
    Ok(change(server, name, dry_run, cordon).await? != Done::Unchanged)
}

/// Lets objects come to one cluster again. Whether that was not so before.
pub(super) async fn uncordoned(server: &Server, name: &str, dry_run: bool) -> Result<bool, Failure> {
    let edit = [Edit::remove(UNSCHEDULABLE, NO_SCHEDULE)];
    let uncordon = |live: &mut Value, now| {
        // One that has no such taint is as wanted.
        taint_edits::apply(live, &edit, false, now).or(Ok(Done::Unchanged))
    };
    Ok(change(server, name, dry_run, uncordon).await? != Done::Unchanged)
}

/// Lets what is removed on a cluster within a day be meant, however much it is.
pub(super) async fn removals_are_meant(server: &Server, name: &str) -> Result<(), Failure> {
    let until = Time::from_system(server.now() + DAY).to_string();
    let mark = |live: &mut Value, _| {
        object::set_annotation(live, CONFIRM_REMOVALS, until.clone());
        Ok(Done::Modified)
    };
    change(server, name, false, mark).await.map(drop)
}

/// Changes one cluster, most often its taints.
pub(super) async fn change(
    server: &Server,
    name: &str,
    dry_run: bool,
    edit: impl Fn(&mut Value, Time) -> Result<Done, String>,
) -> Result<Done, Failure> {
    let key = Key::cluster_scoped(name);
    let now = Time::from_system(server.now());
    let mut done = Ok(Done::Unchanged);
    let mut apply = |live: &mut Value| {
        done = edit(live, now);
        matches!(&done, Ok(done) if *done != Done::Unchanged)
    };
    let found = if dry_run {
        let found = server.objects.get(&kinds::CLUSTERS, &key).await;
        found.map(|found| {
            found.map(|mut live| {
                apply(&mut live);
            })
        })
    } else {
        server.objects.modify(&kinds::CLUSTERS, &key, Part::Main, apply).await.map(|found| found.map(drop))
    };
    match found.map_err(|e| server.failure(&e))? {
        Some(()) => done.map_err(|why| Failure::failed(format!("cluster {name}: {why}"))),
        None => {
            let mut names = Vec::new();
            let take = |page: Vec<Value>| names.extend(page.iter().map(|c| object::name(c).to_owned()));
            server.objects.list(&kinds::CLUSTERS, None, "", take).await.map_err(|e| server.failure(&e))?;
            Err(known::no_such_cluster(name, names.iter().map(String::as_str)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_taints_are_told_apart() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let table = [
            ("a k=v:NoSchedule", Ok(("a", 1))),
            ("cluster a b k:NoExecute x-", Ok(("a b", 2))),
            ("clusters k:NoExecute", Ok(("clusters", 1))),
            ("a", Err("say what to do")),
            ("k:NoExecute", Err("name a cluster")),
            ("a k:NoExecute b", Err("names come before taints")),
            ("a k:NoSchedule k-", Err("at once")),
        ];
        for (line, want) in table {
            match (split(&words(line)), want) {
                (Ok((names, edits)), Ok((want, count))) => {
                    assert_eq!((names.join(" ").as_str(), edits.len()), (want, count), "{line}");
                }
                (Err(got), Err(want)) => assert!(got.contains(want), "{line}: {got}"),
                (got, want) => panic!("{line}: {got:?}, not {want:?}"),
            }
        }
    }
}

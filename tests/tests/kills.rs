//! Twenty kills under sixteen writers, and some with damages. More of them: `cargo run -p karmada-tests --bin kills -- --kills 200`,
//! and `-- --damages 200`.

use karmada_tests::{
    damages::{self, Change, Damage, Place, Round, Step, Victims},
    fleet::Binaries,
    kills::{Plan, run},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills() {
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    match run(&Plan::default(), &binaries).await {
        Ok(Some(summary)) => println!("{summary}"),
        Ok(None) => {}
        Err(failure) => panic!("{failure}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_keeps_is_damaged_while_it_is_killed() {
    let round =
        |change, step, victims, damage, alone| Round { change, step, later: 0, victims, damage, alone };
    // The log begins with two slots of 4 KiB; here its first record is.
    let (log, first) = ("state.log", Place::Byte(8192 + 30));
    let flip = |file| Damage::Flip(file, Place::Part(500_000), 0x80);
    let rounds = vec![
        // Nothing but the kill: what was kept is good.
        round(Change::Make, Step::Kept, Victims::Agent, Damage::None, true),
        round(Change::Alter, Step::Applied, Victims::Both, Damage::Flip(log, first, 4), true),
        round(Change::Remove, Step::Told, Victims::Hub, Damage::Cut(log, first), false),
        // The credential: it is read from its copy, or nothing hangs on it.
        round(Change::Alter, Step::Reported, Victims::Agent, flip("karmada-kubeconfig"), true),
        round(Change::Alter, Step::Applied, Victims::Agent, flip("joined-by"), true),
        // As it was moments ago: the Lease need not tell that from the newest.
        round(Change::Make, Step::Reported, Victims::Agent, Damage::Exchange, true),
    ];
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    match damages::run(&damages::Plan { seed: 1, rounds }, &binaries).await {
        Ok(Some(summary)) => {
            println!("{summary}");
            assert!(summary.told >= 2 && summary.healed >= 3, "{summary}");
        }
        Ok(None) => {}
        Err(why) => panic!("{why}"),
    }
}

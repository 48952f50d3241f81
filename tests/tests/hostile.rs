//! A seed of attacks by one agent's credential, by strangers and by a user with narrow rights, and what others notice of
//! them. More of it: `cargo run -p karmada-tests --bin hostile -- --seed 7 --seconds 120`.

use std::time::Duration;

use karmada_tests::{
    fleet::Binaries,
    hostile::{Plan, run},
};

#[tokio::test]
async fn others_are_served_under_attack() {
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let span = Duration::from_secs(20);
    let plan = Plan { seed: 1, span, round: Duration::from_secs(3), agents: 6, large: 1, ..Plan::default() };
    match run(&plan, &binaries).await {
        Ok(summary) => println!("{summary}"),
        Err(failure) => panic!("{failure}"),
    }
}

//! Twenty kills under sixteen writers. More of them: `cargo run -p karmada-tests --bin kills -- --kills 200`.

use karmada_tests::{
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

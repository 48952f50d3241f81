//! The binaries that are measured.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// What Cargo tells a bench of its own package. Build scripts (ring's) run again when these change, and everything
/// above them is built anew.
const OF_THIS_PACKAGE: [&str; 5] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_PACKAGE"];

/// Builds hub, agent and stand-in as they are shipped. Answers where they are.
///
/// # Panics
/// When they do not build.
pub fn build() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_THIS_PACKAGE.iter().any(|part| name.starts_with(part))) {
            cargo.env_remove(name);
        }
    }
    let status = cargo
        .args(["build", "--release", "--manifest-path"])
        .arg(workspace.join("Cargo.toml"))
        .args(["-p", "karmada-hub", "-p", "karmada-agent", "-p", "karmada-tests"])
        .args(["--bin", "karmada-hub", "--bin", "karmada-agent", "--bin", "kubesim"])
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the binaries do not build");
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.join("target"), PathBuf::from)
        .join("release")
}

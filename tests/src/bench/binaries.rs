//! The binaries that are measured.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

/// What Cargo tells a bench of its own package. Build scripts (ring's) run again when these change, and everything
/// above them is built anew.
const OF_THIS_PACKAGE: [&str; 5] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_PACKAGE"];

/// What is built, how, and as which programs.
const BUILDS: [(&str, &[&str], &[&str]); 2] = [
    ("release", &["karmada-hub", "karmada-kubesim"], &["karmada-hub", "kubesim"]),
    ("edge", &["karmada-agent"], &["karmada-agent"]),
];

/// Builds hub, agent and stand-in as they are shipped. Answers in which folder they are.
///
/// # Panics
/// When they do not build.
pub fn build() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    let folder = target.join("shipped");
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for (profile, packages, programs) in BUILDS {
        run(&workspace, profile, packages, programs);
        for program in programs {
            put(&target.join(profile).join(program), &folder.join(program));
        }
    }
    folder
}

fn run(workspace: &Path, profile: &str, packages: &[&str], programs: &[&str]) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_THIS_PACKAGE.iter().any(|part| name.starts_with(part))) {
            cargo.env_remove(name);
        }
    }
    cargo.args(["build", "--profile", profile, "--manifest-path"]).arg(workspace.join("Cargo.toml"));
    cargo.args(packages.iter().flat_map(|package| ["-p", *package]));
    cargo.args(programs.iter().flat_map(|program| ["--bin", *program]));
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "{} do not build", programs.join(" and "));
}

/// Puts what was built beside the others. What was there is taken away first: it may be running, or be linked elsewhere.
fn put(built: &Path, there: &Path) {
    let copied = match fs::remove_file(there) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::copy(built, there).map(drop),
    };
    copied
        .unwrap_or_else(|error| panic!("{} is not copied to {}: {error}", built.display(), there.display()));
}

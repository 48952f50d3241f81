//! Flags of the agent's owner about new versions of the agent.

use std::path::{Path, PathBuf};

use karmada_core::upgrade::{Mode, Version, image_prefix, prefix};
use tokio_util::sync::CancellationToken;

use crate::{Folder, Installed, Programs, Upgrade};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "New versions of the agent")]
pub(super) struct UpgradeFlags {
    /// Whether the agent replaces itself by a version that the hub offers (karmada-hub upgrade agents): never (off), only
    /// in a maintenance window of the Cluster (windows), or whenever changes are not held back (on). An agent that is a Pod
    /// of a Deployment needs manifests/agent/upgrade.yaml; one that is a program on a machine needs --upgrade-from.
    #[arg(long, value_name = "WHEN", default_value = "off")]
    upgrade: Mode,
    /// The Deployment of which the agent is a Pod.
    #[arg(long, value_name = "NAME", default_value = "karmada-agent")]
    upgrade_deployment: String,
    /// The namespace of that Deployment. Without it: the namespace of the Pod, or that of
    /// --leader-elect-resource-namespace.
    #[arg(long, value_name = "NAME")]
    upgrade_namespace: Option<String>,
    /// For an agent that is a Pod: what images begin with that the hub may have it run, such as registry.example/karmada/ or a whole
    /// repository. Give the flag several times for several. Without it: the repository of the image that it runs. The hub may name any
    /// image there, also an old one.
    #[arg(long, value_name = "PREFIX")]
    upgrade_image_from: Vec<String>,
    /// For an agent that is no Pod: what addresses begin with from which it may fetch programs, such as
    /// https://releases.example/karmada/. It keeps them in a folder of --state-dir, and runs the newest that has proven itself in
    /// the stead of the installed one; also with --upgrade=off, which takes no others. Needs a supervisor that starts the agent again
    /// whenever it ends and however, as systemd does with Restart=always and without RestartPreventExitStatus. Nothing is signed: the
    /// hub may name any program there by its digest, also an old one.
    #[arg(long, value_name = "URL")]
    upgrade_from: Option<String>,
    /// The authorities of that server, as a PEM file, which is read when something is fetched. Without it: those of the system.
    #[arg(long, value_name = "FILE")]
    upgrade_ca: Option<PathBuf>,
    /// Take no version below this one, such as 0.6.0, whatever the hub offers, and do not go back to one because the hub asks for it.
    /// An agent whose new version does not work goes back all the same. Nothing is signed: if the hub names an old program as a new
    /// version, it is tried, and does not prove itself.
    #[arg(long, value_name = "VERSION")]
    upgrade_not_below: Option<Version>,
}

impl UpgradeFlags {
    /// Whether programs of the agent's folder may run in the stead of the installed one.
    pub(super) fn runs_slots(&self) -> bool {
        self.upgrade_from.is_some()
    }

    /// What they say together; nothing where the owner wants none. `namespace` is that of whoever names none.
    pub(super) fn check(
        self,
        in_pod: bool,
        state: Option<&Path>,
        namespace: impl FnOnce() -> String,
    ) -> Result<Option<Upgrade>, String> {
        for prefix in &self.upgrade_image_from {
            image_prefix(prefix).map_err(|why| format!("--upgrade-image-from: {prefix:?} {why}"))?;
        }
        if !self.upgrade_image_from.is_empty() && (self.upgrade == Mode::Off || !in_pod) {
            return Err("--upgrade-image-from is for an agent that is a Pod, with --upgrade=windows or \
                        --upgrade=on"
                .to_owned());
        }
        if self.upgrade == Mode::Off {
            let given = [
                ("--upgrade-namespace", self.upgrade_namespace.is_some()),
                ("--upgrade-not-below", self.upgrade_not_below.is_some()),
            ];
            if let Some((flag, _)) = given.iter().find(|(_, given)| *given) {
                return Err(format!("{flag} wants --upgrade=windows or --upgrade=on"));
            }
            if self.upgrade_from.is_none() {
                return match self.upgrade_ca {
                    Some(_) => Err("--upgrade-ca wants --upgrade-from".to_owned()),
                    None => Ok(None),
                };
            }
        }
        let installed = match (in_pod, self.upgrade_from) {
            (true, None) => Installed::Deployment(
                self.upgrade_namespace.unwrap_or_else(namespace),
                self.upgrade_deployment,
            ),
            (true, Some(_)) => {
                return Err("--upgrade-from is for an agent that is no Pod, with --kubeconfig".into());
            }
            (false, None) => {
                return Err(
                    "--upgrade wants an agent that is a Pod of the member, without --kubeconfig, or --upgrade-from".into()
                );
            }
            (false, Some(from)) => {
                prefix(&from).map_err(|why| format!("--upgrade-from: {from:?} {why}"))?;
                let state = state.ok_or("--upgrade-from wants --state-dir, where programs are kept")?;
                let programs = Programs::new(Folder::new(state), from);
                Installed::Program(Programs { authorities: self.upgrade_ca, ..programs })
            }
        };
        if self.upgrade == Mode::Off {
            return Ok(None);
        }
        Ok(Some(Upgrade {
            mode: self.upgrade,
            installed,
            images: self.upgrade_image_from,
            not_below: self.upgrade_not_below,
            aside: CancellationToken::new(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: UpgradeFlags,
    }

    fn check(line: &str, in_pod: bool) -> Result<Option<(Mode, String)>, String> {
        let words = std::iter::once("karmada-agent").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let state = (!in_pod).then_some(Path::new("/state"));
        let upgrade = line.flags.check(in_pod, state, || "own".to_owned())?;
        Ok(upgrade.map(|upgrade| {
            let installed = match upgrade.installed {
                Installed::Deployment(namespace, name) => format!("{namespace}/{name}"),
                Installed::Program(programs) => {
                    format!("{} in {}", programs.from, programs.folder.program("x").display())
                }
            };
            (upgrade.mode, installed)
        }))
    }

    #[test]
    fn there_is_none_unless_the_owner_says_so() {
        assert_eq!(check("", true), Ok(None));
        assert_eq!(check("--upgrade=off", false), Ok(None));
        // What runs stays, and nothing new is taken.
        assert_eq!(check("--upgrade-from=https://h.example/a/ --upgrade-ca=/a", false), Ok(None));
        // A file that is not there is no reason not to start.
        assert!(check("--upgrade=on --upgrade-from=https://h/ --upgrade-ca=/nowhere", false).is_ok());
        assert_eq!(check("--upgrade=on", true), Ok(Some((Mode::On, "own/karmada-agent".to_owned()))));
        let images = "--upgrade=on --upgrade-image-from=host/x/ --upgrade-image-from=host/y";
        assert!(check(images, true).is_ok());
        assert!(check("--upgrade=on --upgrade-not-below=v0.6.0", true).is_ok());
        let named = check("--upgrade=windows --upgrade-namespace=a --upgrade-deployment=b", true);
        assert_eq!(named, Ok(Some((Mode::Windows, "a/b".to_owned()))));
        let program = check("--upgrade=windows --upgrade-from=https://h.example/a/", false);
        assert_eq!(program, Ok(Some((Mode::Windows, "https://h.example/a/ in /state/slots/x".to_owned()))));
        for (line, in_pod, wrong) in [
            ("--upgrade-from=https://h.example/a", false, "does not end with a slash"),
            ("--upgrade-from=https://h.example/a/", true, "is for an agent that is no Pod"),
            ("--upgrade-ca=/a", false, "--upgrade-ca wants --upgrade-from"),
            ("--upgrade=on --upgrade-from=https://h.example/a/", true, "is for an agent that is no Pod"),
            ("--upgrade=on --upgrade-from=https://h.example/a", false, "does not end with a slash"),
            ("--upgrade=on --upgrade-from=http://h.example/", false, "does not begin with https://"),
            ("--upgrade=on --upgrade-image-from=host/x:1", true, "names a tag"),
            ("--upgrade-image-from=host/x/", true, "is for an agent that is a Pod, with --upgrade="),
            (
                "--upgrade=on --upgrade-from=https://h/ --upgrade-image-from=host/x/",
                false,
                "is for an agent that is a Pod",
            ),
            ("--upgrade=always", true, "none of off, windows and on"),
            ("--upgrade-namespace=a", true, "wants --upgrade="),
            ("--upgrade-not-below=0.6.0", true, "--upgrade-not-below wants --upgrade="),
            ("--upgrade=on --upgrade-not-below=0.6", true, "is no version like 0.6.0"),
            ("--upgrade=on", false, "without --kubeconfig"),
        ] {
            assert!(check(line, in_pod).unwrap_err().contains(wrong), "{line}");
        }
    }
}

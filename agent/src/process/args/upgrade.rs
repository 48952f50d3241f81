//! Flags of the agent's owner about new versions of the agent.

use karmada_core::upgrade::Mode;
use tokio_util::sync::CancellationToken;

use crate::Upgrade;

/// See the module.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "New versions of the agent")]
pub(super) struct UpgradeFlags {
    /// Whether the agent replaces itself by a version that the hub offers (karmada-hub upgrade agents): never (off), only
    /// in a maintenance window of the Cluster (windows), or whenever changes are not held back (on). The agent must be
    /// a Pod of a Deployment. Needs manifests/agent/upgrade.yaml.
    #[arg(long, value_name = "WHEN", default_value = "off")]
    upgrade: Mode,
    /// The Deployment of which the agent is a Pod.
    #[arg(long, value_name = "NAME", default_value = "karmada-agent")]
    upgrade_deployment: String,
    /// The namespace of that Deployment. Without it: the namespace of the Pod, or that of
    /// --leader-elect-resource-namespace.
    #[arg(long, value_name = "NAME")]
    upgrade_namespace: Option<String>,
}

impl UpgradeFlags {
    /// What they say together; nothing where the owner wants none. `namespace` is that of whoever names none.
    pub(super) fn check(
        self,
        in_pod: bool,
        namespace: impl FnOnce() -> String,
    ) -> Result<Option<Upgrade>, String> {
        if self.upgrade == Mode::Off {
            return match self.upgrade_namespace {
                Some(_) => Err("--upgrade-namespace wants --upgrade=windows or --upgrade=on".into()),
                None => Ok(None),
            };
        }
        if !in_pod {
            return Err("--upgrade wants an agent that is a Pod of the member, without --kubeconfig".into());
        }
        let namespace = self.upgrade_namespace.unwrap_or_else(namespace);
        Ok(Some(Upgrade {
            mode: self.upgrade,
            deployment: (namespace, self.upgrade_deployment),
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
        let upgrade = line.flags.check(in_pod, || "own".to_owned())?;
        Ok(upgrade
            .map(|upgrade| (upgrade.mode, format!("{}/{}", upgrade.deployment.0, upgrade.deployment.1))))
    }

    #[test]
    fn there_is_none_unless_the_owner_says_so() {
        assert_eq!(check("", true), Ok(None));
        assert_eq!(check("--upgrade=off", false), Ok(None));
        assert_eq!(check("--upgrade=on", true), Ok(Some((Mode::On, "own/karmada-agent".to_owned()))));
        let named = check("--upgrade=windows --upgrade-namespace=a --upgrade-deployment=b", true);
        assert_eq!(named, Ok(Some((Mode::Windows, "a/b".to_owned()))));
        for (line, in_pod, wrong) in [
            ("--upgrade=always", true, "none of off, windows and on"),
            ("--upgrade-namespace=a", true, "wants --upgrade="),
            ("--upgrade=on", false, "without --kubeconfig"),
        ] {
            assert!(check(line, in_pod).unwrap_err().contains(wrong), "{line}");
        }
    }
}

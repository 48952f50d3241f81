//! Flags about the link to the hub.

use std::time::Duration;

use karmada_core::{
    links::{Link, Terms},
    windows::Windows,
};
use karmada_meta::Quantity;

/// See the module.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The link to the hub")]
pub(super) struct LinkFlags {
    /// The kind of link to the hub: lan, cellular, satellite, or scheduled (up only at certain times, see
    /// --link-windows). It sets how often the agent gives a sign of life, how soon it notices a dead connection, how
    /// long it collects reports before it sends them, and how many bytes they may take. The hub shows the kind and
    /// waits accordingly. Without it: as for cellular.
    #[arg(long, value_name = "KIND")]
    link: Option<Link>,
    /// How many bytes of status reports and Events the agent sends in an hour, such as 256Ki. 0: no limit. Without it:
    /// as --link sets it.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    link_budget: Option<u64>,
    /// When a scheduled link is up, such as 'Mon-Fri 02:00-04:00 Europe/Berlin' (the format of maintenance windows). At
    /// other times the hub does not treat a silent cluster as lost. The flag counts only when the cluster registers.
    /// Later, change the annotation cluster.karmada.io/link-windows of the Cluster.
    #[arg(long, value_name = "WINDOWS", value_parser = windows)]
    link_windows: Option<String>,
    /// How long the agent's Lease on the hub is valid. The hub waits for a sign of life at least that long, up to its
    /// --cluster-max-lease-duration. Without it: 40s, or 10m with --link=satellite or --link=scheduled.
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    pub(super) cluster_lease_duration: Option<Duration>,
}

/// What they say together.
#[derive(Clone, Debug)]
pub(super) struct Linked {
    pub(super) link: Option<Link>,
    pub(super) terms: Terms,
    pub(super) windows: Option<String>,
}

impl LinkFlags {
    pub(super) fn check(self) -> Result<Linked, String> {
        let scheduled = self.link == Some(Link::Scheduled);
        if self.link_windows.is_some() && !scheduled {
            return Err("--link-windows wants --link=scheduled".into());
        }
        let mut terms = self.link.unwrap_or_default().terms();
        if let Some(lease) = self.cluster_lease_duration {
            terms.lease = lease;
        }
        if let Some(bytes) = self.link_budget {
            terms.reports = Some(bytes).filter(|bytes| *bytes > 0);
        }
        Ok(Linked { link: self.link, terms, windows: self.link_windows })
    }
}

/// The smallest budget that reports get along with.
const LEAST: u64 = 16 << 10;

pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let quantity = text.parse::<Quantity>().map_err(|error| format!("{text:?}: {error}"))?;
    let bytes = u64::try_from(quantity.value()).map_err(|_| format!("{text:?} is no number of bytes"))?;
    match bytes {
        0 | LEAST.. => Ok(bytes),
        _ => Err(format!("must be 0 or at least {}Ki: one status of a Work may take that", LEAST >> 10)),
    }
}

fn windows(text: &str) -> Result<String, String> {
    Windows::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        link: LinkFlags,
    }

    fn read(line: &str) -> Result<Linked, String> {
        let words = std::iter::once("agent").chain(line.split_terminator('|'));
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.link.check()
    }

    #[test]
    fn a_link_sets_what_is_not_said() {
        let seconds = Duration::from_secs;
        for (line, lease, reports) in [
            ("", 40, None),
            ("--link=lan", 40, None),
            ("--link=satellite", 600, Some(256 << 10)),
            ("--link=satellite|--cluster-lease-duration=5m|--link-budget=1Mi", 300, Some(1 << 20)),
            ("--link=scheduled|--link-windows=02:00-04:00|--link-budget=0", 600, None),
        ] {
            let Linked { terms, .. } = read(line).unwrap();
            assert_eq!((terms.lease, terms.reports), (seconds(lease), reports), "{line}");
        }
        assert_eq!(read("").unwrap().link, None);
        for (line, why) in [
            ("--link=modem", "is no kind of link"),
            ("--link=lan|--link-windows=02:00-04:00", "wants --link=scheduled"),
            ("--link=scheduled|--link-windows=at night", "wanted are windows like"),
            ("--link-budget=1Ki", "at least 16Ki"),
            ("--link-budget=much", "--link-budget"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}

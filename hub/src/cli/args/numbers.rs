//! Numbers that a hub can work with.

use std::time::Duration;

use karmada_meta::{duration, quantity::Quantity};

/// Streams that an agent has open for long on its one connection (Works, its Cluster, two sorts of users' rules), and as
/// many again for what passes: renewals of its Lease must not wait for a watch to end.
pub(super) const AGENT_STREAMS: u32 = 8;

/// A request on a slow link takes some round trips, each of them up to half a second.
pub(super) const SHORTEST_REQUEST: Duration = Duration::from_secs(2);

/// A time that passes: what is done so often, or ends after it, would otherwise never rest or always fail.
pub(in super::super) fn positive(text: &str) -> Result<Duration, String> {
    let length = duration::parse(text)?;
    if length.is_zero() {
        Err(format!("{text} is no time at all; more than 0 is needed"))
    } else {
        Ok(length)
    }
}

/// So many per second: 0 and more, or inf.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if rate >= 0.0 { Ok(rate) } else { Err(format!("{text} is not 0, more than that, or inf")) }
}

/// A part of something: 0 to 1.
pub(super) fn part(text: &str) -> Result<f64, String> {
    let part: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.0..=1.0).contains(&part) { Ok(part) } else { Err(format!("{text} is not between 0 and 1")) }
}

/// So many bytes, as Kubernetes writes them.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let example = "write it as 2Gi, 500Mi, or in plain bytes";
    let quantity =
        Quantity::parse(text).map_err(|_| format!("{text:?} is not a number of bytes; {example}"))?;
    let bytes = quantity.value();
    if Quantity::from_value(bytes) != quantity || bytes == i64::MAX {
        return Err(format!("{text} is not a whole number of bytes, or too many; {example}"));
    }
    u64::try_from(bytes).map_err(|_| format!("{text} must not be negative; {example}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Args, Command};

    #[test]
    fn bytes_are_written_as_in_kubernetes() {
        let both = |text: &str| {
            let flags = [format!("--storage-quota={text}"), format!("--agent-storage-quota={text}")];
            let args = ["karmada-hub", "serve", "--data-dir=d"].map(str::to_owned).into_iter().chain(flags);
            match Args::try_parse_from(args).map(|args| args.command) {
                Ok(Command::Serve(args)) => Ok((args.limits.storage_quota, args.limits.agent_storage_quota)),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.to_string()),
            }
        };
        let read = [
            ("2Gi", 2 << 30),
            ("500Mi", 500 << 20),
            ("1G", 1_000_000_000),
            ("0", 0),
            ("2147483648", 2 << 30),
        ];
        for (text, bytes) in read {
            assert_eq!(both(text), Ok((Some(bytes), Some(bytes))), "{text}");
        }
        for (text, why) in [
            ("2gb", "\"2gb\" is not a number of bytes; write it as 2Gi"),
            ("2 Gi", "is not a number of bytes"),
            ("lots", "is not a number of bytes"),
            ("-1Gi", "-1Gi must not be negative"),
            ("0.5", "0.5 is not a whole number"),
            ("99E", "too many"),
        ] {
            let told = both(text).expect_err(text);
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn serve_refuses_numbers_without_sense() {
        let serve = |flag: &str| {
            let args = Args::try_parse_from(["karmada-hub", "serve", "--data-dir=d", flag]);
            match args.map(|args| args.command) {
                Ok(Command::Serve(args)) => Ok(args),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.to_string()),
            }
        };
        let refused = [
            ("--resource-eviction-rate=-1", "-1 is not 0, more than that, or inf"),
            ("--resource-eviction-rate=NaN", "NaN is not 0"),
            ("--resource-eviction-rate=-inf", "-inf is not 0"),
            ("--resource-eviction-rate=fast", "is not a number"),
            ("--eviction-brake-share=NaN", "not between 0 and 1"),
            ("--eviction-brake-share=-0.1", "not between 0 and 1"),
            ("--eviction-brake-clusters=-1", "invalid"),
            ("--cluster-monitor-period=0s", "0s is no time at all"),
            ("--cluster-monitor-period=-5s", "is not a duration"),
            ("--cluster-monitor-grace-period=0", "0 is no time at all"),
            ("--cluster-flap-window=0s", "0s is no time at all"),
            ("--request-timeout=0s", "0s is no time at all"),
            ("--min-request-timeout=0s", "0s is no time at all"),
            ("--http2-max-streams-per-connection=0", "0 is not in 1.."),
            ("--eviction-brake-timeout=10000000000h", "is longer than"),
        ];
        for (flag, want) in refused {
            let error = serve(flag).map(drop).unwrap_err();
            let name = flag.split('=').next().unwrap();
            assert!(error.contains(want) && error.contains(name), "{flag}: {error}");
        }
        for (flag, want) in [("0", 0.0), ("0.5", 0.5), ("inf", f64::INFINITY)] {
            let args = serve(&format!("--resource-eviction-rate={flag}")).unwrap();
            assert_eq!(
                args.failover.resource_eviction_rate.total_cmp(&want),
                std::cmp::Ordering::Equal,
                "{flag}"
            );
        }
        for flag in
            ["--failover-eviction-timeout=0s", "--event-ttl=0", "--max-connections=0", "--fence-skew=0s"]
        {
            assert!(serve(flag).is_ok(), "{flag}");
        }
    }
}

//! Settings of one hub that do not go together: refused at the start, by the flags' names.
//!
//! Those of a hub and an agent meet when the hub sees the agent's Lease: [`grace`](super::grace) names them. What needs no
//! rule: a startup grace below the grace (silence counts from when the hub sees again), a most grace below it (nothing is
//! learnt), a most lease below it (nothing is raised), rates and budgets of evictions (the smaller one counts).
//!
#![doc = include_str!("pairs.md")]

use karmada_meta::duration::format;

use super::Settings;

/// The first two settings that do not go together.
///
/// # Errors
/// One line: the flag, its value, what it must be, and why.
pub fn check(settings: &Settings) -> Result<(), String> {
    let Settings { health, flaps, brake, .. } = settings;
    let grace = format(health.grace);
    if 2 * health.period > health.grace {
        return Err(format!(
            "--cluster-monitor-period {}: must be at most half of --cluster-monitor-grace-period ({grace}): a hub that was \
             late by two periods notices, and one that was late by a grace has to",
            format(health.period)
        ));
    }
    if flaps.losses > 0 && flaps.first > flaps.most {
        return Err(format!(
            "--cluster-flap-hold {}: must be at most --cluster-flap-max-hold ({})",
            format(flaps.first),
            format(flaps.most)
        ));
    }
    // Between two losses of a cluster there is a grace.
    let between = u32::try_from(flaps.losses).unwrap_or(u32::MAX).saturating_sub(1);
    if health.grace.saturating_mul(between) >= flaps.window && flaps.losses > 1 {
        return Err(format!(
            "--cluster-flap-window {}: --cluster-flap-losses {} cannot come within it, since each takes \
             --cluster-monitor-grace-period ({grace})",
            format(flaps.window),
            flaps.losses
        ));
    }
    if !brake.timeout.is_zero() && brake.timeout < health.grace {
        return Err(format!(
            "--eviction-brake-timeout {}: must be 0 or at least --cluster-monitor-grace-period ({grace}), or the brake is off \
             before the first cluster counts as lost",
            format(brake.timeout)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use karmada_meta::duration::parse;

    use super::*;
    use crate::judge::table;

    /// The settings that `flag value` pairs, with commas, make of the defaults.
    fn read(text: &str) -> Settings {
        let mut settings = Settings::default();
        for pair in text.split(',').map(str::trim) {
            let (flag, value) = pair.split_once(' ').unwrap();
            let length = || parse(value).unwrap();
            match flag {
                "cluster-monitor-period" => settings.health.period = length(),
                "cluster-monitor-grace-period" => settings.health.grace = length(),
                "cluster-startup-grace-period" => settings.health.startup_grace = length(),
                "cluster-monitor-max-grace-period" => settings.most_grace = length(),
                "cluster-max-lease-duration" => settings.most_lease = length(),
                "cluster-flap-losses" => settings.flaps.losses = value.parse().unwrap(),
                "cluster-flap-window" => settings.flaps.window = length(),
                "cluster-flap-hold" => settings.flaps.first = length(),
                "cluster-flap-max-hold" => settings.flaps.most = length(),
                "eviction-brake-timeout" => settings.brake.timeout = length(),
                other => panic!("{other}"),
            }
        }
        settings
    }

    #[test]
    fn the_table_holds() {
        assert_eq!(check(&Settings::default()), Ok(()));
        for [settings, refused] in table::rows(include_str!("pairs.md")) {
            let got = check(&read(settings));
            let flag = got.as_ref().err().and_then(|why| why.strip_prefix("--")?.split(' ').next());
            assert_eq!(flag.unwrap_or("-"), refused, "{settings}: {got:?}");
            let lines = got.err().map_or(1, |why| why.lines().count());
            assert_eq!(lines, 1, "{settings}");
        }
    }
}

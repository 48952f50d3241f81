//! What people ask for: the waves, and the gate between them.
//!
//! ```text
//!   policy.karmada.io/rollout:      tier=pilot soak=1h; 10% soak=30m approve; 100% maxConcurrency=50
//!                                   └labels──┘└options┘ └share of all clusters, those before included
//!   policy.karmada.io/rollout-gate: maxFailures=2% minHealthy=3 deadline=30m silentAfterChange=5% onBreach=Return
//! ```

use std::time::Duration;

use karmada_api::consts::extension::{ROLLOUT, ROLLOUT_GATE};
use karmada_meta::{
    duration,
    labels::Selector,
    path::{FieldError, Path},
};

/// More waves than this are a mistake.
const MOST: usize = 16;
/// So is a text of more bytes.
const LONGEST: usize = 1024;
/// And a wait that is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a wave is looked at that does not say.
const SOAK: Duration = Duration::from_secs(300);
/// How long a cluster has until it counts as failed, unless the gate says.
const DEADLINE: Duration = Duration::from_secs(600);

/// A share in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// Everything.
    pub const ALL: Self = Self(10_000);

    fn parse(text: &str) -> Option<Self> {
        let number = text.strip_suffix('%')?;
        let (whole, rest) = number.split_once('.').unwrap_or((number, ""));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || whole.len() > 3 || rest.len() > 2 || !digits(whole) || !digits(rest) {
            return None;
        }
        let hundredths: u32 = format!("{rest:0<2}").parse().ok()?;
        let share = whole.parse::<u32>().ok()? * 100 + hundredths;
        (share <= Self::ALL.0).then_some(Self(share))
    }

    /// This share of so many, rounded up.
    pub fn up(self, of: usize) -> usize {
        (of as u128 * u128::from(self.0)).div_ceil(u128::from(Self::ALL.0)) as usize
    }

    /// This share of so many, rounded down.
    pub fn down(self, of: usize) -> usize {
        (of as u128 * u128::from(self.0) / u128::from(Self::ALL.0)) as usize
    }

    /// As a part of one.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }
}

/// How many clusters of some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// So many.
    Count(usize),
    /// Such a share.
    Share(Share),
}

impl Allowed {
    /// How many of so many.
    pub fn of(self, heard: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Share(share) => share.down(heard),
        }
    }
}

/// Which clusters a wave takes, of those that no earlier one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Those with these labels.
    Labels(String),
    /// As many as it takes until this share of all has it.
    Share(Share),
}

/// A wave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave {
    /// As people wrote it.
    pub name: String,
    /// Which clusters it takes.
    pub who: Who,
    /// How long it is looked at when it is well.
    pub soak: Duration,
    /// Whether somebody has to let it begin.
    pub approve: bool,
    /// How many of its clusters may be changing at once; all if nothing is said.
    pub max_concurrency: Option<usize>,
}

/// When a wave may be followed by the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// How many of the clusters that were heard since they were given the change may be not well.
    pub max_failures: Allowed,
    /// How many of a wave must be well, of a smaller wave all; or which share of those that were heard, and at least one.
    pub min_healthy: Allowed,
    /// How long a cluster has from its first report about the change, and how long until that report.
    pub deadline: Duration,
    /// Which share of changed clusters may fall silent after it, beyond the share of the others that does.
    pub silent_after_change: Share,
    /// Whether the clusters go back by themselves when it is broken. Otherwise no more are changed.
    pub returns: bool,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            max_failures: Allowed::Count(0),
            min_healthy: Allowed::Share(Share(5000)),
            deadline: DEADLINE,
            silent_after_change: Share(500),
            returns: false,
        }
    }
}

/// What the annotations ask for together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// In their order; the last one takes whatever is left.
    pub waves: Vec<Wave>,
    /// Between them.
    pub gate: Gate,
}

impl Asked {
    /// Reads waves and a gate that stand in no annotations.
    ///
    /// # Errors
    /// What is wrong, and what to write.
    pub fn parse(waves: &str, gate: &str) -> Result<Self, String> {
        let waves = self::waves(waves).map_err(|why| {
            format!("waves: {why}; write waves like \"tier=pilot soak=1h; 10% soak=30m; 100%\"")
        })?;
        let gate = self::gate(gate).map_err(|why| {
            format!(
                "gate: {why}; write settings like \"maxFailures=2% minHealthy=3 deadline=30m onBreach=Pause\""
            )
        })?;
        Ok(Self { waves, gate })
    }

    /// Reads what annotations ask for; nothing where they ask for no waves.
    ///
    /// # Errors
    /// The annotation that cannot be read, and what to write instead.
    pub fn read<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Result<Option<Self>, FieldError> {
        let (waves, gate) = (annotation(ROLLOUT), annotation(ROLLOUT_GATE));
        let path = |key: &str| Path::new("metadata").child("annotations").key(key);
        let waves = waves.map(|text| {
            self::waves(text).map_err(|why| {
                let why = format!("{why}; write waves like \"tier=pilot soak=1h; 10% soak=30m; 100%\"");
                FieldError::invalid(&path(ROLLOUT), text, why)
            })
        });
        let gate = gate.map(|text| {
            self::gate(text).map_err(|why| {
                let why = format!(
                    "{why}; write settings like \"maxFailures=2% minHealthy=3 deadline=30m silentAfterChange=5% \
                     onBreach=Pause\""
                );
                FieldError::invalid(&path(ROLLOUT_GATE), text, why)
            })
        });
        match (waves.transpose()?, gate.transpose()?) {
            (Some(waves), gate) => Ok(Some(Self { waves, gate: gate.unwrap_or_default() })),
            (None, _) => Ok(None),
        }
    }
}

fn waves(text: &str) -> Result<Vec<Wave>, String> {
    if text.len() > LONGEST {
        return Err(format!("{} bytes are more than {LONGEST}", text.len()));
    }
    let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    let waves = parts.map(wave).collect::<Result<Vec<_>, _>>()?;
    if waves.len() > MOST {
        return Err(format!("{} waves are more than {MOST}", waves.len()));
    }
    let mut before = Share(0);
    for wave in &waves {
        let Who::Share(share) = wave.who else { continue };
        if share <= before {
            return Err(format!(
                "the wave {} is not more than those before it: shares are of all clusters, earlier waves included",
                wave.name
            ));
        }
        before = share;
    }
    match waves.last() {
        None => Err("there is no wave".to_owned()),
        Some(Wave { who: Who::Share(Share::ALL), .. }) => Ok(waves),
        Some(_) => Err("the last wave must be 100%".to_owned()),
    }
}

fn wave(text: &str) -> Result<Wave, String> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let (mut soak, mut approve, mut max_concurrency) = (None, false, None);
    while let Some(word) = words.last() {
        if let Some(length) = word.strip_prefix("soak=") {
            soak = Some(wait("soak", length)?);
        } else if *word == "approve" {
            approve = true;
        } else if let Some(count) = word.strip_prefix("maxConcurrency=") {
            max_concurrency =
                Some(count.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
                    format!("maxConcurrency: {count:?} is no number of clusters from 1 on")
                })?);
        } else {
            break;
        }
        words.pop();
    }
    let name = words.join(" ");
    let who = match Share::parse(&name) {
        Some(Share(0)) => return Err(format!("{name} of the clusters are none")),
        Some(share) => Who::Share(share),
        None if name.is_empty() => return Err(format!("{text:?} does not say which clusters")),
        None if name.contains('%') => return Err(format!("{name:?} is no share like 10% or 0.5%")),
        None => {
            Selector::parse(&name)
                .map_err(|why| format!("{name:?} is neither a share nor a label selector: {why}"))?;
            Who::Labels(name.clone())
        }
    };
    Ok(Wave { name, who, soak: soak.unwrap_or(SOAK), approve, max_concurrency })
}

fn wait(what: &str, text: &str) -> Result<Duration, String> {
    let length = duration::parse(text).map_err(|why| format!("{what}: {why}"))?;
    match length <= LONGEST_WAIT {
        true => Ok(length),
        false => Err(format!("{what}: {text} is longer than {}", duration::format(LONGEST_WAIT))),
    }
}

fn gate(text: &str) -> Result<Gate, String> {
    if text.len() > LONGEST {
        return Err(format!("{} bytes are more than {LONGEST}", text.len()));
    }
    let mut gate = Gate::default();
    for word in text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{word:?} has no value"))?;
        let wrong = || format!("{value:?} is no {name}");
        match name {
            "maxFailures" if value.ends_with('%') => {
                gate.max_failures = Allowed::Share(Share::parse(value).ok_or_else(wrong)?);
            }
            "maxFailures" => gate.max_failures = Allowed::Count(value.parse().map_err(|_| wrong())?),
            "minHealthy" if value.ends_with('%') => {
                gate.min_healthy = Allowed::Share(Share::parse(value).ok_or_else(wrong)?);
            }
            "minHealthy" => gate.min_healthy = Allowed::Count(value.parse().map_err(|_| wrong())?),
            "deadline" => gate.deadline = wait("deadline", value)?,
            "silentAfterChange" => gate.silent_after_change = Share::parse(value).ok_or_else(wrong)?,
            "onBreach" => {
                gate.returns = match value {
                    "Pause" => false,
                    "Return" => true,
                    _ => return Err(format!("onBreach is Pause or Return, not {value:?}")),
                };
            }
            _ => return Err(format!("there is no setting {name:?}")),
        }
    }
    Ok(gate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(waves: &str, gate: Option<&str>) -> Result<Option<Asked>, String> {
        let annotation = |key: &str| if key == ROLLOUT { Some(waves) } else { gate };
        Asked::read(annotation).map_err(|error| error.to_string())
    }

    #[test]
    fn waves_and_gates_are_read() {
        let asked = read(
            "tier in (pilot, lab),!busy soak=1h; 0.5%; 10% approve soak=0;100% maxConcurrency=50",
            Some("maxFailures=2%, minHealthy=3 deadline=30m silentAfterChange=10% onBreach=Return"),
        );
        let asked = asked.unwrap().unwrap();
        let wave = |name: &str, who, soak, approve| Wave {
            name: name.to_owned(),
            who,
            soak: Duration::from_secs(soak),
            approve,
            max_concurrency: (name == "100%").then_some(50),
        };
        let labels = "tier in (pilot, lab),!busy";
        assert_eq!(
            asked.waves,
            [
                wave(labels, Who::Labels(labels.to_owned()), 3600, false),
                wave("0.5%", Who::Share(Share(50)), 300, false),
                wave("10%", Who::Share(Share(1000)), 0, true),
                wave("100%", Who::Share(Share::ALL), 300, false),
            ]
        );
        let gate = Gate {
            max_failures: Allowed::Share(Share(200)),
            min_healthy: Allowed::Count(3),
            deadline: Duration::from_secs(1800),
            silent_after_change: Share(1000),
            returns: true,
        };
        assert_eq!(asked.gate, gate);
        assert_eq!(read("100%", None).unwrap().unwrap().gate, Gate::default());
        let share = read("100%", Some("minHealthy=90%")).unwrap().unwrap().gate.min_healthy;
        assert_eq!(share, Allowed::Share(Share(9000)));
        assert_eq!(Asked::read(|_| None), Ok(None));
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_what_to_write() {
        let rows = [
            ("", None, "there is no wave"),
            ("10%", None, "the last wave must be 100%"),
            ("tier=pilot", None, "the last wave must be 100%"),
            ("100%; tier=pilot", None, "the last wave must be 100%"),
            ("50%; 10%; 100%", None, "the wave 10% is not more than those before it"),
            ("0%; 100%", None, "0% of the clusters are none"),
            ("101%; 100%", None, "\"101%\" is no share"),
            ("1.234%; 100%", None, "\"1.234%\" is no share"),
            ("soak=1h; 100%", None, "does not say which clusters"),
            ("10% soak=long; 100%", None, "soak: \"long\" is not a duration"),
            ("10% soak=9000h; 100%", None, "soak: 9000h is longer than 720h0m0s"),
            ("a=b=c; 100%", None, "is neither a share nor a label selector"),
            ("10% wait=1h; 100%", None, "is no share"),
            ("100% maxConcurrency=0", None, "maxConcurrency: \"0\" is no number of clusters from 1 on"),
            ("100% maxConcurrency=10%", None, "maxConcurrency: \"10%\" is no number"),
            ("100%", Some("maxFailures"), "\"maxFailures\" has no value"),
            ("100%", Some("maxFailures=some"), "\"some\" is no maxFailures"),
            ("100%", Some("maxFailure=1"), "there is no setting \"maxFailure\""),
            ("100%", Some("minHealthy=most"), "\"most\" is no minHealthy"),
            ("100%", Some("onBreach=Stop"), "onBreach is Pause or Return, not \"Stop\""),
        ];
        for (waves, gate, want) in rows {
            let error = read(waves, gate).unwrap_err();
            assert!(error.contains(want), "{waves:?} {gate:?}: {error}");
            assert!(error.contains("; write "), "{error}");
        }
        assert!(read(&"a; ".repeat(MOST), None).is_err());
        assert!(read(&format!("{}100%", " ".repeat(LONGEST)), None).is_err());
    }

    #[test]
    fn shares_are_exact() {
        let rows =
            [("10%", 5, 1, 0), ("10%", 10, 1, 1), ("0.5%", 1000, 5, 5), ("33%", 10, 4, 3), ("100%", 7, 7, 7)];
        for (text, of, up, down) in rows {
            let share = Share::parse(text).unwrap();
            assert_eq!((share.up(of), share.down(of)), (up, down), "{text} of {of}");
        }
    }
}

//! What a person asks for, as it stands in the data of the ConfigMap.

use karmada_meta::time::Time;

use super::{Program, Version};
use crate::rollout::Asked;

/// The version.
pub const VERSION: &str = "version";
/// When it was asked for.
pub const REQUESTED: &str = "requested";
/// The image.
pub const IMAGE: &str = "image";
/// The programs, for agents that are no Pods.
pub const PROGRAMS: &str = "programs";
/// The waves.
pub const WAVES: &str = "waves";
/// The gate between them.
pub const GATE: &str = "gate";
/// `true`: agents that are newer get an older version.
pub const DOWNGRADE: &str = "downgrade";
/// By the hub: how far it is.
pub const STATUS: &str = "status";
/// By the hub: how many clusters are at which stage, as JSON.
pub const COUNTS: &str = "counts";

/// The waves of whoever names none.
pub const WAVES_DEFAULT: &str = "1%; 10%; 50%; 100%";
/// What holds of a gate that does not say otherwise: a trial has its time, and what is fetched for it.
const GATE_DEFAULT: &str = "deadline=45m";

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The version.
    pub version: Version,
    /// When it was asked for.
    pub requested: Time,
    /// The image, if it is named.
    pub image: String,
    /// The programs for agents that are no Pods; without them these do not get it.
    pub programs: Vec<Program>,
    /// In which waves.
    pub asked: Asked,
    /// Newer agents get it, too.
    pub downgrade: bool,
}

impl Request {
    /// Reads what `data` says under its keys.
    ///
    /// # Errors
    /// Which of them cannot be read, and what to write.
    pub fn read<'a>(data: impl Fn(&str) -> Option<&'a str>) -> Result<Self, String> {
        let wanted = |key: &str| data(key).ok_or_else(|| format!("{key} is missing"));
        let version = wanted(VERSION)?.parse::<Version>().map_err(|error| format!("{VERSION}: {error}"))?;
        let requested = wanted(REQUESTED)?;
        let requested = requested.parse::<Time>().map_err(|error| format!("{REQUESTED}: {error}"))?;
        let image = data(IMAGE).unwrap_or_default().trim();
        image_fits(image).map_err(|why| format!("{IMAGE}: {why}"))?;
        let programs = Program::read_all(data(PROGRAMS).unwrap_or_default())
            .map_err(|why| format!("{PROGRAMS}: {why}"))?;
        let gate = format!("{GATE_DEFAULT} {}", data(GATE).unwrap_or_default());
        let asked = Asked::parse(data(WAVES).unwrap_or(WAVES_DEFAULT), &gate)?;
        let downgrade = match data(DOWNGRADE) {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => return Err(format!("{DOWNGRADE}: {other:?} is neither true nor false")),
        };
        Ok(Self { version, requested, image: image.to_owned(), programs, asked, downgrade })
    }
}

/// Whether this may be the name of an image.
fn image_fits(image: &str) -> Result<(), String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"./:@_-[]".contains(&b);
    match image.len() <= 512 && image.bytes().all(fits) {
        true => Ok(()),
        false => Err(format!("{:?} is no image", image.chars().take(64).collect::<String>())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rows: &[(&str, &str)]) -> Result<Request, String> {
        Request::read(|key| rows.iter().find(|(known, _)| *known == key).map(|(_, text)| *text))
    }

    const BEGUN: (&str, &str) = (REQUESTED, "2026-11-26T01:00:00Z");

    #[test]
    fn a_request_has_waves_and_a_gate_of_its_own() {
        let request = read(&[(VERSION, "v0.6.0"), BEGUN]).unwrap();
        assert_eq!((request.version.to_string().as_str(), request.asked.waves.len()), ("0.6.0", 4));
        assert_eq!(request.asked.gate.deadline.as_secs(), 45 * 60);
        let request = read(&[
            (VERSION, "0.6.0"),
            BEGUN,
            (WAVES, "tier=lab; 100%"),
            (GATE, "deadline=2h"),
            (IMAGE, "[::1]:5000/x/karmada-agent:0.6.0@sha256:00"),
            (DOWNGRADE, "true"),
        ]);
        let request = request.unwrap();
        assert_eq!((request.asked.waves.len(), request.asked.gate.deadline.as_secs()), (2, 7200));
        assert!(request.downgrade && request.image.starts_with("[::1]:5000/"));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let rows: [(&[(&str, &str)], &str); 8] = [
            (&[BEGUN], "version is missing"),
            (&[(VERSION, "0.6.0")], "requested is missing"),
            (&[(VERSION, "new"), BEGUN], "version: \"new\" is no version"),
            (&[(VERSION, "0.6.0"), BEGUN, (WAVES, "10%")], "waves: the last wave must be 100%"),
            (&[(VERSION, "0.6.0"), BEGUN, (GATE, "soon")], "gate: \"soon\" has no value"),
            (&[(VERSION, "0.6.0"), BEGUN, (IMAGE, "a b")], "image: \"a b\" is no image"),
            (&[(VERSION, "0.6.0"), BEGUN, (PROGRAMS, "x86_64")], "programs: \"x86_64\" names no kind"),
            (&[(VERSION, "0.6.0"), BEGUN, (DOWNGRADE, "yes")], "downgrade: \"yes\" is neither"),
        ];
        for (data, want) in rows {
            let error = read(data).unwrap_err();
            assert!(error.starts_with(want), "{error}\n  wanted {want}");
        }
    }
}

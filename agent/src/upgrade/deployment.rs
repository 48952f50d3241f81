//! The agent's own Deployment: another image, what was there before beside, and the way back.
//!
//! For a trial the Deployment gets the new image and a way of rolling it out in which the old Pod stays until the new one has been ready
//! for longer than any trial. Ending the trial puts that back as it was: then the Deployment's controller takes one of the two away,
//! the old Pod or the new one. Whatever is written goes under the resourceVersion that was read, so that nobody is written over.

use karmada_api::consts::extension::AGENT_TRIAL;
use karmada_client::{Error, Patch, Resource, Rest};
use karmada_core::upgrade::{
    Offer, Version, Way, image_is_from, repository,
    trial::{Ended, Trial},
};
use karmada_meta::{object, time::Time};
use serde_json::{Map, Value, json};

use super::trouble::Trouble;

/// For how long the old Pod stays beside a ready one, in seconds: a week is longer than links are down.
const BESIDE: i64 = 7 * 24 * 3600;
/// The container, where there are several.
const CONTAINER: &str = "karmada-agent";
/// The fields of a Deployment's spec that a trial changes.
const CHANGED: [&str; 3] = ["strategy", "minReadySeconds", "progressDeadlineSeconds"];
/// Who writes.
const MANAGER: &str = "karmada-agent-upgrade";

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Deployment {
    member: Rest,
    path: String,
    name: String,
    /// What images begin with that it may be given; nothing for the repository of its present one.
    images: Vec<String>,
}

impl Deployment {
    /// How an agent is installed that is a Pod of one.
    pub(crate) const WAY: Way = Way::Deployment;

    pub(crate) fn new(member: Rest, (namespace, name): (String, String)) -> Self {
        let resource = Resource::new("apps", "v1", "deployments", "Deployment", true);
        let path = resource.object(Some(&namespace), &name);
        Self { member, path, name: format!("{namespace}/{name}"), images: Vec::new() }
    }

    /// With what images begin with that it may be given.
    pub(crate) fn with_images(self, images: Vec<String>) -> Self {
        Self { images, ..self }
    }

    /// As it is now.
    pub(crate) async fn read(&self) -> Result<Value, Trouble> {
        self.member.small().get(&self.path).await.map_err(|error| self.trouble(error))
    }

    fn trouble(&self, error: Error) -> Trouble {
        let name = &self.name;
        if error.is_not_found() {
            return Trouble::Lasting(format!(
                "there is no Deployment {name} of which this agent is a Pod: name it by --upgrade-deployment"
            ));
        }
        if error.is_forbidden() {
            return Trouble::Lasting(format!(
                "the agent may not change the image of its Deployment {name}: manifests/agent/upgrade.yaml has the Role ({error})"
            ));
        }
        if error.is_invalid() {
            return Trouble::Lasting(format!("the member refuses to change the Deployment {name}: {error}"));
        }
        Trouble::Passing(error)
    }

    /// Begins a trial.
    pub(crate) async fn begin(
        &self,
        live: &Value,
        offer: &Offer,
        version: &Version,
        now: Time,
    ) -> Result<Trial, Trouble> {
        if live["spec"]["paused"] == true {
            return Err(Trouble::Lasting(format!("the Deployment {} is paused", self.name)));
        }
        if trial(live).is_some_and(|trial| trial.is_open()) || live["spec"]["minReadySeconds"] == BESIDE {
            return Err(Trouble::Lasting(format!(
                "the Deployment {} stands as for a trial (minReadySeconds {BESIDE}), so what ran before would be forgotten: let \
                 that trial end, or put strategy, minReadySeconds and progressDeadlineSeconds back",
                self.name
            )));
        }
        let (_, old) = image(live)?;
        let new = wanted_image(old, offer).map_err(Trouble::Lasting)?;
        image_is_from(&new, old, &self.images).map_err(Trouble::Lasting)?;
        let kept: Map<String, Value> =
            CHANGED.iter().map(|field| ((*field).to_owned(), live["spec"][*field].clone())).collect();
        let trial = Trial {
            kept: kept.into(),
            generation: Some(object::generation(live)).filter(|known| *known > 0).map(|before| before + 1),
            ..Trial::of(offer, version, old, &new, now)
        };
        let written = self.write(live, &trial, beside(), Some(&new)).await?;
        if let Some(why) = replaced(&written, &trial)? {
            // What runs now is not what was offered, and nobody would go back from it.
            self.go_back(&written, trial, why.clone()).await?;
            return Err(Trouble::Lasting(why));
        }
        Ok(trial)
    }

    /// Keeps what is known of a trial.
    pub(crate) async fn keep(&self, live: &Value, trial: &Trial) -> Result<(), Trouble> {
        self.write(live, trial, json!({}), None).await.map(drop)
    }

    /// Puts back the old image.
    pub(crate) async fn go_back(
        &self,
        live: &Value,
        mut trial: Trial,
        why: String,
    ) -> Result<Trial, Trouble> {
        trial.end(Ended::Returned, why);
        let old = trial.old.clone();
        self.settle(live, &trial, Some(&old)).await?;
        Ok(trial)
    }

    /// Writes how a trial has ended, and puts back what was changed for it but the image, where nobody else has changed it since.
    pub(crate) async fn settle(
        &self,
        live: &Value,
        trial: &Trial,
        image: Option<&str>,
    ) -> Result<(), Trouble> {
        let (mut spec, ours) = (json!({}), beside());
        for field in CHANGED.iter().filter(|field| live["spec"][**field] == ours[**field]) {
            spec[*field] = trial.kept[*field].clone();
        }
        if spec["strategy"].is_object() && spec["strategy"].get("rollingUpdate").is_none() {
            // A merge leaves alone what is not named.
            spec["strategy"]["rollingUpdate"] = Value::Null;
        }
        self.write(live, trial, spec, image).await.map(drop)
    }

    /// Answers what the member has made of it.
    async fn write(
        &self,
        live: &Value,
        trial: &Trial,
        mut spec: Value,
        image: Option<&str>,
    ) -> Result<Value, Trouble> {
        if let Some(wanted) = image {
            let (at, _) = self::image(live)?;
            let mut containers = live["spec"]["template"]["spec"]["containers"].clone();
            containers[at]["image"] = wanted.into();
            spec["template"] = json!({"spec": {"containers": containers}});
        }
        let mut change = json!({"metadata": {
            "resourceVersion": object::resource_version(live),
            "annotations": {AGENT_TRIAL: trial.write()},
        }});
        if spec.as_object().is_some_and(|spec| !spec.is_empty()) {
            change["spec"] = spec;
        }
        let path = format!("{}?fieldManager={MANAGER}", self.path);
        self.member.patch(&path, Patch::Merge, &change).await.map_err(|error| self.trouble(error))
    }
}

/// What a trial makes of a Deployment's spec: the old Pod stays beside the new one.
fn beside() -> Value {
    json!({
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "minReadySeconds": BESIDE,
        "progressDeadlineSeconds": BESIDE + 600,
    })
}

/// Why a trial cannot go on: something on the member, such as an admission webhook that leads images to a registry of its own, has
/// put another image in place of the new one as it was written. What somebody changes later makes another generation.
pub(crate) fn replaced(live: &Value, trial: &Trial) -> Result<Option<String>, Trouble> {
    let (_, image) = image(live)?;
    let as_written = trial.generation == Some(object::generation(live));
    Ok((as_written && image != trial.new).then(|| {
        format!(
            "the member changes the image {} to {image}, as an admission webhook does: name that one with karmada-hub upgrade \
             agents --image",
            trial.new
        )
    }))
}

/// Ends a trial of which somebody else has changed what it stands on: its image, as `kubectl rollout undo` does, or how long the old
/// Pod stays, as whoever applies a manifest of his own. Whether that is so.
pub(crate) fn give_way(live: &Value, trial: &mut Trial) -> Result<bool, Trouble> {
    let (_, image) = image(live)?;
    if image != trial.new {
        trial.give_way(false, &format!("the image ({image} now)"));
        return Ok(true);
    }
    let ours = beside();
    let differs =
        ["strategy", "minReadySeconds"].into_iter().find(|field| live["spec"][*field] != ours[*field]);
    if let Some(field) = differs {
        trial.give_way(true, &format!("the field {field}"));
    }
    Ok(differs.is_some())
}

/// What a Deployment says of the last trial.
pub(crate) fn trial(live: &Value) -> Option<Trial> {
    Trial::read(object::annotation(live, AGENT_TRIAL)?)
}

/// The place of the agent's container, and its image.
pub(crate) fn image(live: &Value) -> Result<(usize, &str), Trouble> {
    let containers = live.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let containers = containers.map(Vec::as_slice).unwrap_or_default();
    let named = containers.iter().position(|container| container["name"] == CONTAINER);
    let at = named.or_else(|| (containers.len() == 1).then_some(0));
    let found = at.and_then(|at| Some((at, containers[at]["image"].as_str()?)));
    found.ok_or_else(|| {
        Trouble::Lasting(format!(
            "the Deployment {} has no container of the name {CONTAINER}",
            object::name(live)
        ))
    })
}

/// The image that an offer means, where there is this one.
fn wanted_image(old: &str, offer: &Offer) -> Result<String, String> {
    if !offer.image.is_empty() {
        return Ok(offer.image.clone());
    }
    if old.contains('@') {
        return Err(format!(
            "the image {old} is pinned by its digest, so the new one has to be named: karmada-hub upgrade agents --image"
        ));
    }
    let repository = repository(old);
    let tag = old[repository.len()..].strip_prefix(':').unwrap_or_default();
    let prefix =
        if tag.starts_with('v') && tag[1..].starts_with(|c: char| c.is_ascii_digit()) { "v" } else { "" };
    Ok(format!("{repository}:{prefix}{}", offer.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_keeps_its_repository_and_gets_the_version_as_its_tag() {
        let rows = [
            ("karmada-agent", "", Ok("karmada-agent:0.6.0")),
            ("karmada-agent:0.5.0", "", Ok("karmada-agent:0.6.0")),
            ("host:5000/x/karmada-agent", "", Ok("host:5000/x/karmada-agent:0.6.0")),
            ("host:5000/x/karmada-agent:v0.5.0", "", Ok("host:5000/x/karmada-agent:v0.6.0")),
            ("host/x/agent:edge", "", Ok("host/x/agent:0.6.0")),
            ("host/x/agent:0.5.0@sha256:00", "", Err("is pinned by its digest")),
            ("host/x/agent:0.5.0@sha256:00", "y/agent@sha256:11", Ok("y/agent@sha256:11")),
        ];
        for (old, named, want) in rows {
            let offer = Offer {
                version: "0.6.0".to_owned(),
                begun: "2026-11-26T01:00:00Z".parse().unwrap(),
                image: named.to_owned(),
                programs: Vec::new(),
                returns: false,
                downgrade: false,
                spread: 0,
            };
            match (wanted_image(old, &offer), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{old}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{got}"),
                (got, want) => panic!("{old}: {got:?}, wanted {want:?}"),
            }
        }
    }

    #[test]
    fn a_trial_gives_way_to_whoever_changes_what_it_stands_on() {
        let deployment = |image: &str, spec: Value| {
            let mut spec = spec;
            spec["template"] = json!({"spec": {"containers": [{"name": CONTAINER, "image": image}]}});
            json!({"metadata": {"name": "d"}, "spec": spec})
        };
        let applied = || {
            let mut spec = beside();
            spec["strategy"] = json!({"type": "Recreate"});
            spec
        };
        let mut recreated = beside();
        recreated.as_object_mut().unwrap().remove("minReadySeconds");
        // Of what is there: does the trial end, and does the new version stay?
        let rows = [
            (deployment("x:2", beside()), None),
            (deployment("x:1", beside()), Some(Ended::Returned)),
            (deployment("x:3", applied()), Some(Ended::Returned)),
            (deployment("x:2", applied()), Some(Ended::Committed)),
            (deployment("x:2", recreated), Some(Ended::Committed)),
        ];
        let kept = json!({
            "version": "0.6.0", "begun": "2026-11-26T01:00:00Z", "was": "0.5.0", "old": "x:1", "new": "x:2",
            "since": "2026-11-26T01:00:00Z",
        });
        for (live, want) in rows {
            let mut trial = Trial::read(&kept.to_string()).unwrap();
            assert_eq!((give_way(&live, &mut trial).unwrap(), trial.ended), (want.is_some(), want), "{live}");
            assert_eq!(trial.gave_way, want.is_some());
        }
    }

    #[test]
    fn an_image_that_the_member_replaces_is_told_from_one_that_somebody_puts_there() {
        let live = |image: &str, generation: i64| {
            json!({
                "metadata": {"generation": generation},
                "spec": {"template": {"spec": {"containers": [{"name": CONTAINER, "image": image}]}}},
            })
        };
        let trial = |generation: Option<i64>| {
            let kept = json!({
                "version": "0.6.0", "begun": "2026-11-26T01:00:00Z", "was": "0.5.0", "old": "x:1", "new": "x:2",
                "generation": generation, "since": "2026-11-26T01:00:00Z",
            });
            Trial::read(&kept.to_string()).unwrap()
        };
        let rows = [
            (live("x:2", 8), Some(8), false),
            (live("mirror.test/x:2", 8), Some(8), true),
            (live("x:1", 9), Some(8), false),
            // Written by a version that did not know.
            (live("x:1", 9), None, false),
        ];
        for (live, generation, want) in rows {
            let why = replaced(&live, &trial(generation)).unwrap();
            assert_eq!(why.is_some(), want, "{live}");
            assert!(why.is_none_or(|why| {
                why.contains("changes the image x:2 to mirror.test/x:2") && why.contains("--image")
            }));
        }
        assert!(replaced(&json!({}), &trial(None)).is_err());
    }

    #[test]
    fn the_agents_container_is_found_by_its_name_or_alone() {
        let of = |containers: Value| json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": {"containers": containers}}}});
        let agent = json!({"name": CONTAINER, "image": "a:1"});
        let other = json!({"name": "proxy", "image": "p:1"});
        assert_eq!(image(&of(json!([other, agent]))).unwrap(), (1, "a:1"));
        assert_eq!(image(&of(json!([other]))).unwrap(), (0, "p:1"));
        assert!(image(&of(json!([other, other]))).is_err());
        assert!(image(&of(json!([{"name": CONTAINER}]))).is_err());
    }
}

//! Users' own rules for what the fields of a kind mean, as the hub has them.
//!
//! Most hubs have none, and a watch that never tells of anything costs bytes every minute. So as long as there is none
//! the hub is asked now and then; from the first rule on there is a watch.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_api::config::{ResourceInterpreterCustomization, ResourceInterpreterCustomizationSpec};
use karmada_client::{Event, Resource, Rest, Wake, WatchConfig, Watcher};
use karmada_env::Env;
use karmada_interpreter::{Interpreter, rules::Rules};
use karmada_meta::{gvk::parse_api_version, object};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::sleep;

use crate::phase::Phases;

/// How often the hub is asked for a first rule: 300 bytes each time are a byte a second.
const ASK: Duration = Duration::from_secs(300);

/// How users' rules are addressed.
fn customizations() -> Resource {
    use karmada_api::KarmadaKind as _;
    type Kind = ResourceInterpreterCustomization;
    Resource::new(Kind::GROUP, Kind::VERSION, Kind::PLURAL, Kind::KIND, Kind::NAMESPACED)
}

/// Rules by the name of their customization.
type Known = BTreeMap<String, ResourceInterpreterCustomizationSpec>;

/// Keeps the interpreter's rules those of the hub, and tells of kinds (group and kind) with other rules than before.
pub(crate) async fn follow(
    hub: Rest,
    env: Env,
    wake: Wake,
    phases: Phases,
    interpreter: Arc<Interpreter>,
    changed: impl Fn(&[(String, String)]) + Send + Sync,
) {
    let mut back = wake.listen();
    loop {
        phases.active().await;
        // An error is no news: the rules stay as they are. Karmada before 1.4 has no such kind.
        let any = hub.get(&format!("{}?limit=1", customizations().collection(None))).await;
        if any.is_ok_and(|list| list["items"].as_array().is_some_and(|items| !items.is_empty())) {
            watch(&hub, &env, &wake, &interpreter, &changed).await;
        }
        tokio::select! {
            biased;
            () = back.woken() => {}
            () = sleep(ASK) => {}
        }
    }
}

/// Follows the rules until there are none any more.
async fn watch(
    hub: &Rest,
    env: &Env,
    wake: &Wake,
    interpreter: &Interpreter,
    changed: &impl Fn(&[(String, String)]),
) {
    let config = WatchConfig::new(customizations().collection(None)).wake(wake);
    let read = |text: &str| {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let spec = ResourceInterpreterCustomizationSpec::deserialize(&value["spec"]);
        Ok((object::name(&value).to_owned(), spec.map_err(|error| error.to_string())?))
    };
    let mut watcher = Watcher::new(hub.client().clone(), config, env.clone(), read);
    let (mut known, mut listed) = (Known::new(), None);
    loop {
        match watcher.next().await {
            Event::Init => listed = Some(Known::new()),
            Event::Upsert((name, spec)) => {
                listed.as_mut().unwrap_or(&mut known).insert(name, spec);
            }
            Event::Delete((name, _)) => {
                listed.as_mut().unwrap_or(&mut known).remove(&name);
            }
            Event::Synced => known = listed.take().unwrap_or_default(),
        }
        if listed.is_some() {
            continue;
        }
        let before = interpreter.replace(Rules::new(known.clone()));
        let kinds: Vec<(String, String)> = interpreter
            .rules()
            .changed(&before)
            .into_iter()
            .filter_map(|(api_version, kind)| Some((parse_api_version(api_version)?.0, kind.to_owned())))
            .collect();
        if !kinds.is_empty() {
            changed(&kinds);
        }
        if known.is_empty() {
            return;
        }
    }
}

//! What `kubectl get pods` says of a Pod: how many of its containers are ready, what it is doing, how often it began
//! anew. Restates the rules of Kubernetes' pod printer.

use std::time::SystemTime;

use serde_json::Value;

use super::parts::{age_of, array, int, text};

/// The three cells that take more than a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PodView {
    /// `1/2`
    pub(super) ready: String,
    /// `Running`, `CrashLoopBackOff`, `Init:0/1`, …
    pub(super) status: String,
    /// `0`, `3 (5m ago)`
    pub(super) restarts: String,
}

struct Restarts {
    count: i64,
    last: Option<String>,
}

impl Restarts {
    fn none() -> Self {
        Self { count: 0, last: None }
    }

    fn add(&mut self, status: &Value) {
        self.count += int(status, "/restartCount");
        let finished = text(status, "/lastState/terminated/finishedAt");
        if self.last.as_deref().unwrap_or_default() < finished {
            self.last = Some(finished.to_owned());
        }
    }
}

/// Works out the view of a Pod.
pub(super) fn view(pod: &Value, now: SystemTime) -> PodView {
    let sidecars: Vec<&str> = array(pod, "/spec/initContainers")
        .iter()
        .filter(|c| text(c, "/restartPolicy") == "Always")
        .map(|c| text(c, "/name"))
        .collect();
    let total = array(pod, "/spec/containers").len() + sidecars.len();
    let mut ready = 0;
    let mut restarts = Restarts::none();
    let mut status = match text(pod, "/status/reason") {
        "" => text(pod, "/status/phase").to_owned(),
        reason => reason.to_owned(),
    };
    let initializing = init_status(pod, &sidecars, &mut ready, &mut restarts);
    match &initializing {
        Some(text) => status.clone_from(text),
        None => main_status(pod, &mut status, &mut ready, &mut restarts),
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) {
        if text(pod, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut status);
        } else if !matches!(text(pod, "/status/phase"), "Failed" | "Succeeded") {
            "Terminating".clone_into(&mut status);
        }
    }
    let restarts = match restarts.last.as_deref().and_then(|last| age_of(last, now)) {
        Some(ago) if restarts.count > 0 => format!("{} ({ago} ago)", restarts.count),
        _ => restarts.count.to_string(),
    };
    PodView { ready: format!("{ready}/{total}"), status, restarts }
}

fn condition(pod: &Value, kind: &str) -> bool {
    array(pod, "/status/conditions").iter().any(|c| text(c, "/type") == kind && text(c, "/status") == "True")
}

/// `Init:…` while init containers have not all ended; counts those that stay as sidecars.
fn init_status(pod: &Value, sidecars: &[&str], ready: &mut usize, restarts: &mut Restarts) -> Option<String> {
    let statuses = array(pod, "/status/initContainerStatuses");
    let total = array(pod, "/spec/initContainers").len();
    for (index, status) in statuses.iter().enumerate() {
        restarts.add(status);
        let terminated = status.pointer("/state/terminated").filter(|v| v.is_object());
        let sidecar = sidecars.contains(&text(status, "/name"));
        if let Some(terminated) = terminated {
            if int(terminated, "/exitCode") == 0 {
                continue;
            }
            let reason = match (text(terminated, "/reason"), int(terminated, "/signal")) {
                ("", 0) => format!("Init:ExitCode:{}", int(terminated, "/exitCode")),
                ("", signal) => format!("Init:Signal:{signal}"),
                (reason, _) => format!("Init:{reason}"),
            };
            return Some(reason);
        }
        if sidecar && status["started"] == Value::Bool(true) {
            if status["ready"] == Value::Bool(true) {
                *ready += 1;
            }
            continue;
        }
        return Some(match text(status, "/state/waiting/reason") {
            "" | "PodInitializing" => format!("Init:{index}/{total}"),
            reason => format!("Init:{reason}"),
        });
    }
    None
}

fn main_status(pod: &Value, status: &mut String, ready: &mut usize, restarts: &mut Restarts) {
    let mut running = false;
    for container in array(pod, "/status/containerStatuses").iter().rev() {
        restarts.add(container);
        let waiting = text(container, "/state/waiting/reason");
        let terminated = container.pointer("/state/terminated").filter(|v| v.is_object());
        if !waiting.is_empty() {
            waiting.clone_into(status);
        } else if let Some(terminated) = terminated {
            *status = match (text(terminated, "/reason"), int(terminated, "/signal")) {
                ("", 0) => format!("ExitCode:{}", int(terminated, "/exitCode")),
                ("", signal) => format!("Signal:{signal}"),
                (reason, _) => reason.to_owned(),
            };
        } else if container["ready"] == Value::Bool(true)
            && container.pointer("/state/running").is_some_and(Value::is_object)
        {
            running = true;
            *ready += 1;
        }
    }
    // One container that ended does not make a pod complete while another still runs.
    if status == "Completed" && running {
        let text = if condition(pod, "Ready") { "Running" } else { "NotReady" };
        text.clone_into(status);
    }
}

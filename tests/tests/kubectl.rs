//! What people do with kubectl, done by kubectl: the installed one, whatever its age, against the embedded API.

#![allow(clippy::unwrap_used, clippy::large_futures, reason = "a failing step fails the test")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use karmada_tests::{
    fleet::{Binaries, Fleet, Options},
    process::Process,
    samples,
    wait::{PATIENCE, eventually},
};
use serde_json::json;

const DEFINITION: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.replicas}
    - {name: Color, type: string, jsonPath: .spec.color, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        description: Widget is a thing.
        properties:
          spec:
            type: object
            description: What is wanted.
            x-kubernetes-validations: [{rule: '!has(self.replicas) || self.replicas < 100', message: not that many}]
            properties:
              replicas: {type: integer, description: How many of them.}
              color: {type: string, default: red, enum: [red, blue]}
              parts: {type: array, items: {type: object, properties: {label: {type: string, description: On the part.}}}}
          status:
            type: object
            properties:
              replicas: {type: integer}
              conditions: {type: array, items: {type: object, properties: {type: {type: string}, status: {type: string}}}}
";

const WIDGET: &str = "
apiVersion: example.com/v1
kind: Widget
metadata: {name: a}
spec: {replicas: 2, parts: [{label: x}]}
";

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: nginx}]}
";

/// kubectl in a folder of its own, which has the files it is given.
struct Kubectl {
    dir: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.dir.join(name), text).unwrap();
    }

    /// Runs a command line; whether it succeeded, and what it said.
    fn run(&self, line: &str, editor: &str) -> (bool, String) {
        let output = Command::new("timeout")
            .args(["180", "kubectl", "--kubeconfig"])
            .arg(&self.kubeconfig)
            .args(line.split_whitespace())
            .current_dir(&self.dir)
            .env("HOME", &self.dir)
            .env("KUBE_EDITOR", editor)
            .output()
            .expect("kubectl runs");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), text.concat())
    }

    /// Runs each line, which is to succeed and to say something that holds the text beside it.
    fn all(&self, lines: &[(&str, &str)]) {
        for (line, wanted) in lines {
            let (succeeded, said) = self.run(line, "true");
            assert!(succeeded && said.contains(wanted), "kubectl {line}: no {wanted:?} in\n{said}");
        }
    }

    /// Runs a line that is refused with these words.
    fn refused(&self, line: &str, wanted: &str) {
        let (succeeded, said) = self.run(line, "true");
        assert!(!succeeded && said.contains(wanted), "kubectl {line}: no {wanted:?} in\n{said}");
    }
}

fn is_installed() -> bool {
    let found =
        Command::new("kubectl").args(["version", "--client"]).output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: no kubectl is installed");
    }
    found
}

/// A server and a kubectl for it; nothing where no kubectl is installed.
async fn start(dir: &Path) -> Option<(Process, Kubectl)> {
    if !is_installed() {
        return None;
    }
    let kubeconfig = dir.join("kubeconfig");
    let args = [
        "kubesim".to_owned(),
        format!("--data-dir={}", dir.join("data").display()),
        "--listen=127.0.0.1:0".into(),
        format!("--kubeconfig-out={}", kubeconfig.display()),
        "--workloads=off".into(),
    ];
    let server =
        Process::start(dir, "kubesim", Path::new(env!("CARGO_BIN_EXE_fleet")), args).expect("it starts");
    eventually("the server to start", PATIENCE, || async {
        if kubeconfig.exists() { Ok(()) } else { Err("no kubeconfig yet") }
    })
    .await;
    Some((server, Kubectl { dir: dir.to_owned(), kubeconfig }))
}

#[tokio::test]
async fn custom_resources() {
    let dir = tempfile::tempdir().unwrap();
    let Some((_server, kubectl)) = start(dir.path()).await else { return };
    kubectl.file("definition.yaml", DEFINITION);
    kubectl.file("widget.yaml", WIDGET);
    kubectl.file("more.yaml", &WIDGET.replace("replicas: 2", "replicas: 3"));
    kubectl.file("wrong.yaml", &WIDGET.replace("replicas", "replica"));
    kubectl.file("many.yaml", &WIDGET.replace("replicas: 2", "replicas: 200"));
    kubectl.all(&[
        ("apply -f definition.yaml", "created"),
        ("wait --for=condition=Established crd/widgets.example.com --timeout=60s", "condition met"),
        ("api-resources --api-group=example.com", "wd"),
        ("explain widget", "Widget is a thing."),
        ("explain widget.spec.replicas", "How many of them."),
        ("explain widgets --recursive", "label"),
        ("apply -f widget.yaml", "widget.example.com/a created"),
        ("get wd", "SIZE"),
        ("get wd -o wide", "red"),
        ("get all", "widget.example.com/a"),
        ("describe wd a", "Replicas:"),
        ("apply --server-side -f widget.yaml", "serverside-applied"),
        ("scale wd/a --replicas=7", "scaled"),
        ("get wd a -o jsonpath={.spec.replicas}", "7"),
        ("apply --validate=warn --dry-run=server -f wrong.yaml", "unknown field \"spec.replica\""),
    ]);
    kubectl.refused("apply -f wrong.yaml", "unknown field \"spec.replica\"");
    kubectl.refused("apply --validate=strict -f wrong.yaml", "unknown field \"spec.replica\"");
    kubectl.refused("apply -f many.yaml", "not that many");
    kubectl.refused("diff -f more.yaml", "+  replicas: 3");
    let (edited, said) = kubectl.run("edit wd a", "sed -i s/color:.*/color:\\ blue/");
    assert!(edited && said.contains("edited"), "{said}");
    let status = r#"{"status":{"replicas":7,"conditions":[{"type":"Ready","status":"True"}]}}"#;
    kubectl.all(&[
        ("get wd a -o jsonpath={.spec.color}", "blue"),
        (&format!("patch wd a --subresource=status --type=merge -p {status}"), "patched"),
        ("wait --for=condition=Ready wd/a --timeout=60s", "condition met"),
        ("wait --for=jsonpath={.status.replicas}=7 wd/a --timeout=60s", "condition met"),
        ("delete wd a --wait=false", "deleted"),
        ("wait --for=delete wd/a --timeout=60s", ""),
        ("delete crd widgets.example.com", "deleted"),
    ]);
}

const ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules: [{apiGroups: [''], resources: [secrets], verbs: [list]}]
";

#[tokio::test]
async fn rights() {
    let dir = tempfile::tempdir().unwrap();
    let Some((_server, kubectl)) = start(dir.path()).await else { return };
    kubectl.file("role.yaml", ROLE);
    kubectl.refused("auth can-i list configmaps --as jane", "no");
    kubectl.all(&[
        ("auth can-i --list", "*.*"),
        ("auth can-i --list --as jane", "selfsubjectaccessreviews.authorization.k8s.io"),
        ("auth can-i --list --as jane", "[/apis/*]"),
        ("create role reader --verb=get,list --resource=configmaps", "reader created"),
        ("create rolebinding reader --role=reader --user=jane", "reader created"),
        ("auth can-i list configmaps --as jane", "yes"),
        ("auth can-i --list --as jane", "configmaps  "),
        ("get configmaps --as jane", ""),
        ("auth reconcile -f role.yaml", "reconciled"),
        ("auth can-i list secrets --as jane", "yes"),
        ("auth can-i list configmaps --as jane", "yes"),
        ("create clusterrolebinding admins --clusterrole=admin --group=shop", "admins created"),
        ("auth can-i create deployments.apps -n default --as joe --as-group=shop", "yes"),
        ("create rolebinding more --clusterrole=edit --user=jane --as joe --as-group=shop", "more created"),
        ("describe clusterrole system:basic-user", "selfsubjectrulesreviews.authorization.k8s.io"),
    ]);
    kubectl.refused("auth can-i create clusterroles --as joe --as-group=shop", "no");
    kubectl.refused(
        "create rolebinding all --clusterrole=cluster-admin --user=joe --as joe --as-group=shop",
        "is attempting to grant RBAC permissions not currently held:",
    );
    kubectl.refused(
        "get nodes --as jane",
        "User \"jane\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
    );
}

#[tokio::test]
async fn workloads() {
    let dir = tempfile::tempdir().unwrap();
    let Some((_server, kubectl)) = start(dir.path()).await else { return };
    kubectl.file("deployment.yaml", DEPLOYMENT);
    kubectl.file("more.yaml", &DEPLOYMENT.replace("replicas: 1", "replicas: 3"));
    kubectl.file("wrong.yaml", &DEPLOYMENT.replace("replicas", "replica"));
    kubectl.refused("apply --validate=strict -f wrong.yaml", "unknown field \"spec.replica\"");
    kubectl.all(&[
        ("explain deployment.spec.replicas", "Number of desired pods"),
        ("explain deployment --recursive", "containers"),
        ("apply -f deployment.yaml", "created"),
        ("get deploy -o wide", "nginx"),
        ("describe deploy web", "StrategyType"),
        ("create configmap c --from-literal=a=b", "created"),
        ("create deployment other --image=x --dry-run=server", "dry run"),
        ("label cm c x=y", "labeled"),
        ("get cm -l x=y -o name", "configmap/c"),
    ]);
    kubectl.refused("diff -f more.yaml", "+  replicas: 3");
    kubectl.refused("rollout status deploy/web --timeout=1s", "timed out");
    let (edited, said) = kubectl.run("edit deploy web", "sed -i s/replicas:\\ 1/replicas:\\ 4/");
    assert!(edited && said.contains("edited"), "{said}");
    let status = r#"{"status":{"observedGeneration":2,"replicas":4,"updatedReplicas":4,"readyReplicas":4,"availableReplicas":4}}"#;
    kubectl.all(&[
        ("get deploy web -o jsonpath={.spec.replicas}", "4"),
        (&format!("patch deploy web --subresource=status --type=merge -p {status}"), "patched"),
        ("rollout status deploy/web --timeout=60s", "successfully rolled out"),
        ("set image deploy/web c=nginx:2", "image updated"),
        ("delete deploy web", "deleted"),
    ]);
}

/// How far a change is that goes out in waves, and a version of the agents, is in what kubectl describes.
#[tokio::test]
async fn waves() {
    if !is_installed() {
        return;
    }
    let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
    let Some(fleet) = Fleet::start("kubectl-waves", 2, &binaries, Options::impatient()).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let kubectl = Kubectl { dir: dir.path().to_owned(), kubeconfig: fleet.kubeconfig.clone() };
    let says = async |line: &str, wanted: &[&str]| {
        eventually(&format!("kubectl {line}"), PATIENCE, || async {
            let (succeeded, said) = kubectl.run(line, "true");
            let missing = wanted.iter().find(|wanted| !said.contains(**wanted));
            match missing {
                _ if !succeeded => Err(said),
                Some(missing) => Err(format!("no {missing:?} in\n{said}")),
                None => Ok(()),
            }
        })
        .await;
    };
    fleet.create_namespace().await;
    let [one, two] = [fleet.members[0].name.as_str(), fleet.members[1].name.as_str()];
    let mut policy = samples::deployment_policy("till", &[one, two]);
    policy["metadata"]["annotations"] =
        json!({"policy.karmada.io/rollout": "50% soak=0; 100% approve soak=0"});
    fleet.create([samples::deployment("till", 1), policy]).await;
    let binding = format!("describe resourcebinding till-deployment -n {}", fleet.namespace);
    says(&binding, &["FullyAppliedSuccess"]).await;
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/till", fleet.namespace);
    let mut till = fleet.api.get(&path).await.unwrap();
    till["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
    fleet.api.put(&path, &till).await.unwrap();
    // The condition, and an event.
    says(&binding, &["RolledOut", "AwaitsApproval", "RolloutAdvanced"]).await;

    let kubeconfig = format!("--kubeconfig={}", fleet.kubeconfig.display());
    fleet.command(&["upgrade", "agents", "--to=0.1.0", "--wave=50%,100%", &kubeconfig]);
    says("describe configmap agent-upgrade -n karmada-system", &["0.1.0", "50%", "status"]).await;
    fleet.clean_up().await;
}

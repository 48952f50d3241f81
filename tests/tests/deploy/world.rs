//! A hub, a member without an agent, and the scripts run on it as a person would.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use karmada_apiserver::pki::Pki;
use karmada_client::{Kubeconfig, Patch, Rest, link::client_for};
use karmada_env::Env;
use karmada_tests::{
    fleet::{Binaries, Fleet, Options, cluster_path},
    process::Process,
    samples::{condition_of, config_map, config_map_path, config_map_policy},
    wait::{PATIENCE, eventually, gone, until},
};
use serde_json::{Value, json};

/// What the stand-in takes as the agent's account.
pub(crate) const TOKEN: &str = "the-token-of-the-agents-account";
pub(crate) const CONTEXT: &str = "karmada-apiserver";
pub(crate) const CLUSTER: &str = "member1";
pub(crate) const AGENT: &str = "/apis/apps/v1/namespaces/karmada-system/deployments/karmada-agent";
pub(crate) const SECRET: &str = "/api/v1/namespaces/karmada-system/secrets/karmada-kubeconfig";
pub(crate) const NAMESPACE: &str = "/api/v1/namespaces/karmada-system";
pub(crate) const TUNNEL_CA: &str = "/api/v1/namespaces/karmada-system/configmaps/karmada-agent-tunnel-ca";
/// Everything that the script makes, but for [`OF_TUNNEL`].
pub(crate) const MADE: [&str; 8] = [
    AGENT,
    SECRET,
    "/api/v1/namespaces/karmada-system/secrets/karmada-agent-token",
    TUNNEL_CA,
    "/api/v1/namespaces/karmada-system/serviceaccounts/karmada-agent-sa",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/karmada-agent",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/karmada-agent",
    NAMESPACE,
];

/// What it makes besides with --tunnel.
pub(crate) const OF_TUNNEL: [&str; 5] = [
    "/api/v1/namespaces/karmada-system/serviceaccounts/karmada-agent-tunnel",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/karmada-agent-tunnel",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/karmada-agent-tunnel",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/karmada-system/roles/karmada-agent-tunnel",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/karmada-system/rolebindings/karmada-agent-tunnel",
];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A hub and one member without an agent.
pub(crate) struct World {
    pub(crate) fleet: Fleet,
    pub(crate) member: Rest,
    pub(crate) cluster: Option<Process>,
    /// An administrator's kubeconfig of the member, and its context.
    pub(crate) member_config: PathBuf,
    pub(crate) member_context: String,
    /// What `karmada-hub credentials` made.
    pub(crate) credentials: PathBuf,
    pub(crate) namespace: String,
}

pub(crate) fn rest(kubeconfig: &Path) -> Rest {
    let endpoint =
        Kubeconfig::load(kubeconfig).and_then(|k| k.endpoint(None)).unwrap_or_else(|e| panic!("{e}"));
    Rest::new(client_for(endpoint, "karmada-tests", Env::system()).0)
}

pub(crate) fn read_yaml(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The first real cluster that the environment names.
pub(crate) fn real_member() -> Option<(String, PathBuf)> {
    let named = std::env::var("KARMADA_TEST_MEMBERS").ok()?;
    let (name, file) = named.split(',').next()?.trim().split_once('=')?;
    Some((name.to_owned(), PathBuf::from(file)))
}

impl World {
    /// None, with a line that says why, where there is no kubectl.
    pub(crate) async fn start(test: &str, may_be_real: bool) -> Option<Self> {
        if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
            eprintln!("{test}: skipped, there is no kubectl");
            return None;
        }
        let binaries = Binaries::in_one(env!("CARGO_BIN_EXE_fleet"));
        // An agent that ended is given up soon: removals wait for that.
        let quick = [
            "--cluster-monitor-period=2s",
            "--cluster-monitor-grace-period=12s",
            "--cluster-startup-grace-period=12s",
        ];
        let options = Options { hub: quick.map(str::to_owned).to_vec(), ..Options::default() };
        let fleet = Fleet::start(test, 0, &binaries, options).await?;
        let at = |name: &str| fleet.dir.path().join(name);
        let (member_config, cluster) = match real_member().filter(|_| may_be_real) {
            Some((_, config)) => (config, None),
            None => {
                let config = at("member.kubeconfig");
                let args = [
                    "kubesim".to_owned(),
                    format!("--data-dir={}", at("member").display()),
                    format!("--kubeconfig-out={}", config.display()),
                    format!("--token={TOKEN}"),
                ];
                let process =
                    Process::start(fleet.dir.path(), "member", Path::new(env!("CARGO_BIN_EXE_fleet")), args);
                (config, Some(process.expect("the member starts")))
            }
        };
        eventually("the member's kubeconfig", PATIENCE, || async {
            fs::metadata(&member_config).map(drop).map_err(|e| e.to_string())
        })
        .await;
        let parsed = read_yaml(&member_config);
        let member_context = parsed["current-context"].as_str().expect("a current context").to_owned();
        let world = Self {
            member: rest(&member_config),
            cluster,
            member_config,
            member_context,
            credentials: at("credentials"),
            namespace: fleet.namespace.clone(),
            fleet,
        };
        world.make_credentials(CLUSTER, &world.credentials);
        Some(world)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.fleet.dir.path().join(name)
    }

    pub(crate) fn make_credentials(&self, cluster: &str, file: &Path) {
        let made = Command::new(env!("CARGO_BIN_EXE_fleet"))
            .args(["karmada-hub", "credentials", "--cluster", cluster])
            .arg(format!("--data-dir={}", self.at("hub").display()))
            .arg(format!("--output={}", file.display()))
            .output()
            .expect("karmada-hub credentials runs");
        assert!(made.status.success(), "credentials: {}", String::from_utf8_lossy(&made.stderr));
    }

    /// A script with this world's four arguments and others.
    pub(crate) fn script(&self, name: &str, more: &[&str]) -> Command {
        let four = [
            self.credentials.as_path(),
            Path::new(CONTEXT),
            &self.member_config,
            Path::new(&self.member_context),
        ];
        let mut command = self.bare(name);
        command.args(four).arg(format!("--cluster-name={CLUSTER}")).args(more);
        command
    }

    /// A script without arguments. It ends, or `timeout` ends it and the test fails.
    pub(crate) fn bare(&self, name: &str) -> Command {
        let home = self.at("home");
        fs::create_dir_all(&home).expect("a folder is made");
        let mut command = Command::new("timeout");
        // kubectl keeps what it discovers under HOME: ports come again, with other servers behind them.
        command.arg("400").arg(root().join("scripts").join(name)).env("HOME", home).env_remove("KUBECONFIG");
        command.stdin(Stdio::null());
        command
    }

    /// Deploys, and returns what was said.
    pub(crate) fn deploy(&self, more: &[&str]) -> String {
        let output = self.script("deploy-agent.sh", &["--allow-loopback", "--wait=0"]).args(more).output();
        said(&output.expect("the script runs"))
    }

    /// The arguments of one of the two lines that `karmada-hub token create` prints.
    pub(crate) fn line(&self, cluster: &str, program: &str) -> Vec<String> {
        let kubeconfig = format!("--kubeconfig={}", self.fleet.kubeconfig.display());
        let made =
            self.fleet.command(&["token", "create", &format!("--cluster={cluster}"), &kubeconfig]).stdout;
        let made = String::from_utf8_lossy(&made).into_owned();
        assert_eq!(made.lines().count(), 2, "two lines, of which one is run: {made}");
        let line = made.lines().find_map(|line| line.strip_prefix(program)).expect("a line for it");
        line.split_whitespace().map(str::to_owned).collect()
    }

    pub(crate) fn remove(&self, more: &[&str]) -> String {
        said(&self.script("remove-agent.sh", more).output().expect("the script runs"))
    }

    /// What a kubelet does with the Deployment: its command, its Secret where it is mounted, its account's token.
    pub(crate) async fn run_agent(&self) -> Process {
        let deployment = self.member.get(AGENT).await.expect("the Deployment is there");
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let mut mounts = Vec::new();
        for mount in container["volumeMounts"].as_array().expect("mounts") {
            let (name, path) =
                (mount["name"].as_str().expect("a name"), mount["mountPath"].as_str().expect("a path"));
            let volumes = pod["volumes"].as_array().expect("volumes");
            let volume = volumes.iter().find(|v| v["name"] == name).expect("the mount has a volume");
            let folder = self.at("mounts").join(name);
            fs::create_dir_all(&folder).expect("a folder is made");
            if let Some(secret) = volume["secret"]["secretName"].as_str() {
                let secret = self
                    .member
                    .get(&format!("{NAMESPACE}/secrets/{secret}"))
                    .await
                    .expect("the Secret is there");
                for (key, value) in secret["data"].as_object().expect("data") {
                    fs::write(folder.join(key), decoded(value)).expect("a file is written");
                }
            }
            mounts.push((path.to_owned(), folder.display().to_string()));
        }
        let words = container["command"].as_array().expect("a command").iter();
        let mut command = words.map(|word| word.as_str().expect("a string").to_owned());
        assert_eq!(
            command.next().as_deref(),
            Some("/bin/karmada-agent"),
            "what both Dockerfile and Deployment say"
        );
        let arguments = command.map(|argument| {
            let mount = mounts.iter().find(|(path, _)| argument.contains(&format!("={path}")));
            mount.map_or(argument.clone(), |(path, folder)| argument.replacen(path, folder, 1))
        });
        let own = [
            format!("--kubeconfig={}", self.account_kubeconfig(pod).await.display()),
            "--health-probe-bind-address=0".to_owned(),
            "--metrics-bind-address=0".to_owned(),
        ];
        let all: Vec<String> =
            std::iter::once("karmada-agent".to_owned()).chain(arguments).chain(own).collect();
        Process::start(self.fleet.dir.path(), "agent", Path::new(env!("CARGO_BIN_EXE_fleet")), all)
            .expect("the agent starts")
    }

    /// What stands in a pod under /var/run/secrets/kubernetes.io/serviceaccount, as a kubeconfig.
    pub(crate) async fn account_kubeconfig(&self, pod: &Value) -> PathBuf {
        let token = if self.cluster.is_some() {
            TOKEN.to_owned()
        } else {
            let account = pod["serviceAccountName"].as_str().expect("an account");
            let request = json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": { "expirationSeconds": 3600 },
            });
            let path = format!("{NAMESPACE}/serviceaccounts/{account}/token");
            let made = self.member.post(&path, &request).await.expect("a token is made");
            made["status"]["token"].as_str().expect("a token").to_owned()
        };
        let mut config = read_yaml(&self.member_config);
        let users = config["users"].as_array_mut().expect("users");
        for user in users {
            user["user"] = json!({ "token": token });
        }
        let path = self.at("account.kubeconfig");
        fs::write(&path, config.to_string()).expect("a file is written");
        path
    }

    /// The script with the line by which the member joins.
    pub(crate) fn deploy_by(&self, line: &[String], more: &[&str]) -> Command {
        let mut command = self.bare("deploy-agent.sh");
        command.args(line).arg(format!("--member-kubeconfig={}", self.member_config.display()));
        command.args(["--allow-loopback", "--wait=0"]).args(more);
        command
    }

    /// A ConfigMap of the hub's on the member, in a namespace that the hub made there.
    pub(crate) async fn place_something(&self) {
        self.fleet.create_namespace().await;
        self.fleet.create([config_map("settings", "1"), config_map_policy("settings", &[CLUSTER])]).await;
        until(&self.member, &self.placed(), "there", PATIENCE, |_| true).await;
    }

    pub(crate) fn placed(&self) -> String {
        config_map_path(&self.namespace, "settings")
    }

    /// Name and resourceVersion of everything that a script could have touched.
    pub(crate) async fn state(&self) -> Vec<String> {
        let mut state = Vec::new();
        let collections = [
            "/api/v1/namespaces",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "/apis/apps/v1/deployments",
            "/api/v1/secrets",
            "/api/v1/serviceaccounts",
        ];
        for path in collections {
            let list = self.member.get(path).await.expect("a list");
            for item in list["items"].as_array().into_iter().flatten() {
                let metadata = &item["metadata"];
                // A Deployment's status moves by itself.
                let version = if path.ends_with("deployments") { "generation" } else { "resourceVersion" };
                state.push(format!("{path} {} {}", metadata["name"], metadata[version]));
            }
        }
        let clusters = self.fleet.api.get("/apis/cluster.karmada.io/v1alpha1/clusters").await;
        let clusters =
            clusters.map(|list| list["items"].as_array().cloned().unwrap_or_default()).unwrap_or_default();
        state.extend(clusters.iter().map(|c| format!("Cluster {}", c["metadata"]["uid"])));
        state
    }

    /// The agent renews every ten seconds and promises forty, and the hub would wait for twelve.
    pub(crate) async fn settings_at_odds_are_named(&self) {
        let cluster = until(&self.fleet.api, &cluster_path(CLUSTER), "given more time", PATIENCE, |c| {
            condition_of(c, "LinkGrace").is_some()
        })
        .await;
        let grace = condition_of(&cluster, "LinkGrace").expect("it is there");
        let message = grace["message"].as_str().unwrap_or_default();
        assert_eq!(grace["reason"], "GraceRaised");
        assert!(message.contains("40s") && message.contains("12s"), "{message}");
        let explained = self.fleet.command(&[
            "explain",
            "clusters/member1",
            &format!("--kubeconfig={}", self.fleet.kubeconfig.display()),
        ]);
        let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
        assert_eq!(explained.matches(message).count(), 1, "{explained}");
        let log = self.fleet.hub.log_tail(1000);
        assert_eq!(log.matches("do not go together").count(), 1, "once, and not with every look: {log}");
    }

    /// Where tunnels are dialled, and whom to believe there, come to the agent's Pod and go from it again.
    pub(crate) async fn tunnels_lead_to_the_hubs_own_port(&self) {
        let ca = Pki::open_or_create(&self.at("other-hub"), &[], &Env::system()).expect("a CA").ca_pem();
        fs::write(self.at("hub-ca.crt"), &ca).expect("a file is written");
        let file = format!("--tunnel-ca={}", self.at("hub-ca.crt").display());
        self.deploy(&["--tunnel=full", "--tunnel-server=https://hub-1:6443,https://hub-2:6443", &file]);
        let map = self.member.get(TUNNEL_CA).await.expect("a ConfigMap");
        assert_eq!(map["data"]["ca.crt"], ca);
        let deployment = self.member.get(AGENT).await.expect("it is there");
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        for flag in [
            "--tunnel=full",
            "--tunnel-server=https://hub-1:6443,https://hub-2:6443",
            "--tunnel-ca=/etc/karmada-tunnel/ca.crt",
        ] {
            assert!(container["command"].as_array().expect("a command").contains(&json!(flag)), "{flag}");
        }
        let of = |all: &Value| {
            let mut all = all.as_array().expect("a list").iter();
            all.find(|one| one["name"] == "tunnel-ca").cloned().expect("it is there")
        };
        assert_eq!(of(&container["volumeMounts"])["mountPath"], "/etc/karmada-tunnel");
        assert_eq!(of(&pod["volumes"])["configMap"]["name"], "karmada-agent-tunnel-ca");
        self.tunnels_have_an_account_that_acts_in_others_names_alone().await;
        self.deploy(&[]);
        for path in OF_TUNNEL.into_iter().chain([TUNNEL_CA]) {
            gone(&self.member, path, PATIENCE).await;
        }
    }

    /// And the agent may have a token of it.
    async fn tunnels_have_an_account_that_acts_in_others_names_alone(&self) {
        let mut made = Vec::new();
        for path in OF_TUNNEL {
            made.push(self.member.get(path).await.unwrap_or_else(|error| panic!("{path}: {error}")));
        }
        for object in &made {
            let by = &object["metadata"]["labels"]["app.kubernetes.io/managed-by"];
            assert_eq!(*by, "deploy-agent.sh", "{object:#}");
        }
        let [_, acts, acting, gives, given] = &made[..] else { panic!("there are five") };
        let rules = json!([{"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]}]);
        assert_eq!(acts["rules"], rules);
        let rules = json!([{
            "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["karmada-agent-tunnel"],
            "verbs": ["create"],
        }]);
        assert_eq!(gives["rules"], rules);
        for (binding, kind, account) in
            [(acting, "ClusterRole", "karmada-agent-tunnel"), (given, "Role", "karmada-agent-sa")]
        {
            let role = &binding["roleRef"];
            assert_eq!((&role["kind"], &role["name"]), (&json!(kind), &json!("karmada-agent-tunnel")));
            let subjects = binding["subjects"].as_array().expect("a list");
            let subjects: Vec<_> = subjects
                .iter()
                .map(|one| ["kind", "namespace", "name"].map(|field| one[field].as_str().unwrap_or_default()))
                .collect();
            assert_eq!(subjects, [["ServiceAccount", "karmada-system", account]]);
        }
        // Nothing else is given to it.
        let mut bound = Vec::new();
        for plural in ["clusterrolebindings", "rolebindings"] {
            let all = self.member.get(&format!("/apis/rbac.authorization.k8s.io/v1/{plural}")).await;
            let all = all.expect("a list")["items"].as_array().cloned().unwrap_or_default();
            let is_its = |binding: &&Value| {
                let mut subjects = binding["subjects"].as_array().into_iter().flatten();
                subjects.any(|one| one["name"] == "karmada-agent-tunnel")
            };
            bound.extend(all.iter().filter(is_its).map(|binding| binding["metadata"]["name"].clone()));
        }
        assert_eq!(bound, [json!("karmada-agent-tunnel")]);
    }

    /// What is deployed while a new version of the agent is on trial is taken, and nothing of the trial is left.
    pub(crate) async fn a_trial_is_ended(&self) {
        let beside = json!({"spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "minReadySeconds": 604_800, "progressDeadlineSeconds": 605_400,
        }});
        let path = format!("{AGENT}?fieldManager=karmada-agent-upgrade");
        self.member.patch(&path, Patch::Merge, &beside).await.expect("it is on trial");
        let dry = self.deploy(&["--dry-run"]);
        assert!(dry.contains("would end the trial"), "{dry}");
        let spec = async || self.member.get(AGENT).await.expect("it is there")["spec"].clone();
        assert_eq!(spec().await["minReadySeconds"], 604_800, "a dry run changes nothing");
        let said = self.deploy(&[]);
        assert!(said.contains("the trial is ended"), "{said}");
        let spec = spec().await;
        assert_eq!(spec["strategy"], json!({"type": "Recreate"}), "{spec}");
        assert!(spec.get("minReadySeconds").is_none_or(|seconds| seconds == 0), "{spec}");
        assert_eq!(spec["progressDeadlineSeconds"], 600, "{spec}");
    }

    /// Nothing that the scripts made is on the member.
    pub(crate) async fn assert_clean(&self) {
        for path in MADE.into_iter().chain(OF_TUNNEL) {
            gone(&self.member, path, PATIENCE).await;
        }
        let selected = format!("/api/v1/configmaps?labelSelector={}", "karmada.io/managed%3Dtrue");
        let marked = self.member.get(&selected).await.expect("a list");
        assert_eq!(marked["items"], json!([]), "no object carries the hub's marks");
    }
}

pub(crate) fn decoded(base64: &Value) -> Vec<u8> {
    let output = Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = output.expect("base64 runs");
    let mut input = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, base64.as_str().expect("a string").as_bytes()).expect("it reads");
    drop(input);
    child.wait_with_output().expect("it ends").stdout
}

/// What a script that succeeded said.
pub(crate) fn said(output: &Output) -> String {
    let all =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}: {all}", output.status);
    all
}

/// The one line of a script that failed.
pub(crate) fn refused(command: &mut Command, code: i32) -> String {
    let output = command.output().expect("the script runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {error}");
    let lines: Vec<&str> = error.lines().filter(|line| !line.contains(": warning: ")).collect();
    assert_eq!(lines.len(), 1, "{command:?} says in one line what is wrong: {error}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    lines[0].to_owned()
}

/// The verbs of a deployment's lines, without the namespace's: it may have been there before.
pub(crate) fn verbs(said: &str) -> Vec<(&str, &str)> {
    let lines = said.lines().filter_map(|line| line.split_once(' '));
    let objects = lines.filter(|(object, _)| object.contains('/') && !object.starts_with("Namespace/"));
    objects.map(|(object, verb)| (object.split('/').next().unwrap_or_default(), verb)).collect()
}

pub(crate) fn all(verb: &'static str) -> Vec<(&'static str, &'static str)> {
    ["ClusterRole", "ClusterRoleBinding", "ServiceAccount", "Secret", "Deployment"]
        .map(|kind| (kind, verb))
        .to_vec()
}

pub(crate) fn all_but(verb: &'static str, changed: &[&str]) -> Vec<(&'static str, &'static str)> {
    all(verb)
        .into_iter()
        .map(|(kind, verb)| (kind, if changed.contains(&kind) { "changed" } else { verb }))
        .collect()
}

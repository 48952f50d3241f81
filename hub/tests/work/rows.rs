//! Awkward objects of Karmada's kinds, of any size.

use serde_json::{Value, json};

use crate::counting::{Call, JSON, Row, down, growth, list, row};

pub(crate) const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
pub(crate) const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";
pub(crate) const POLICIES: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies";
const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/namespaces/default/resourcebindings";
const OVERRIDES: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/default/overridepolicies";
const TAINTS: &str = "/apis/policy.karmada.io/v1alpha1/clustertaintpolicies";
const QUOTAS: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/default/federatedresourcequotas";
const CRONS: &str = "/apis/autoscaling.karmada.io/v1alpha1/namespaces/default/cronfederatedhpas";
const SCALERS: &str = "/apis/autoscaling.karmada.io/v1alpha1/namespaces/default/federatedhpas";
const SERVICES: &str = "/apis/networking.karmada.io/v1alpha1/namespaces/default/multiclusterservices";
const INGRESSES: &str = "/apis/networking.karmada.io/v1alpha1/namespaces/default/multiclusteringresses";
const RULES: &str = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";
const AGENT: (&str, &str) = ("system:karmada:agent:m1", "system:karmada:agents");

fn post(path: &str, meta: &str, rest: &str) -> Vec<Call> {
    vec![Call::new("POST", path, JSON, format!(r#"{{"metadata":{{"name":"a"{meta}}}{rest}}}"#))]
}

fn with(path: &str, spec: &str) -> Vec<Call> {
    post(path, "", &format!(r#","spec":{{{spec}}}"#))
}

fn annotated(path: &str, key: &str, value: &str, spec: &str) -> Vec<Call> {
    let value = Value::from(value);
    post(path, &format!(r#","annotations":{{"{key}":{value}}}"#), &format!(r#","spec":{{{spec}}}"#))
}

fn manifest(i: usize) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c{:07}","namespace":"d"}}}}"#,
        down(i)
    )
}

fn work(manifests: &str) -> Vec<Call> {
    with(WORKS, &format!(r#""workload":{{"manifests":[{manifests}]}}"#))
}

const SELECTORS: &str = r#""resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap"}]"#;

fn placed(placement: &str) -> Vec<Call> {
    with(POLICIES, &format!(r#"{SELECTORS},"placement":{{{placement}}}"#))
}

fn binding(more: &str) -> Vec<Call> {
    with(
        BINDINGS,
        &format!(
            r#""resource":{{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"c"}},{more}"#
        ),
    )
}

fn cluster(more: &str) -> Vec<Call> {
    with(CLUSTERS, &format!(r#""syncMode":"Pull","id":"u1",{more}"#))
}

fn overriding(overriders: &str) -> Vec<Call> {
    with(OVERRIDES, &format!(r#"{SELECTORS},"overrideRules":[{{"overriders":{{{overriders}}}}}]"#))
}

/// The agent's Cluster, and what the agent makes of it or of its Work then.
fn by_agent(of_work: bool, change: &str) -> Vec<Call> {
    let cluster = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull", "id": "u1"}});
    let mut calls = vec![Call { user: AGENT, ..Call::json("POST", CLUSTERS, &cluster) }];
    let path = if of_work {
        calls.extend(work(&manifest(0)));
        format!("{WORKS}/a/status")
    } else {
        format!("{CLUSTERS}/m1/status")
    };
    calls.push(Call {
        user: AGENT,
        ..Call::new("PATCH", path, MERGE, format!(r#"{{"status":{{{change}}}}}"#))
    });
    calls
}

const SCALED: &str = r#""scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"a"}"#;

fn scripts(script: &str) -> Vec<Call> {
    let script = Value::from(script);
    with(
        RULES,
        &format!(
            r#""target":{{"apiVersion":"a.io/v1","kind":"A"}},"customizations":{{"healthInterpretation":{{"luaScript":{script}}}}}"#
        ),
    )
}

pub(crate) const ROWS: &[Row] = &[
    row("Work: manifests", 201, |n| work(&list(n, 90, manifest))),
    growth("Work: the same manifest", 201, |n| work(&list(n, 90, |_| manifest(0)))),
    growth("Work: manifests without a name", 422, |n| {
        work(&list(n, 30, |_| r#"{"apiVersion":"v1","metadata":{}}"#.to_owned()))
    }),
    row("Work: a manifest of many fields", 201, |n| {
        let keys = list(n, 14, |i| format!(r#""{:07}":"""#, down(i)));
        work(&format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{{{keys}}}}}"#
        ))
    }),
    growth("Work: annotations of a manifest", 201, |n| {
        let keys = list(n, 15, |i| format!(r#""a{:07}":"""#, down(i)));
        work(&format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","annotations":{{{keys}}}}}}}"#
        ))
    }),
    growth("Work: windows", 0, |n| {
        annotated(
            WORKS,
            "work.karmada.io/maintenance-windows",
            &"Mon 02:00-04:00; ".repeat(n / 17),
            r#""workload":{}"#,
        )
    }),
    growth("Work: statuses that an agent reports", 0, |n| {
        let statuses = list(n, 100, |i| {
            format!(
                r#"{{"identifier":{{"ordinal":{i},"version":"v1","kind":"A","resource":"as","name":"a{:07}"}},"status":{{}}}}"#,
                down(i)
            )
        });
        by_agent(true, &format!(r#""manifestStatuses":[{statuses}]"#))
    }),
    growth("Work: conditions that an agent reports", 0, |n| {
        let conditions = list(n, 110, |i| {
            format!(
                r#"{{"type":"C{:07}","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}}"#,
                down(i)
            )
        });
        by_agent(true, &format!(r#""conditions":[{conditions}]"#))
    }),
    row("ResourceBinding: clusters", 201, |n| {
        binding(&format!(
            r#""clusters":[{}]"#,
            list(n, 32, |i| format!(r#"{{"name":"m{:07}","replicas":1}}"#, down(i)))
        ))
    }),
    growth("ResourceBinding: the same cluster", 422, |n| {
        binding(&format!(r#""clusters":[{}]"#, list(n, 26, |_| r#"{"name":"m","replicas":-1}"#.to_owned())))
    }),
    growth("ResourceBinding: the same part", 422, |n| {
        binding(&format!(r#""components":[{}]"#, list(n, 26, |_| r#"{"name":"m","replicas":-1}"#.to_owned())))
    }),
    growth("ResourceBinding: evictions", 0, |n| {
        let tasks =
            list(n, 70, |i| format!(r#"{{"fromCluster":"m{:07}","reason":"R","producer":"P"}}"#, down(i)));
        binding(&format!(r#""gracefulEvictionTasks":[{tasks}]"#))
    }),
    growth("ResourceBinding: those that require it", 0, |n| {
        let of =
            list(n, 60, |i| format!(r#"{{"namespace":"default","name":"b{:07}","clusters":[]}}"#, down(i)));
        binding(&format!(r#""requiredBy":[{of}]"#))
    }),
    growth("ResourceBinding: dependencies", 0, |n| {
        let all = list(n, 55, |i| format!(r#"{{"apiVersion":"v1","kind":"A","name":"a{:07}"}}"#, down(i)));
        let resource =
            r#""resource":{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"c"}"#;
        annotated(BINDINGS, "resourcebinding.karmada.io/dependencies", &format!("[{all},{{}}]"), resource)
    }),
    growth("Cluster: taints", 0, |n| {
        cluster(&format!(
            r#""taints":[{}]"#,
            list(n, 45, |i| format!(r#"{{"key":"k{:07}","value":"v","effect":"NoSchedule"}}"#, down(i)))
        ))
    }),
    growth("Cluster: the same taint", 0, |n| {
        cluster(&format!(
            r#""taints":[{}]"#,
            list(n, 40, |_| r#"{"key":"k","value":"v","effect":"NoSchedule"}"#.to_owned())
        ))
    }),
    growth("Cluster: wrong taints", 0, |n| {
        cluster(&format!(r#""taints":[{}]"#, list(n, 30, |_| r#"{"key":"-","effect":"Never"}"#.to_owned())))
    }),
    growth("Cluster: zones", 0, |n| {
        cluster(&format!(r#""zones":[{}]"#, list(n, 11, |i| format!(r#""z{:07}""#, down(i)))))
    }),
    growth("Cluster: models", 0, |n| {
        let models = list(n, 75, |i| {
            format!(r#"{{"grade":{},"ranges":[{{"name":"cpu","min":"{i}","max":"{}"}}]}}"#, i, i + 1)
        });
        cluster(&format!(r#""resourceModels":[{models}]"#))
    }),
    growth("Cluster: ranges of a model", 0, |n| {
        let ranges = list(n, 45, |i| format!(r#"{{"name":"r{:07}","min":"0","max":"1"}}"#, down(i)));
        cluster(&format!(r#""resourceModels":[{{"grade":0,"ranges":[{ranges}]}}]"#))
    }),
    growth("Cluster: windows", 0, |n| {
        let windows = "Mon 02:00-04:00; ".repeat(n / 17);
        annotated(CLUSTERS, "cluster.karmada.io/maintenance-windows", &windows, r#""syncMode":"Pull""#)
    }),
    growth("Cluster: what an agent says is served", 0, |n| {
        let groups = list(n, 80, |i| {
            format!(r#"{{"groupVersion":"g{:07}/v1","resources":[{{"name":"a","kind":"A"}}]}}"#, down(i))
        });
        by_agent(false, &format!(r#""apiEnablements":[{groups}]"#))
    }),
    growth("Cluster: the kinds of one group", 0, |n| {
        let kinds = list(n, 35, |i| format!(r#"{{"name":"r{:07}","kind":"K"}}"#, down(i)));
        by_agent(false, &format!(r#""apiEnablements":[{{"groupVersion":"g/v1","resources":[{kinds}]}}]"#))
    }),
    growth("Cluster: figures of an agent", 0, |n| {
        let resources = list(n, 14, |i| format!(r#""r{:07}":"1""#, down(i)));
        by_agent(false, &format!(r#""resourceSummary":{{"allocatable":{{{resources}}}}}"#))
    }),
    growth("PropagationPolicy: selectors", 0, |n| {
        let selectors =
            list(n, 60, |i| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","name":"c{:07}"}}"#, down(i)));
        with(POLICIES, &format!(r#""resourceSelectors":[{selectors}],"placement":{{}}"#))
    }),
    growth("PropagationPolicy: selectors of others", 422, |n| {
        let selectors =
            list(n, 60, |_| r#"{"apiVersion":"a/b/c","kind":"ConfigMap","namespace":"other"}"#.to_owned());
        with(POLICIES, &format!(r#""resourceSelectors":[{selectors}],"placement":{{}}"#))
    }),
    growth("PropagationPolicy: labels", 0, |n| {
        let labels = list(n, 15, |i| format!(r#""a{:07}":"""#, down(i)));
        with(
            POLICIES,
            &format!(
                r#""resourceSelectors":[{{"apiVersion":"v1","kind":"ConfigMap","labelSelector":{{"matchLabels":{{{labels}}}}}}}]"#
            ),
        )
    }),
    row("PropagationPolicy: cluster names", 201, |n| {
        let names = list(n, 11, |i| format!(r#""m{:07}""#, down(i)));
        placed(&format!(r#""clusterAffinity":{{"clusterNames":[{names}]}}"#))
    }),
    growth("PropagationPolicy: affinities", 0, |n| {
        let all = list(n, 30, |i| format!(r#"{{"affinityName":"a{:07}"}}"#, down(i)));
        placed(&format!(r#""clusterAffinities":[{all}]"#))
    }),
    growth("PropagationPolicy: the same affinity", 422, |n| {
        placed(&format!(r#""clusterAffinities":[{}]"#, list(n, 21, |_| r#"{"affinityName":"a"}"#.to_owned())))
    }),
    growth("PropagationPolicy: fields", 422, |n| {
        let all = list(n, 40, |_| r#"{"key":"x","operator":"Exists","values":[]}"#.to_owned());
        placed(&format!(r#""clusterAffinity":{{"fieldSelector":{{"matchExpressions":[{all}]}}}}"#))
    }),
    growth("PropagationPolicy: spread", 0, |n| {
        let all = list(n, 45, |_| r#"{"spreadByField":"region","minGroups":1}"#.to_owned());
        placed(&format!(r#""spreadConstraints":[{all}]"#))
    }),
    growth("PropagationPolicy: weights", 0, |n| {
        let all = list(n, 65, |i| {
            format!(r#"{{"targetCluster":{{"clusterNames":["m{:07}"]}},"weight":1}}"#, down(i))
        });
        placed(&format!(
            r#""replicaScheduling":{{"replicaSchedulingType":"Divided","replicaDivisionPreference":"Weighted","weightPreference":
            {{"staticWeightList":[{all}]}}}}"#
        ))
    }),
    growth("PropagationPolicy: tolerations", 0, |n| {
        let all = list(n, 40, |i| format!(r#"{{"key":"k{:07}","operator":"Exists"}}"#, down(i)));
        placed(&format!(r#""clusterTolerations":[{all}]"#))
    }),
    growth("PropagationPolicy: waves", 0, |n| {
        let spec = format!(r#"{SELECTORS},"placement":{{}}"#);
        annotated(
            POLICIES,
            "policy.karmada.io/rollout",
            &format!("{}100%", "1% soak=1m; ".repeat(n / 12)),
            &spec,
        )
    }),
    growth("PropagationPolicy: windows", 0, |n| {
        let spec = format!(r#"{SELECTORS},"placement":{{}}"#);
        annotated(
            POLICIES,
            "policy.karmada.io/maintenance-windows",
            &"Mon 02:00-04:00; ".repeat(n / 17),
            &spec,
        )
    }),
    growth("PropagationPolicy: a gate", 0, |n| {
        let spec = format!(r#"{SELECTORS},"placement":{{}}"#);
        let gate = "maxFailures=2% ".repeat(n / 15);
        annotated(POLICIES, "policy.karmada.io/rollout-gate", &gate, &spec)
    }),
    growth("OverridePolicy: rules", 0, |n| {
        let rules = list(n, 70, |i| {
            format!(r#"{{"targetCluster":{{"clusterNames":["m{:07}"]}},"overriders":{{}}}}"#, down(i))
        });
        with(OVERRIDES, &format!(r#"{SELECTORS},"overrideRules":[{rules}]"#))
    }),
    growth("OverridePolicy: paths", 0, |n| {
        let all =
            list(n, 60, |i| format!(r#"{{"path":"/data/k{:07}","operator":"add","value":"v"}}"#, down(i)));
        overriding(&format!(r#""plaintext":[{all}]"#))
    }),
    growth("OverridePolicy: fields", 0, |n| {
        let all =
            list(n, 65, |i| format!(r#"{{"subPath":"/k{:07}","operator":"add","value":"v"}}"#, down(i)));
        overriding(&format!(r#""fieldOverrider":[{{"fieldPath":"/data/k","json":[{all}]}}]"#))
    }),
    growth("OverridePolicy: images", 0, |n| {
        let all = list(n, 100, |i| {
            format!(
                r#"{{"predicate":{{"path":"/spec/{:07}"}},"component":"Tag","operator":"replace","value":"1"}}"#,
                down(i)
            )
        });
        overriding(&format!(r#""imageOverrider":[{all}]"#))
    }),
    growth("OverridePolicy: labels", 0, |n| {
        let keys = list(n, 15, |i| format!(r#""a{:07}":"""#, down(i)));
        overriding(&format!(r#""labelsOverrider":[{{"operator":"add","value":{{{keys}}}}}]"#))
    }),
    growth("ClusterTaintPolicy: taints", 0, |n| {
        let all = list(n, 40, |i| format!(r#"{{"key":"k{:07}","effect":"NoSchedule"}}"#, down(i)));
        with(TAINTS, &format!(r#""taints":[{all}]"#))
    }),
    growth("ClusterTaintPolicy: conditions", 0, |n| {
        let all = list(n, 75, |i| {
            format!(r#"{{"conditionType":"C{:07}","operator":"In","statusValues":["True"]}}"#, down(i))
        });
        with(
            TAINTS,
            &format!(
                r#""taints":[{{"key":"k","effect":"NoSchedule"}}],"addOnConditions":[{all}],"removeOnConditions":[{all}]"#
            ),
        )
    }),
    growth("FederatedResourceQuota: resources", 0, |n| {
        let all = list(n, 14, |i| format!(r#""r{:07}":"1""#, down(i)));
        with(QUOTAS, &format!(r#""overall":{{{all}}}"#))
    }),
    growth("FederatedResourceQuota: clusters", 0, |n| {
        let all = list(n, 50, |i| format!(r#"{{"clusterName":"m{:07}","hard":{{"cpu":"1"}}}}"#, down(i)));
        with(QUOTAS, &format!(r#""overall":{{"cpu":"1"}},"staticAssignments":[{all}]"#))
    }),
    growth("FederatedResourceQuota: resources of a cluster", 0, |n| {
        let all = list(n / 2, 14, |i| format!(r#""r{:07}":"1""#, down(i)));
        with(
            QUOTAS,
            &format!(r#""overall":{{{all}}},"staticAssignments":[{{"clusterName":"m","hard":{{{all}}}}}]"#),
        )
    }),
    growth("CronFederatedHPA: rules", 0, |n| {
        let all = list(n, 65, |i| {
            format!(r#"{{"name":"r{:07}","schedule":"* * * * *","targetReplicas":1}}"#, down(i))
        });
        with(CRONS, &format!(r#"{SCALED},"rules":[{all}]"#))
    }),
    growth("CronFederatedHPA: a schedule", 0, |n| {
        let schedule = format!("{}0 * * * *", "0,".repeat(n / 2));
        with(
            CRONS,
            &format!(r#"{SCALED},"rules":[{{"name":"r","schedule":"{schedule}","targetReplicas":1}}]"#),
        )
    }),
    growth("FederatedHPA: metrics", 0, |n| {
        let all = list(n, 120, |i| {
            format!(
                r#"{{"type":"Resource","resource":{{"name":"r{:07}","target":{{"type":"Utilization","averageUtilization":50}}}}}}"#,
                down(i)
            )
        });
        with(SCALERS, &format!(r#"{SCALED},"minReplicas":1,"maxReplicas":2,"metrics":[{all}]"#))
    }),
    growth("FederatedHPA: policies", 0, |n| {
        let all = list(n, 45, |_| r#"{"type":"Pods","value":1,"periodSeconds":1}"#.to_owned());
        with(
            SCALERS,
            &format!(
                r#"{SCALED},"minReplicas":1,"maxReplicas":2,"behavior":{{"scaleUp":{{"policies":[{all}]}}}}"#
            ),
        )
    }),
    growth("MultiClusterService: ports", 0, |n| {
        let all = list(n, 35, |i| format!(r#"{{"name":"p{:07}","port":{}}}"#, down(i), i % 60_000 + 1));
        with(SERVICES, &format!(r#""types":["CrossCluster"],"ports":[{all}]"#))
    }),
    growth("MultiClusterService: clusters", 0, |n| {
        let all = list(n, 20, |i| format!(r#"{{"name":"m{:07}"}}"#, down(i)));
        with(
            SERVICES,
            &format!(r#""types":["CrossCluster"],"providerClusters":[{all}],"consumerClusters":[{all}]"#),
        )
    }),
    growth("MultiClusterService: types", 0, |n| {
        with(SERVICES, &format!(r#""types":[{}]"#, list(n, 16, |_| r#""CrossCluster""#.to_owned())))
    }),
    growth("MultiClusterIngress: rules", 0, |n| {
        let all = list(n, 25, |i| format!(r#"{{"host":"h{:07}.io"}}"#, down(i)));
        with(INGRESSES, &format!(r#""rules":[{all}]"#))
    }),
    growth("MultiClusterIngress: paths", 0, |n| {
        let all = list(n, 110, |i| {
            format!(
                r#"{{"path":"/{:07}","pathType":"Exact","backend":{{"service":{{"name":"s","port":{{"number":1}}}}}}}}"#,
                down(i)
            )
        });
        with(INGRESSES, &format!(r#""rules":[{{"http":{{"paths":[{all}]}}}}]"#))
    }),
    growth("MultiClusterIngress: hosts", 0, |n| {
        let all = list(n, 14, |i| format!(r#""h{:07}.io""#, down(i)));
        with(INGRESSES, &format!(r#""tls":[{{"hosts":[{all}]}}],"rules":[{{"host":"a"}}]"#))
    }),
    growth("ResourceInterpreterCustomization: a long script", 0, |n| {
        let lines = "local x = 1\n".repeat(n / 15);
        scripts(&format!("function InterpretHealth(o) do {lines} end return true end"))
    }),
    growth("ResourceInterpreterCustomization: a deep script", 0, |n| {
        scripts(&format!(
            "function InterpretHealth(o) return {}1{} end",
            "(".repeat(n / 2),
            ")".repeat(n / 2)
        ))
    }),
    growth("ResourceInterpreterCustomization: a wide script", 0, |n| {
        scripts(&format!(
            "function InterpretHealth(o) local t = {{{}}} return true end",
            list(n, 2, |_| "1".to_owned())
        ))
    }),
    growth("template: annotations of the hub's", 0, |n| {
        let value = Value::from("1m ".repeat(n / 3));
        post(MAPS, &format!(r#","annotations":{{"work.karmada.io/fence-after":{value}}}"#), "")
    }),
];

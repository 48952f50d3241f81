//! Flux: sources, kustomizations and Helm releases.

use super::{
    Judge, Known, Name, PLAIN,
    aggregate::Sum::{Conditions, Count as Add, Generation, Last},
};
use crate::Field;

const SOURCE: &str = "source.toolkit.fluxcd.io/v1beta2";
const SECRET: Name = Name::Secret(&["spec", "secretRef", "name"]);
const VERIFY: Name = Name::Secret(&["spec", "verify", "secretRef", "name"]);
const ACCOUNT: Name = Name::Account(&["spec", "serviceAccountName"]);
const KUBECONFIG: Name = Name::Secret(&["spec", "kubeConfig", "secretRef", "name"]);
/// Someone on the member may pause it.
const SUSPEND: &[Field] = &[&["spec", "suspend"]];

/// What all of Flux's kinds have in common.
const FLUX: Known = Known {
    api_version: SOURCE,
    generations: true,
    health: Judge::Ready(&["Succeeded"]),
    retain: SUSPEND,
    ..PLAIN
};

pub(super) const KINDS: &[Known] = &[
    Known {
        api_version: "source.toolkit.fluxcd.io/v1",
        kind: "GitRepository",
        status: Some(&[
            "conditions",
            "artifact",
            "observedIgnore",
            "observedRecurseSubmodules",
            "lastHandledReconcileAt",
        ]),
        sums: &[
            ("artifact", Last),
            ("lastHandledReconcileAt", Last),
            ("conditions", Conditions),
            ("observedGeneration", Generation),
        ],
        names: &[SECRET, VERIFY],
        ..FLUX
    },
    Known {
        kind: "Bucket",
        status: Some(&["conditions", "artifact", "observedIgnore", "url"]),
        sums: &[
            ("artifact", Last),
            ("url", Last),
            ("conditions", Conditions),
            ("observedGeneration", Generation),
        ],
        names: &[SECRET],
        ..FLUX
    },
    Known {
        kind: "HelmChart",
        status: Some(&[
            "conditions",
            "artifact",
            "observedChartName",
            "observedSourceArtifactRevision",
            "url",
        ]),
        sums: &[
            ("artifact", Last),
            ("url", Last),
            ("observedChartName", Last),
            ("observedSourceArtifactRevision", Last),
            ("conditions", Conditions),
            ("observedGeneration", Generation),
        ],
        health: Judge::Ready(&["Succeeded", "ChartPullSucceeded"]),
        names: &[VERIFY],
        ..FLUX
    },
    Known {
        kind: "HelmRepository",
        status: Some(&["conditions", "artifact", "url", "lastHandledReconcileAt"]),
        sums: &[
            ("artifact", Last),
            ("url", Last),
            ("lastHandledReconcileAt", Last),
            ("conditions", Conditions),
            ("observedGeneration", Generation),
        ],
        names: &[SECRET],
        ..FLUX
    },
    Known {
        kind: "OCIRepository",
        status: Some(&[
            "conditions",
            "url",
            "artifact",
            "observedIgnore",
            "observedLayerSelector",
            "lastHandledReconcileAt",
        ]),
        sums: &[
            ("artifact", Last),
            ("url", Last),
            ("lastHandledReconcileAt", Last),
            ("conditions", Conditions),
            ("observedGeneration", Generation),
        ],
        names: &[SECRET, VERIFY, Name::Secret(&["spec", "certSecretRef", "name"]), ACCOUNT],
        ..FLUX
    },
    Known {
        api_version: "kustomize.toolkit.fluxcd.io/v1",
        kind: "Kustomization",
        status: Some(&["conditions", "lastAppliedRevision", "lastAttemptedRevision"]),
        sums: &[
            ("lastAppliedRevision", Last),
            ("lastAttemptedRevision", Last),
            ("conditions", Conditions),
            ("observedGeneration", Generation),
        ],
        health: Judge::Ready(&["ReconciliationSucceeded"]),
        names: &[Name::Secret(&["spec", "decryption", "secretRef", "name"]), KUBECONFIG, ACCOUNT],
        ..FLUX
    },
    Known {
        api_version: "helm.toolkit.fluxcd.io/v2beta1",
        kind: "HelmRelease",
        status: Some(&[
            "conditions",
            "lastAttemptedRevision",
            "lastAppliedRevision",
            "lastAttemptedValuesChecksum",
            "helmChart",
            "lastReleaseRevision",
            "failures",
            "upgradeFailures",
            "installFailures",
        ]),
        sums: &[
            ("lastAttemptedRevision", Last),
            ("lastAppliedRevision", Last),
            ("lastAttemptedValuesChecksum", Last),
            ("helmChart", Last),
            ("lastReleaseRevision", Last),
            // Karmada adds them to the sum of the last time.
            ("failures", Add),
            ("upgradeFailures", Add),
            ("installFailures", Add),
            ("conditions", Conditions),
            ("observedGeneration", Generation),
        ],
        health: Judge::Ready(&["ReconciliationSucceeded"]),
        names: &[
            Name::Either(&["spec", "valuesFrom"]),
            Name::Secret(&["spec", "chart", "spec", "verify", "secretRef", "name"]),
            KUBECONFIG,
            ACCOUNT,
        ],
        ..FLUX
    },
];

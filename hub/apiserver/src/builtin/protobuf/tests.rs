use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::findings::Findings;

/// A field of text, bytes or a message.
fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let mut out = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 0x7f {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend(content);
    out
}

fn number(field: u8, number: u8) -> Vec<u8> {
    vec![field << 3, number]
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let head = [field(1, api_version), field(2, kind)].concat();
    [PREFIX.to_vec(), field(1, head), field(2, raw), field(3, ""), field(4, "")].concat()
}

/// Reads a body as a request's handler does: the object as it would be stored.
fn read(body: &[u8]) -> Result<Value, String> {
    let envelope = Envelope::open(body).map_err(|e| e.to_string())?;
    let mut object = envelope.object(("", "", "")).map_err(|e| e.to_string())?;
    let Some(ty) = envelope.ty(("", "", "")) else { return Ok(object) };
    let head = envelope.head();
    for field in ["kind", "apiVersion"] {
        object.as_object_mut().unwrap().remove(field);
    }
    let mut decoded = types::decode(ty, &object, &mut Findings::default()).map_err(|e| e.0)?;
    decoded.as_object_mut().unwrap().extend(head.as_object().unwrap().clone());
    Ok(decoded)
}

/// A Deployment as a Go client writes one: what is no pointer is there, be it zero.
fn deployment() -> Vec<u8> {
    let labels = field(11, [field(1, "app"), field(2, "web")].concat());
    let metadata = [
        field(1, "web"),
        field(2, ""),
        field(3, "shop"),
        field(4, ""),
        field(5, ""),
        field(6, ""),
        number(7, 0),
        field(8, ""),
        labels,
    ]
    .concat();
    let selector = field(1, [field(1, "app"), field(2, "web")].concat());
    let limit = [field(1, "memory"), field(2, field(1, "0.5Gi"))].concat();
    let probe = field(
        1,
        field(2, [field(1, "/"), field(2, [number(1, 1), number(2, 0), field(3, "http")].concat())].concat()),
    );
    let container =
        [field(1, "web"), field(2, "nginx"), field(8, field(1, limit)), field(11, probe)].concat();
    let pod = [field(2, container), field(3, "Always"), number(4, 30), number(11, 0)].concat();
    let template = [field(1, field(8, "")), field(2, pod)].concat();
    let surge = field(2, [number(1, 0), number(2, 1), field(3, "")].concat());
    let strategy = [field(1, "RollingUpdate"), field(2, surge)].concat();
    let spec = [
        number(1, 2),
        field(2, selector),
        field(3, template),
        field(4, strategy),
        number(5, 0),
        number(7, 0),
    ];
    let status = [number(1, 0), number(2, 0)].concat();
    // A field of a Kubernetes to come is skipped.
    let unknown = field(15, "from the future");
    envelope(
        "apps/v1",
        "Deployment",
        &[field(1, metadata), field(2, spec.concat()), field(3, status), unknown].concat(),
    )
}

#[test]
fn a_deployment_reads_as_its_json() {
    let want = json!({
        "kind": "Deployment", "apiVersion": "apps/v1",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {
                "metadata": {},
                "spec": {
                    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
                    "containers": [{
                        "name": "web", "image": "nginx", "resources": {"limits": {"memory": "512Mi"}},
                        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
                    }],
                },
            },
        },
        "status": {},
    });
    assert_eq!(read(&deployment()), Ok(want));
}

#[test]
fn bytes_times_and_packed_numbers() {
    let data = field(2, [field(1, "k"), field(2, [0_u8, 255])].concat());
    let secret = envelope("v1", "Secret", &[field(1, field(1, "s")), data, field(3, "Opaque")].concat());
    assert_eq!(
        read(&secret),
        Ok(
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "data": {"k": "AP8="}, "type": "Opaque"})
        )
    );
    // 2020-01-01T00:00:00.0000015Z
    let renewed = field(4, [vec![8, 0x80, 0xc2, 0xaf, 0xf0, 0x5], vec![16, 0xdc, 11]].concat());
    let lease = envelope("coordination.k8s.io/v1", "Lease", &field(2, [number(2, 40), renewed].concat()));
    assert_eq!(
        read(&lease).unwrap()["spec"],
        json!({"leaseDurationSeconds": 40, "renewTime": "2020-01-01T00:00:00.000001Z"})
    );
    let group = [255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
    let user = [vec![16], group.to_vec(), field(4, [7, 8])].concat();
    let pod = envelope("v1", "Pod", &field(2, field(14, user)));
    assert_eq!(
        read(&pod).unwrap()["spec"]["securityContext"],
        json!({"runAsUser": -1, "supplementalGroups": [7, 8]})
    );
}

#[test]
fn parts_of_a_message_add_up_and_the_last_value_counts() {
    let twice = [field(1, field(1, "a")), field(1, field(3, "n")), field(1, field(1, "b"))].concat();
    let object = read(&envelope("v1", "ConfigMap", &twice)).unwrap();
    assert_eq!(object["metadata"], json!({"name": "b", "namespace": "n"}));
}

#[test]
fn what_is_no_object_is_refused_in_go_words() {
    let nested = |levels| {
        let mut schema = Vec::new();
        for _ in 0..levels {
            schema = field(28, schema);
            schema[0] = 0xe2;
            schema.insert(1, 1);
        }
        let version = field(4, field(1, schema));
        let spec = field(2, field(7, version));
        envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &spec)
    };
    assert!(read(&nested(100)).is_ok());
    let many = field(2, [0x12, 0].repeat(1 << 19));
    for (body, message) in [
        (b"".to_vec(), "empty data"),
        (
            b"{}".to_vec(),
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ),
        (b"k8s\0".to_vec(), "empty body"),
        (b"k8s\0\x0a\xff".to_vec(), "unexpected EOF"),
        (envelope("v1", "ConfigMap", &number(1, 1)), "proto: wrong wireType = 0 for field Metadata"),
        (
            envelope("v1", "ConfigMap", &field(1, [0x0c])),
            "proto: ObjectMeta: wiretype end group for non-group",
        ),
        (nested(1000), "exceeded max depth"),
        (envelope("v1", "Pod", &many), "too many messages within the object"),
        (
            envelope(
                "v1",
                "ResourceQuota",
                &field(2, field(1, [field(1, "cpu"), field(2, field(1, "x"))].concat())),
            ),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ] {
        assert_eq!(read(&body).unwrap_err(), message);
    }
}

#[test]
fn a_body_that_does_not_say_what_it_is_is_what_the_path_says() {
    let body = envelope("", "", &field(1, field(1, "a")));
    let object = Envelope::open(&body).unwrap().object(("", "v1", "ConfigMap"));
    assert_eq!(object, Ok(json!({"metadata": {"name": "a"}})));
    let options = envelope("apps/v1", "DeleteOptions", &field(4, "Foreground"));
    assert_eq!(
        read(&options),
        Ok(json!({"kind": "DeleteOptions", "apiVersion": "apps/v1", "propagationPolicy": "Foreground"}))
    );
    let unknown = envelope("v9", "Nothing", &field(1, "x"));
    assert_eq!(read(&unknown), Ok(json!({"kind": "Nothing", "apiVersion": "v9"})));
}

/// Pairs that Kubernetes keeps of every kind, with every field set.
#[test]
fn golden_pairs_read_as_their_json() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/facts/golden-protobuf");
    let Ok(files) = std::fs::read_dir(&dir) else {
        eprintln!("skipped: {} is not there", dir.display());
        return;
    };
    let mut count = 0;
    let mut wrong = Vec::new();
    for path in files.map(|file| file.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "pb")) {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).unwrap();
        let want: Value =
            serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap();
        // A WatchEvent does not say what it is.
        let got = if stem == "core.v1.WatchEvent" {
            Envelope::open(&bytes).unwrap().object(("", "v1", "WatchEvent")).map_err(|e| e.to_string())
        } else {
            read(&bytes)
        };
        if got.as_ref() != Ok(&want) {
            wrong.push(stem);
        }
        count += 1;
        // Cut anywhere, it is an error or less of an object, never a panic.
        for end in (0..bytes.len()).step_by(1 + bytes.len() / 200) {
            let _ = read(&bytes[..end]);
        }
    }
    assert!(count > 0, "{} is empty", dir.display());
    assert_eq!(wrong, Vec::<String>::new(), "of {count}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(raw in prop::collection::vec(any::<u8>(), 0..200), kind in 0..4_usize) {
        let (api_version, kind) = [
            ("v1", "Pod"),
            ("apps/v1", "Deployment"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("authorization.k8s.io/v1", "SubjectAccessReview"),
        ][kind];
        let _ = read(&raw);
        let _ = read(&[PREFIX, &raw].concat());
        let _ = read(&envelope(api_version, kind, &raw));
    }

    /// Small damage to a real message reaches further than noise does.
    #[test]
    fn damage_does_not_make_it_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), end in any::<prop::sample::Index>()) {
        let mut body = deployment();
        let at = at.index(body.len());
        body[at] = byte;
        let _ = read(&body);
        let _ = read(&body[..end.index(body.len())]);
    }
}

//! What is made of objects for people and for webhooks, and what is made of the webhooks' answers.

use std::time::SystemTime;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use karmada_cel::{Decl, EvalError, Program, Scope, Wanted};
use serde_json::{Value, json};

use super::{size, source::Source, thing};
use crate::{
    body, builtin,
    findings::Findings,
    table::{self, Include},
    webhooks::review,
};

/// What one evaluation may cost here: little, so that the end of it is met often.
const LIMIT: u64 = 20_000;

/// Rules in CEL: whatever is written, it is refused or ends within what it may cost, and comes to the same every time.
pub fn cel(data: &[u8]) {
    let mut source = Source::new(data);
    let schema = source.schema(3);
    let Some(decl) = Decl::of(&schema, false).or_else(|| Some(Decl::any())) else { return };
    let (this, old) = (source.value(4), source.value(4));
    let wanted = *source.one_of(&[Wanted::Bool, Wanted::Text, Wanted::Condition]);
    let scope = Scope::new(decl, source.below(2) == 0);
    let written = match source.below(2) {
        0 => source.rule(),
        _ => String::from_utf8_lossy(source.rest()).into_owned(),
    };
    let Ok(program) = Program::compile(&written, &scope, wanted) else { return };
    assert_eq!(
        Program::compile(&written, &scope, wanted).map(|again| again.max_cost).ok(),
        Some(program.max_cost),
        "{written}"
    );
    for old in [None, Some(&old)] {
        match wanted {
            Wanted::Text => {
                let outcome = program.text(&this, old, LIMIT);
                assert_eq!(program.text(&this, old, LIMIT), outcome, "{written}");
                within(&written, outcome.cost, outcome.value.is_err_and(|e| e == EvalError::TooExpensive));
            }
            Wanted::Bool | Wanted::Condition => {
                let outcome = program.holds(&this, old, LIMIT);
                assert_eq!(program.holds(&this, old, LIMIT), outcome, "{written}");
                within(&written, outcome.cost, outcome.value.is_err_and(|e| e == EvalError::TooExpensive));
            }
        }
    }
}

/// What went on to the end did not cost more than it may.
fn within(written: &str, cost: u64, too_expensive: bool) {
    assert!(too_expensive || cost <= LIMIT, "{written} cost {cost}");
}

/// Tables: a row has a cell for every heading, whatever the object holds, and is not much larger than it.
pub fn tables(data: &[u8]) {
    let mut source = Source::new(data);
    let kinds = builtin::kinds();
    let index = source.below(256);
    let custom = match source.below(4) {
        0 => {
            let columns: Vec<Value> = (0..source.below(4)).map(|_| source.column()).collect();
            thing(&source.schema(2), &columns)
        }
        _ => None,
    };
    let kind = custom.unwrap_or_else(|| kinds[index % kinds.len()].clone());
    let include = *source.one_of(&[Include::None, Include::Metadata, Include::Object]);
    let rest = source.rest();
    let object = match body::json(rest, &mut Findings::default()) {
        Ok(object) if object.is_object() => object,
        _ => Source::new(rest).object(5),
    };
    let now = SystemTime::UNIX_EPOCH;
    let table = table::render(&kind, "v1", include, [object.clone()], &json!({}), now);
    let table: Value = serde_json::from_str(&table).expect("a table is JSON");
    let columns = table["columnDefinitions"].as_array().map_or(0, Vec::len);
    let cells = table["rows"][0]["cells"].as_array().map_or(0, Vec::len);
    assert!(columns > 0 && columns == cells, "{columns} headings, {cells} cells of {}", kind.gvk.kind);
    let row = size(&table["rows"][0]["cells"]);
    assert!(row <= 64 * columns + columns * size(&object), "{row} bytes of {}", size(&object));
}

/// What a webhook answers: it is read or refused in words, and its patch makes an object, or does not.
pub fn webhook_answer(data: &[u8]) {
    let mut source = Source::new(data);
    let version = *source.one_of(&["v1", "v1beta1"]);
    let (mutates, object) = (source.below(2) == 0, source.object(3));
    let answer = match source.below(3) {
        0 => serde_json::from_slice(source.rest()).unwrap_or(Value::Null),
        shape => {
            let patch = BASE64_STANDARD.encode(source.operations().to_string());
            let mut response =
                json!({"uid": "u", "allowed": source.below(2) == 0, "status": source.value(3)});
            if shape == 1 {
                response["patch"] = patch.into();
                response["patchType"] = json!("JSONPatch");
            }
            response["warnings"] = source.value(2);
            json!({"apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview",
                "response": response})
        }
    };
    let read = review::reply(version, "u", mutates, &answer);
    let Ok(reply) = read else { return };
    if let Some(status) = &reply.refused {
        let status = review::denied("a.example.com", status);
        assert!((400..600).contains(&status.code()), "{status:?}");
        assert!(!status.message.is_empty());
    }
    assert!(mutates || reply.patch.is_empty(), "a validating webhook changes nothing");
    let patch = Value::from(reply.patch);
    if let Ok(patched) = karmada_smd::json_patch(&object, &patch) {
        let limit = size(&object) + size(&patch) + karmada_smd::patch::MAX_COPIED + 64;
        assert!(size(&patched) <= limit, "{patch}");
    }
}

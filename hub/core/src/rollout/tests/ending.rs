//! When the waves of a binding are over.

use serde_json::json;

use super::*;

#[test]
fn waves_end_where_nobody_asks_for_them() {
    let text = |phase| {
        let state = State { phase, ..State::first("r", "s") };
        serde_json::to_string(&state).unwrap()
    };
    let (complete, running) = (text(Phase::Complete), text(Phase::Running));
    let (complete, running) = (complete.as_str(), running.as_str());
    for (asks, outlives, state, ends) in [
        (false, false, Some(complete), true),
        (false, false, Some(running), true),
        (false, false, Some("{"), true),
        (false, false, None, false),
        (false, false, Some(ENDED), false),
        (true, false, Some(complete), false),
        (true, false, Some("{"), false),
        // The policy does not, and what it asked for is through, or a person has taken the state off.
        (true, true, Some(complete), true),
        (true, true, None, true),
        (true, true, Some(running), false),
        (true, true, Some("{"), false),
    ] {
        let mut before = json!({"metadata": {"name": "b", "annotations": {"other": "stays"}}});
        let annotations =
            [(ROLLOUT, asks.then_some("100%")), (OUTLIVES, outlives.then_some("true")), (STATE, state)];
        for (key, value) in annotations {
            if let Some(value) = value {
                object::set_annotation(&mut before, key, value);
            }
        }
        let (mut after, row) = (before.clone(), (asks, outlives, state));
        assert_eq!(end(&mut after), ends, "{row:?}");
        if ends {
            assert!(has_ended(&after) && State::read(&after) == Ok(None), "{row:?}");
            assert_eq!(after["metadata"]["annotations"], json!({"other": "stays", STATE: ENDED}), "{row:?}");
        } else {
            assert_eq!(after, before, "{row:?}");
        }
    }
}

//! What must hold of whatever users' scripts and services say: one function for each, over bytes that mean nothing yet.
//! Built for tests and with the feature `fuzzing` alone; `hub/fuzz` runs them with coverage.

#[cfg(feature = "lua")]
pub use crate::lua::fuzzing::{lua_script, lua_values};
pub use crate::webhook::fuzzing::service_answer;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCRIPTS: &[&str] = &[
        "",
        "return {}, 1",
        "while true do end",
        "local t = {} for i = 1, 1e9 do t[i] = i end return t, 1",
        "return {x = string.rep('a', 1e9)}, 1",
        "function F() return F() end",
        "return object, object.spec.replicas",
        "local t = object t.t = t return t, 1",
    ];

    #[test]
    fn scripts_end() {
        SCRIPTS.iter().for_each(|script| lua_script(script.as_bytes()));
    }

    #[test]
    fn a_small_patch_makes_no_large_object() {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        // Each copies what there is into a part of it: twenty of them would make a million times as much.
        let doubling: String =
            (0..40).map(|i| format!(r#",{{"op":"copy","from":"/spec","path":"/spec/n{i}"}}"#)).collect();
        let patch = format!(r#"[{{"op":"add","path":"/spec/x","value":1}}{doubling}]"#);
        let answer = format!(
            r#"{{"response":{{"successful":true,"patchType":"JSONPatch","patch":"{}"}}}}"#,
            STANDARD.encode(patch)
        );
        service_answer(answer.as_bytes());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn whatever_comes(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            lua_values(&data);
            lua_script(&data);
            service_answer(&data);
        }
    }
}

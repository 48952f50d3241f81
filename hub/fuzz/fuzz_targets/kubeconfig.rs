#![no_main]

//! What a user hands to the agent or the hub: it is read, or refused in words.

use karmada_client::Kubeconfig;

// YAML is changed by its bytes, and JSON, which is YAML, as a tree.
karmada_fuzz::mutator!(karmada_fuzz::json::change);

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(kubeconfig) = Kubeconfig::parse("kubeconfig", &text) {
        for context in [None, Some("a"), Some("")] {
            if let Err(error) = kubeconfig.endpoint(context) {
                assert!(error.to_string().contains("kubeconfig"), "{error}");
            }
        }
    }
});

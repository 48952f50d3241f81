#![no_main]

karmada_fuzz::mutator!(karmada_fuzz::json::change);

libfuzzer_sys::fuzz_target!(|data: &[u8]| karmada_apiserver::fuzzing::body(data));

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| karmada_apiserver::fuzzing::certificate_request(data));

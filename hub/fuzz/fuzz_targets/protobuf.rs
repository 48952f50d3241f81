#![no_main]

karmada_fuzz::mutator!(karmada_fuzz::wire::change);

libfuzzer_sys::fuzz_target!(|data: &[u8]| karmada_apiserver::fuzzing::protobuf(data));

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| karmada_member::fuzzing::works(data));

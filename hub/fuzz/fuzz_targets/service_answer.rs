#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| karmada_interpreter::fuzzing::service_answer(data));

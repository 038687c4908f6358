#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| polymeter_fuzz::federation::body(data));

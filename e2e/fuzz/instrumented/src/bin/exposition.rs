#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| polymeter_fuzz::exposition::body(data));

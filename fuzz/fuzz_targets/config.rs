#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| manypath_fuzz::config(data));

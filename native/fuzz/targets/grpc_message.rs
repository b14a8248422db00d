#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kushi_oip::fuzzing::grpc_message(bytes));

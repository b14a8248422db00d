#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kushi_client::fuzzing::grpc_answer(bytes));

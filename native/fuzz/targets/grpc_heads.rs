#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kushi_door_grpc::fuzzing::frame_heads(bytes));

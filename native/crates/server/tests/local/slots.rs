//! Large tensors in memory that both sides see.

use std::os::unix::fs::MetadataExt;

use bytes::Bytes;
use kushi_core::DataType;
use kushi_oip::{InferInputTensor, Kind, ModelInferRequest, ModelInferResponse};
use kushi_shm::Slot;
use kushi_testkit::until;

use crate::client::{Client, frame, request_in, request_of};
use crate::options::options;
use crate::site::{Site, echo_of, mapped_slots};

/// Answers above this travel in slots.
const LARGE: usize = 64 << 10;

fn fp32(elements: usize) -> InferInputTensor {
    InferInputTensor {
        name: "INPUT".into(),
        datatype: "FP32".into(),
        shape: vec![1, elements as i64],
        ..Default::default()
    }
}

fn large(byte: u8) -> ModelInferRequest {
    request_of(fp32(LARGE / 4), vec![byte; LARGE])
}

fn ask(client: &mut Client, request: &ModelInferRequest) -> ModelInferResponse {
    client.infer(1, request);
    client.answer().1
}

#[test]
fn an_input_in_a_slot_is_read_where_it_lies() {
    let site = Site::new(echo_of(DataType::Fp32));
    let mut client = site.connect();
    let slot = Slot::new(1 << 20).unwrap();
    client.announce(&slot);
    assert!(slot.write(256, &1.5_f32.to_le_bytes()));
    for _ in 0..2 {
        let answer = ask(&mut client, &request_in(&slot, 256, 1));
        assert_eq!(client.output(&answer).0[..], 1.5_f32.to_le_bytes());
    }
    let seen = site.puppet.seen();
    assert_eq!(seen[0].addresses, seen[1].addresses);
    assert_eq!(seen[0].addresses[0] % 4096, 256, "a slot begins with a page");
}

#[test]
fn what_is_checked_and_then_relied_on_is_copied_out_of_the_slot_first() {
    use DataType::{Bool, Bytes, Int32, Int64, Uint32, Uint64};
    for datatype in [Bool, Bytes, Int32, Int64, Uint32, Uint64] {
        let site = Site::new(echo_of(datatype));
        site.puppet.hold();
        let mut client = site.connect();
        client.infer(1, &request_of(typed(datatype, None), one_element(datatype)));
        site.puppet.await_batches(1);
        let slot = Slot::new(4096).unwrap();
        client.announce(&slot);
        let element = one_element(datatype);
        assert!(slot.write(0, &element));
        let range = kushi_oip::SlotRange { slot: slot.id(), offset: 0, length: element.len() as u64 };
        let mut request = request_of(typed(datatype, Some(range)), vec![]);
        request.raw_input_contents.clear();
        client.infer(2, &request);
        until("the request", || site.runner.backlog().requests == 1);
        assert!(slot.write(0, &[0xff; 16]));
        site.puppet.release_all();
        for id in [1, 2] {
            let (answered, answer) = client.answer();
            assert_eq!((answered, &client.output(&answer).0[..]), (id, &element[..]), "{datatype}");
        }
    }
}

#[test]
fn what_is_lent_counts_until_it_is_released_and_without_room_answers_travel_in_frames() {
    let mut options = options(1);
    options.limits.max_inflight_bytes = 4 * LARGE + 1000;
    let site = Site::started_with(&options, echo_of(DataType::Fp32));
    let mut client = site.connect();
    let own = Slot::new(LARGE).unwrap();
    client.announce(&own);
    let mut slots = Vec::new();
    for byte in 0..10 {
        let sent = vec![byte; LARGE];
        assert!(own.write(0, &sent));
        let answer = ask(&mut client, &request_in(&own, 0, LARGE as u64 / 4));
        let (bytes, slot) = client.output(&answer);
        assert_eq!(bytes, sent);
        slots.extend(slot);
        until("what is lent", || site.inflight_bytes() == slots.len() * LARGE);
    }
    assert_eq!(slots.len(), 4, "there is room for no more");
    client.release(&slots);
    until("nothing", || site.inflight_bytes() == 0);
}

#[test]
fn a_slot_is_not_read_for_a_request_that_does_not_fit_its_model() {
    let site = Site::new(echo_of(DataType::Int64));
    let mut client = site.connect();
    let slot = Slot::new(64 << 20).unwrap();
    client.announce(&slot);
    let range = kushi_oip::SlotRange { slot: slot.id(), offset: 0, length: slot.len() as u64 };
    let all = InferInputTensor { shape: vec![1, 8 << 20], ..typed(DataType::Int64, Some(range)) };
    let request = |inputs| ModelInferRequest { model_name: "echo".into(), inputs, ..Default::default() };
    let too_short = InferInputTensor { shape: vec![1, 1], ..all.clone() };
    let unknown = InferInputTensor { name: "OTHER".into(), ..all.clone() };
    for inputs in [vec![all.clone(); 4], vec![too_short], vec![unknown]] {
        client.infer(1, &request(inputs));
        assert_eq!(client.failure().1, "invalid_input");
    }
    let memory = std::fs::File::from(slot.fd().try_clone_to_owned().unwrap());
    assert_eq!(memory.metadata().unwrap().blocks(), 0, "the kernel has set no memory aside");
    client.infer(1, &request(vec![all]));
    assert_eq!(client.answer().1.outputs.len(), 1);
    assert!(memory.metadata().unwrap().blocks() > 0);
}

#[test]
fn what_takes_long_to_copy_keeps_nobody_waiting_and_outlives_its_slot() {
    let site = Site::new(echo_of(DataType::Int64));
    let mut client = site.connect();
    let slot = Slot::new(32 << 20).unwrap();
    client.announce(&slot);
    assert!(slot.write(0, &[7; 8]));
    let range = kushi_oip::SlotRange { slot: slot.id(), offset: 0, length: slot.len() as u64 };
    let input = InferInputTensor { shape: vec![1, 4 << 20], ..typed(DataType::Int64, Some(range)) };
    let long = ModelInferRequest { model_name: "echo".into(), inputs: vec![input], ..Default::default() };
    let short = request_of(typed(DataType::Int64, None), vec![1; 8]);
    let mut burst = frame(Kind::Infer, 1, &long);
    burst.extend_from_slice(&frame(Kind::Infer, 2, &short));
    burst.extend_from_slice(&frame(Kind::Forget, 0, &kushi_oip::Release { slots: vec![slot.id()] }));
    client.send(&burst);
    let (first, _) = client.answer();
    let (second, answer) = client.answer();
    assert_eq!((first, second), (2, 1));
    assert!(client.output(&answer).0.starts_with(&[7; 8]));
}

fn typed(datatype: DataType, slot: Option<kushi_oip::SlotRange>) -> InferInputTensor {
    InferInputTensor {
        name: "INPUT".into(),
        datatype: datatype.name().into(),
        shape: vec![1, 1],
        slot,
        ..Default::default()
    }
}

fn one_element(datatype: DataType) -> Vec<u8> {
    match datatype.size() {
        Some(size) => vec![1; size],
        None => b"\x03\0\0\0abc".to_vec(),
    }
}

#[test]
fn inputs_in_slots_and_in_the_frame_may_be_mixed() {
    let mut spec = echo_of(DataType::Fp32);
    spec.inputs.push(kushi_testkit::tensor_spec("SECOND", DataType::Fp32, &[-1]));
    spec.outputs.push(kushi_testkit::tensor_spec("SECOND", DataType::Fp32, &[-1]));
    let site = Site::new(spec);
    let mut client = site.connect();
    let slot = Slot::new(4096).unwrap();
    client.announce(&slot);
    assert!(slot.write(0, &[1; 4]));
    let mut request = request_in(&slot, 0, 1);
    request.inputs.insert(0, InferInputTensor { name: "SECOND".into(), ..fp32(1) });
    request.raw_input_contents.push(Bytes::from_static(&[2; 4]));
    let answer = ask(&mut client, &request);
    assert_eq!(answer.raw_output_contents, [Bytes::from_static(&[1; 4]), Bytes::from_static(&[2; 4])]);
}

#[test]
fn a_large_output_comes_in_a_slot_that_is_used_again_once_released() {
    let site = Site::new(echo_of(DataType::Fp32));
    let mut client = site.connect();
    let mut first = None;
    for byte in 1..5 {
        let answer = ask(&mut client, &large(byte));
        assert!(answer.raw_output_contents.is_empty());
        let (output, slot) = client.output(&answer);
        assert!(output.len() == LARGE && output.iter().all(|&found| found == byte));
        let slot = slot.unwrap();
        assert_eq!(*first.get_or_insert(slot), slot);
        client.release(&[slot, 999_999]);
    }
    assert_eq!(client.views.len(), 1);
}

#[test]
fn a_client_that_keeps_its_answers_gets_the_next_ones_in_frames() {
    let site = Site::new(echo_of(DataType::Fp32));
    let mut client = site.connect();
    let mut slots = Vec::new();
    loop {
        let answer = ask(&mut client, &large(slots.len() as u8));
        let (output, slot) = client.output(&answer);
        assert!(output.len() == LARGE && output.iter().all(|&byte| byte == slots.len() as u8));
        match slot {
            Some(slot) => slots.push(slot),
            None => break,
        }
    }
    assert_eq!(slots.len(), 256);
    let kept = client.views[&slots[3]].range(0, 1).unwrap();
    assert_eq!(kept[..], [3]);
    client.release(&slots);
    let answer = ask(&mut client, &large(9));
    assert!(client.output(&answer).1.is_some());
    assert!(client.forgotten.len() >= 200, "most are more than the server keeps");
    assert_eq!(client.views.len() + client.forgotten.len(), 256);
}

#[test]
fn a_forgotten_slot_is_unmapped_when_its_last_request_has_ended() {
    let site = Site::alone(echo_of(DataType::Fp32));
    site.puppet.hold();
    let mut client = site.connect();
    let slot = Slot::new(1 << 20).unwrap();
    let before = mapped_slots();
    client.announce(&slot);
    assert!(slot.write(0, &[1; 4]));
    client.infer(1, &request_in(&slot, 0, 1));
    site.puppet.await_batches(1);
    client.forget(&[slot.id()]);
    client.infer(2, &request_in(&slot, 0, 1));
    let (id, kind, text) = client.failure();
    assert_eq!((id, &*kind), (2, "invalid_input"));
    let id = slot.id();
    assert_eq!(text, format!("input 'INPUT' lies in slot {id}, which was not announced or is forgotten"));
    assert_eq!(mapped_slots(), before + 1, "a request is still in it");
    site.puppet.release_all();
    let (_, answer) = client.answer();
    assert_eq!(client.output(&answer).0[..], [1; 4]);
    until("no mapping", || mapped_slots() == before);
    client.announce(&slot);
    assert_eq!(ask(&mut client, &request_in(&slot, 0, 1)).outputs.len(), 1);
}

#[test]
fn an_answer_that_fits_nowhere_is_a_failure() {
    let mut spec = echo_of(DataType::Fp32);
    spec.queue.max_bytes = 4 << 30;
    let site = Site::new(spec);
    let mut client = site.connect();
    let bytes = 513_usize << 20;
    let slot = Slot::new(bytes).unwrap();
    client.announce(&slot);
    let request = request_in(&slot, 0, bytes as u64 / 4);
    let first = ask(&mut client, &request);
    assert_eq!(client.output(&first).0.len(), bytes);
    // A second one is more than a client may keep, and more than a frame takes.
    client.infer(2, &request);
    let (id, kind, text) = client.failure();
    assert_eq!((id, &*kind), (2, "unsupported"));
    assert!(text.ends_with("at most 67108864 travel outside of slots"), "{text}");
}

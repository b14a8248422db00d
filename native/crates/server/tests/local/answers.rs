//! What comes back, in which order, whatever the engine does.

use bytes::{Bytes, BytesMut};
use kushi_core::{DataType, Error, ErrorKind, Response};
use kushi_oip::infer_parameter::Choice;
use kushi_oip::{
    Call, CallAnswer, InferParameter, InferRequestedOutputTensor, InferTensorContents, Kind,
    ModelInferRequest,
};
use kushi_server::Asker;
use kushi_shm::Slot;
use kushi_testkit::{Act, echo_spec, respond, send_when_room, until};

use crate::client::{Client, Outcome, frame, request, request_in, request_of, tensor};
use crate::options::options;
use crate::site::{Site, echo_of};

#[test]
fn an_answer_names_its_model_its_request_and_its_outputs_and_tells_timings() {
    let site = Site::default();
    let mut client = site.connect();
    client.infer(3, &ModelInferRequest { id: "mine".into(), model_version: "1".into(), ..request(5) });
    let (id, answer) = client.answer();
    assert_eq!((id, &*answer.model_name, &*answer.model_version, &*answer.id), (3, "echo", "1", "mine"));
    let output = &answer.outputs[0];
    assert_eq!((&*output.name, &*output.datatype, &output.shape[..]), ("OUTPUT", "INT32", &[1, 1][..]));
    assert_eq!(answer.raw_output_contents, [Bytes::from(5_i32.to_le_bytes().to_vec())]);
    assert!(answer.timings.is_some());
}

#[test]
fn answers_come_in_any_order() {
    let site = Site::default();
    site.puppet.script([Act::Late, Act::Echo]);
    let mut client = site.connect();
    client.infer(1, &request(1));
    site.puppet.await_batches(1);
    client.infer(2, &request(2));
    assert!(client.echoes(2, 2));
    respond(site.puppet.late(), 1);
    let (id, answer) = client.answer();
    assert_eq!((id, answer.outputs.len()), (1, 0));
}

#[test]
fn the_answers_of_a_batch_arrive_together() {
    let site = Site::default();
    site.puppet.hold();
    let mut client = site.connect();
    client.infer(1, &request(1));
    site.puppet.await_batches(1);
    let mut burst = BytesMut::new();
    for id in 2..10 {
        burst.extend_from_slice(&frame(Kind::Infer, id, &request(id as i32)));
    }
    client.send(&burst);
    until("a full batch", || site.runner.backlog().requests == 8);
    site.puppet.release(0);
    assert!(client.echoes(1, 1));
    let before = client.reads;
    site.puppet.release(1);
    assert!((2..10).all(|id| client.echoes(id, id as i32)));
    assert_eq!(client.reads, before + 1);
    assert_eq!(site.puppet.seen()[1].rows, 8);
}

#[test]
fn inputs_without_names_are_taken_by_position() {
    let site = Site::default();
    let mut client = site.connect();
    let mut by_position = request(5);
    by_position.inputs[0].name.clear();
    client.infer(1, &by_position);
    assert!(client.echoes(1, 5));
    by_position.inputs.push(by_position.inputs[0].clone());
    by_position.raw_input_contents.push(by_position.raw_input_contents[0].clone());
    client.infer(2, &by_position);
    let (id, kind, text) = client.failure();
    assert_eq!((id, &*kind), (2, "invalid_input"));
    assert_eq!(text, "expected 1 inputs but got 2 inputs for model 'echo'");
}

/// A row of so many ascending numbers, of which some classes are wanted.
fn classes_of(numbers: usize, count: i64) -> ModelInferRequest {
    let parameter = InferParameter { choice: Some(Choice::Int64(count)) };
    let wanted = InferRequestedOutputTensor {
        name: "OUTPUT".into(),
        parameters: [("classification".to_owned(), parameter)].into(),
    };
    let data: Vec<u8> = (0..numbers as i32).flat_map(i32::to_le_bytes).collect();
    ModelInferRequest { outputs: vec![wanted], ..request_of(tensor(&[1, numbers as i64]), data) }
}

/// The best class of a row of FP32 values that lie in a slot.
fn class_in(slot: &Slot, numbers: u64) -> ModelInferRequest {
    let outputs = classes_of(0, 1).outputs;
    ModelInferRequest { outputs, ..request_in(slot, 0, numbers) }
}

#[test]
fn classes_come_in_place_of_an_output_be_it_small_or_large() {
    let site = Site::new(echo_of(DataType::Int32));
    let mut client = site.connect();
    for numbers in [2, 100_000, 1_000_000] {
        client.infer(1, &classes_of(numbers, 1));
        let (_, answer) = client.answer();
        let output = &answer.outputs[0];
        assert_eq!((&*output.datatype, &output.shape[..]), ("BYTES", &[1, 1][..]));
        let text = format!("{0}:{0}", numbers - 1);
        assert_eq!(answer.raw_output_contents[0][4..], *text.as_bytes());
    }
    client.infer(2, &classes_of(2, 0));
    let text = "invalid value for 'classification' parameter, expected >= 1";
    assert_eq!(client.failure(), (2, "invalid_input".into(), text.into()));
    client.infer(3, &classes_of(1_000_001, 1));
    let text = "classification output tensor too large";
    assert_eq!(client.failure(), (3, "invalid_input".into(), text.into()));
}

#[test]
fn outputs_whose_classes_are_chosen_count_as_bytes_in_flight() {
    let mut options = options(1);
    options.limits.max_inflight_bytes = 1 << 20;
    let site = Site::started_with(&options, echo_of(DataType::Fp32));
    site.puppet.hold();
    let mut client = site.connect();
    let numbers = 1_000_000;
    let slot = Slot::new(4 * numbers).unwrap();
    client.announce(&slot);
    for id in 1..=4 {
        client.infer(id, &class_in(&slot, numbers as u64));
        // The first has the engine to itself; the others come back together.
        site.puppet.await_batches(1);
    }
    until("a batch of three", || site.runner.backlog().requests == 3);
    site.puppet.release_all();
    let outcomes: Vec<Outcome> =
        (1..=4).filter_map(|_| client.outcome()).map(|(_, outcome)| outcome).collect();
    let refused =
        |outcome: &Outcome| matches!(outcome, Outcome::Failure { kind, .. } if kind == "overloaded");
    assert!(outcomes.iter().any(refused), "more than one has no room");
    assert!(outcomes.iter().any(|outcome| matches!(outcome, Outcome::Answer(_))));
    assert_eq!(site.inflight_bytes(), 0);
    client.infer(5, &class_in(&slot, numbers as u64));
    assert_eq!(client.answer().0, 5);
}

#[test]
fn a_client_may_leave_while_its_classes_are_chosen() {
    let site = Site::new(echo_of(DataType::Int32));
    for _ in 0..3 {
        let client = site.connect();
        client.infer(1, &classes_of(1_000_000, 1_000_000));
    }
    let mut client = site.connect();
    client.infer(1, &classes_of(2, 2));
    assert_eq!(client.answer().1.outputs[0].shape, [1, 2]);
}

#[test]
fn what_is_wrong_with_a_request_is_said_and_the_next_one_is_answered() {
    let site = Site::default();
    let mut client = site.connect();
    let named = |name: &str| ModelInferRequest { model_name: name.into(), ..request(1) };
    let version = |version: &str| ModelInferRequest { model_version: version.into(), ..request(1) };
    let output = InferRequestedOutputTensor { name: "NONE".into(), ..Default::default() };
    let contents = InferTensorContents { int_contents: vec![1], ..Default::default() };
    let typed = kushi_oip::InferInputTensor { contents: Some(contents), ..tensor(&[1, 1]) };
    let other_type = kushi_oip::InferInputTensor { datatype: "FP32".into(), ..tensor(&[1, 1]) };
    for (request, kind, text) in [
        (named("nobody"), "model_not_found", "Request for unknown model: 'nobody' is not found"),
        (version("9"), "model_not_found", "Request for unknown model: 'echo' version 9 is not found"),
        (
            version("x"),
            "invalid_input",
            "failed to get model version from specified version string 'x' (details: stol), version should be an \
             integral value > 0",
        ),
        (
            ModelInferRequest { outputs: vec![output], ..request(1) },
            "invalid_input",
            "unexpected inference output 'NONE' for model 'echo'",
        ),
        (
            ModelInferRequest { raw_input_contents: vec![], ..request(1) },
            "invalid_input",
            "expected 1 raw_input_contents, one for each input without a slot, got 0",
        ),
        (
            ModelInferRequest { raw_input_contents: vec![Bytes::new(); 2], ..request(1) },
            "invalid_input",
            "expected 1 raw_input_contents, one for each input without a slot, got 2",
        ),
        (
            request_of(typed, vec![]),
            "invalid_input",
            "input 'INPUT' has typed contents, expected raw_input_contents or a slot",
        ),
        (
            request_of(tensor(&[1, 1]), vec![0; 5]),
            "invalid_input",
            "input byte size mismatch for input 'INPUT' for model 'echo'. Expected 4, got 5",
        ),
        (
            request_of(other_type, vec![0; 4]),
            "invalid_input",
            "inference input 'INPUT' data-type is 'FP32', but model 'echo' expects 'INT32'",
        ),
    ] {
        client.infer(4, &request);
        assert_eq!(client.failure(), (4, kind.into(), text.into()));
    }
    client.send(&frame(Kind::Infer, 5, &kushi_oip::Hello { protocol: 9, version: String::new() }));
    let (id, kind, text) = client.failure();
    assert_eq!((id, &*kind), (5, "invalid_input"));
    assert_eq!(text, "failed to parse the request: a field has another type than expected");
    assert!(client.asks(6));
}

#[test]
fn an_engine_that_fails_panics_or_says_nothing_is_a_failure_and_the_next_request_is_answered() {
    let site = Site::default();
    let mut client = site.connect();
    let failure = Error::new(ErrorKind::EngineFailed, "out of flour");
    for (act, text) in [
        (Act::Fail(failure), "out of flour"),
        (Act::Panic, "the engine of model 'echo' panicked"),
        (Act::Drop, "the engine of model 'echo' dropped the batch unanswered"),
        (Act::Silence, "model 'echo' gave 0 responses, expected exactly 1"),
        (Act::Respond(3), "model 'echo' gave 3 responses, expected exactly 1"),
    ] {
        site.puppet.script([act]);
        client.infer(1, &request(1));
        assert_eq!(client.failure(), (1, "engine_failed".into(), text.into()));
        assert!(client.asks(7));
    }
}

#[test]
fn an_engine_of_many_answers_comes_to_its_end() {
    const MANY: usize = 500;
    let site = Site::default();
    let mut client = site.connect();
    site.puppet.script([Act::Late]);
    client.infer(1, &request(1));
    let mut batch = site.puppet.late();
    let empty = || Response::default();
    assert!((0..MANY).all(|_| send_when_room(&mut batch, 0, empty())));
    batch.end(0, Ok(()));
    let text = format!("model 'echo' gave {MANY} responses, expected exactly 1");
    assert_eq!(client.failure(), (1, "engine_failed".into(), text));
}

#[test]
fn a_cancelled_request_frees_its_place_at_once_and_still_ends() {
    let mut spec = echo_spec();
    spec.queue.levels[0].max_requests = 1;
    let site = Site::new(spec);
    site.puppet.hold();
    let mut client = site.connect();
    client.infer(1, &request(1));
    site.puppet.await_batches(1);
    client.infer(2, &request(2));
    client.infer(3, &request(3));
    assert_eq!(client.failure(), (3, "overloaded".into(), "Exceeds maximum queue size".into()));
    client.cancel(2);
    assert_eq!(client.failure(), (2, "cancelled".into(), String::new()));
    client.infer(3, &request(3));
    until("a full queue", || site.runner.backlog().requests == 1);
    client.cancel(1);
    client.cancel(99);
    client.await_pong();
    site.puppet.release_all();
    assert_eq!(client.failure(), (1, "cancelled".into(), String::new()));
    assert!(client.echoes(3, 3));
}

#[test]
fn deadlines_end_requests_in_the_queue_and_in_the_engine() {
    let site = Site::default();
    site.puppet.hold();
    let mut client = site.connect();
    let patient = |timeout_us, value| ModelInferRequest { timeout_us, ..request(value) };
    // Long enough for the instance thread to take it, on a busy machine too.
    client.infer(1, &patient(500_000, 1));
    site.puppet.await_batches(1);
    client.infer(2, &patient(60_000_000, 2));
    client.infer(3, &patient(20_000, 3));
    let mut expired: Vec<_> = [client.failure(), client.failure()].into();
    expired.sort();
    let text = "Request timeout expired";
    assert_eq!(expired, [1, 3].map(|id| (id, "deadline_exceeded".to_owned(), text.to_owned())));
    // The engine still holds the first one; its id is free.
    client.infer(1, &patient(u64::MAX, 4));
    site.puppet.release_all();
    assert!(client.echoes(2, 2) && client.echoes(1, 4));
}

#[test]
fn a_ping_is_answered_while_requests_are_not() {
    let site = Site::default();
    site.puppet.hold();
    let mut client = site.connect();
    client.infer(1, &request(1));
    site.puppet.await_batches(1);
    client.await_pong();
}

fn ask(client: &mut Client, call: &Call) -> CallAnswer {
    client.send(&frame(Kind::Call, 8, call));
    match client.outcome() {
        Some((8, Outcome::Call(answer))) => answer,
        other => panic!("no answer: {other:?}"),
    }
}

#[test]
fn answers_count_as_bytes_in_flight_until_they_are_read() {
    const REQUESTS: usize = 64;
    const ELEMENTS: usize = 15 << 10;
    let site = Site::default();
    let mut watcher = site.connect();
    let metrics = Call { verb: "Metrics".into(), arguments: Bytes::new() };
    let mut in_flight = || -> usize {
        let answer = ask(&mut watcher, &metrics);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix("kushi_inflight_bytes "));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    site.puppet.hold();
    let mut client = site.connect();
    let row = tensor(&[1, ELEMENTS as i64]);
    for id in 1..=REQUESTS as u64 {
        client.infer(id, &request_of(row.clone(), vec![0; 4 * ELEMENTS]));
    }
    until("a queue", || site.runner.inside() == REQUESTS);
    site.puppet.release_all();
    until("answers", || site.runner.statistics().success.count == REQUESTS as u64);
    // The socket takes some of them.
    assert!(in_flight() > REQUESTS * 4 * ELEMENTS / 2, "{}", in_flight());
    for _ in 0..REQUESTS {
        client.answer();
    }
    while in_flight() > 0 {}
}

#[test]
fn everything_else_is_asked_by_verbs_as_in_the_same_process() {
    let site = Site::default();
    let mut client = site.connect();
    let mut answer = |verb: &str, arguments: &str| {
        let call = Call { verb: verb.into(), arguments: arguments.to_owned().into() };
        let answer = ask(&mut client, &call);
        assert_eq!(answer, site.server.call(Asker::Client, verb, arguments.as_bytes()), "{verb}");
        (answer.status, answer.kind, String::from_utf8_lossy(&answer.body).into_owned())
    };
    let fine = |body: &str| (200, String::new(), body.to_owned());
    let failed = |status, kind: &str, text: &str| (status, kind.into(), format!(r#"{{"error":"{text}"}}"#));
    let (status, kind, about) = answer("ServerMetadata", "");
    assert_eq!((status, &*kind), (200, ""));
    assert!(about.starts_with(r#"{"name":"site","version":"7.7""#), "{about}");
    assert_eq!(answer("ModelReady", r#"{"name":"echo","version":"1"}"#), fine("true"));
    assert_eq!(answer("ServerReady", "{}"), fine("true"));
    assert_eq!(answer("RepositoryIndex", ""), fine(r#"[{"name":"echo","version":"1","state":"READY"}]"#));
    let text = "Request for unknown model: 'nobody' is not found";
    assert_eq!(answer("ModelReady", r#"{"name":"nobody"}"#), failed(404, "model_not_found", text));
    assert_eq!(answer("Nothing", ""), failed(501, "unsupported", "unknown verb 'Nothing'"));
    let text = "failed to parse the request JSON buffer: Invalid value. at 0";
    assert_eq!(answer("ServerLive", "?"), failed(500, "invalid_input", text));
}

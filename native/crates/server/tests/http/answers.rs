//! What comes back, whatever the engine does.

use kushi_core::{Error, ErrorKind, FailureReason, QueuePolicy};
use kushi_testkit::{Act, echo_spec, respond, until};

use crate::site::Site;

#[test]
fn no_response_and_three_are_errors_and_the_next_request_is_answered() {
    let site = Site::default();
    site.puppet.script([Act::Silence, Act::Respond(3)]);
    for count in [0, 3] {
        let answer = site.ask(1);
        let text = format!("model 'echo' gave {count} responses, expected exactly 1");
        assert_eq!((answer.status, answer.refusal()), (500, text));
    }
    assert!(site.ask(7).echoes(7));
}

#[test]
fn an_engine_that_fails_panics_or_drops_its_batch_answers_500_and_the_next_succeeds() {
    let site = Site::default();
    let failure = Error::new(ErrorKind::EngineFailed, "out of flour");
    for (act, text) in [
        (Act::Fail(failure), "out of flour"),
        (Act::Panic, "the engine of model 'echo' panicked"),
        (Act::Drop, "the engine of model 'echo' dropped the batch unanswered"),
    ] {
        site.puppet.script([act]);
        let answer = site.ask(1);
        assert_eq!((answer.status, answer.refusal()), (500, text.into()));
        assert!(site.ask(7).echoes(7));
    }
}

#[test]
fn an_answer_may_come_late_and_from_another_thread() {
    let site = Site::default();
    site.puppet.script([Act::Late]);
    let mut client = site.connect();
    client.send(1, "");
    respond(site.puppet.late(), 1);
    assert_eq!(client.receive().text(), r#"{"model_name":"echo","model_version":"1","outputs":[]}"#);
}

#[test]
fn an_answer_that_has_begun_is_written_to_its_end_though_the_client_sends_nothing_more() {
    /// More than the buffers of the system hold.
    const ELEMENTS: usize = 4_000_000;
    let site = Site::default();
    for behind in ["", "GET /v2/models/echo HTTP/1.1\r\nHost: site\r\n\r\n"] {
        let mut client = site.connect();
        client.send_binary(ELEMENTS);
        client.send_bytes(behind.as_bytes());
        let head = client.receive_head();
        client.finish_sending();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.parse().ok()).expect("a length");
        let got = client.receive_rest().len();
        assert!(got >= length, "{got} of {length} bytes");
    }
    until("nothing", || site.inflight_bytes() == 0);
}

#[test]
fn a_client_that_hangs_up_frees_its_queue_place() {
    let mut spec = echo_spec();
    spec.queue.levels[0].max_requests = 1;
    let site = Site::new(1, spec);
    site.puppet.hold();
    let (mut first, mut second, mut third) = (site.connect(), site.connect(), site.connect());
    first.send(1, "");
    site.puppet.await_batches(1);
    second.send(2, "");
    until("a full queue", || site.runner.backlog().requests == 1);
    third.send(3, "");
    assert_eq!(third.receive().refusal(), "Exceeds maximum queue size");
    second.hang_up();
    until("an empty queue", || site.runner.backlog().requests == 0);
    third.send(4, "");
    until("a full queue", || site.runner.backlog().requests == 1);
    site.puppet.release_all();
    assert!(first.receive().echoes(1));
    assert!(third.receive().echoes(4));
}

#[test]
fn a_full_queue_refuses_a_large_request_before_its_body_has_come() {
    let mut spec = echo_spec();
    spec.queue.levels[0].max_requests = 1;
    let site = Site::new(1, spec);
    site.puppet.hold();
    let (mut first, mut second, mut third) = (site.connect(), site.connect(), site.connect());
    first.send(1, "");
    site.puppet.await_batches(1);
    second.send(2, "");
    until("a full queue", || site.runner.backlog().requests == 1);
    let body = vec![b' '; 8 << 20];
    third.send_head("echo", body.len());
    let answer = third.receive();
    assert_eq!(answer.status, 503);
    assert_eq!(answer.text(), r#"{"error":"[request id: <id_unknown>] Exceeds maximum queue size"}"#);
    assert_eq!(site.runner.statistics().failures(FailureReason::Rejected), 1);
    // The connection goes on behind the body.
    third.send_bytes(&body);
    third.send(3, "");
    assert_eq!(third.receive().refusal(), "Exceeds maximum queue size");
    assert_eq!(site.runner.statistics().failures(FailureReason::Rejected), 2);
    site.puppet.release_all();
    assert!(first.receive().echoes(1));
    assert!(second.receive().echoes(2));
    third.send(4, "");
    assert!(third.receive().echoes(4));
}

#[test]
fn a_large_request_that_could_name_a_level_with_a_place_is_read_before_it_is_refused() {
    let mut spec = echo_spec();
    let narrow = QueuePolicy { max_requests: 1, ..spec.queue.levels[0].clone() };
    spec.queue.levels = vec![narrow.clone(), narrow];
    let site = Site::new(1, spec);
    site.puppet.hold();
    let (mut first, mut second, mut third) = (site.connect(), site.connect(), site.connect());
    first.send(1, "");
    site.puppet.await_batches(1);
    second.send(2, "");
    until("a full level", || site.runner.backlog().requests == 1);
    let spaces = " ".repeat(1 << 20);
    let tensor = r#"{"name":"INPUT","datatype":"INT32","shape":[1,1],"data":[3]}"#;
    let ask = |priority: usize| {
        let parameters = format!(r#"{{"priority":{priority}}}"#);
        format!(r#"{{"id":"third","parameters":{parameters},{spaces}"inputs":[{tensor}]}}"#)
    };
    third.post("echo", "", ask(1).as_bytes()).unwrap();
    assert_eq!(third.receive().refusal(), "[request id: third] Exceeds maximum queue size");
    third.post("echo", "", ask(2).as_bytes()).unwrap();
    until("two full levels", || site.runner.backlog().requests == 2);
    site.puppet.release_all();
    assert!(third.receive().echoes(3));
}

#[test]
fn a_deadline_that_passes_while_the_request_executes_is_answered_then() {
    let site = Site::default();
    site.puppet.hold();
    let mut client = site.connect();
    // Long enough for the instance thread to take it, on a busy machine too.
    client.send(1, "kushi-timeout-us: 2000000\r\n");
    site.puppet.await_batches(1);
    // The engine still holds the request.
    let answer = client.receive();
    assert_eq!((answer.status, answer.refusal()), (503, "Request timeout expired".into()));
    site.puppet.release_all();
    client.send(2, "kushi-timeout-us: 18446744073709551615\r\n");
    assert!(client.receive().echoes(2));
}

#[test]
fn a_refusal_reaches_a_client_that_sends_on() {
    let site = Site::default();
    let mut client = site.connect();
    for _ in 0..2 {
        client.post("nobody", "", &vec![b' '; 32 << 20]).unwrap();
        let answer = client.receive();
        assert_eq!(
            (answer.status, answer.refusal()),
            (404, "Request for unknown model: 'nobody' is not found".into())
        );
    }
    client.send(3, "");
    assert!(client.receive().echoes(3));
}

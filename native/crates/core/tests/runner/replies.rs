//! Answers: any number of responses and exactly one end, whatever an engine does with its batch.

use std::thread;

use kushi_core::{Error, ErrorKind, Response, Sent};
use kushi_testkit::{Act, Letterbox, Scene, echo_spec, int32, respond};
use std::sync::Arc;

fn failure(scene: &Scene, key: u64) -> (ErrorKind, String) {
    let answer = scene.letters.answer(key);
    let Some(Error { kind, message }) = answer.error() else { panic!("request {key} succeeded") };
    (*kind, message.to_string())
}

#[test]
fn an_answer_may_come_late_from_another_thread() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Late]);
    scene.submit_rows(1, 1);
    let batch = scene.puppet.late();
    // The slot is free already.
    scene.submit_rows(2, 1);
    scene.letters.answer(2);
    let late = thread::spawn(move || batch.scatter(&[Some(int32(&[1, 1], [42]))]));
    assert!(late.join().is_ok());
    assert_eq!(scene.letters.answer(1).output(0), 42_i32.to_le_bytes());
}

#[test]
fn a_request_may_end_without_a_response() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Silence]);
    scene.submit_rows(1, 1);
    let answer = scene.letters.answer(1);
    assert!(answer.error().is_none());
    assert!(answer.responses.is_empty());
}

#[test]
fn a_request_may_have_three_responses_each_delivered_when_it_is_sent() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Late]);
    scene.submit_rows(1, 1);
    let mut batch = scene.puppet.late();
    for value in 1..=3 {
        let outputs = [(0, int32(&[1, 1], [value]))].into_iter().collect();
        assert!(matches!(batch.send(0, Response { outputs, ..Response::default() }), Sent::Accepted));
        scene.letters.responses(1, value as usize);
    }
    assert_eq!(scene.letters.unread(), 0);
    batch.end(0, Ok(()));
    let answer = scene.letters.answer(1);
    let values: Vec<_> = answer.responses.iter().map(|one| one.outputs[0].1.data.as_bytes()[0]).collect();
    assert_eq!(values, [1, 2, 3]);
}

#[test]
fn nothing_follows_an_end() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Late]);
    scene.submit_rows(1, 1);
    let mut batch = scene.puppet.late();
    batch.end(0, Ok(()));
    assert!(batch.request(0).is_none());
    assert!(matches!(batch.send(0, Response::default()), Sent::Abandoned));
    batch.end(0, Err(Error::new(ErrorKind::EngineFailed, "again")));
    respond(batch, 1);
    assert!(scene.letters.answer(1).error().is_none());
    assert_eq!(scene.letters.deliveries(), 1);
}

#[test]
fn a_dropped_batch_answers_with_an_error() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Drop]);
    scene.submit_rows(1, 1);
    let text = "the engine of model 'echo' dropped the batch unanswered";
    assert_eq!(failure(&scene, 1), (ErrorKind::EngineFailed, text.into()));
}

#[test]
fn a_panicking_engine_fails_its_batch_and_the_next_succeeds() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Echo, Act::Panic]);
    scene.plug();
    scene.ask([1, 2]);
    scene.puppet.release_all();
    let text = "the engine of model 'echo' panicked";
    assert_eq!(failure(&scene, 1), (ErrorKind::EngineFailed, text.into()));
    assert_eq!(failure(&scene, 2), (ErrorKind::EngineFailed, text.into()));
    scene.submit_rows(3, 1);
    assert!(scene.letters.answer(3).error().is_none());
}

#[test]
fn an_engine_error_reaches_every_request_of_its_batch_only() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Echo, Act::Fail(Error::new(ErrorKind::EngineFailed, "division by zero"))]);
    scene.plug();
    scene.ask([1, 2]);
    scene.puppet.release_all();
    assert!(scene.letters.answer(0).error().is_none());
    for key in [1, 2] {
        assert_eq!(failure(&scene, key), (ErrorKind::EngineFailed, "division by zero".into()));
    }
}

#[test]
fn outputs_that_contradict_their_shape_fail_the_batch() {
    for (output, text) in [
        (int32(&[2, 1], [1, 2]), "output 'OUTPUT' has shape [2, 1], expected 1 rows in its first dimension"),
        (int32(&[1, 2], [1]), "output 'OUTPUT' of 4 bytes does not fill its shape [1, 2]"),
        (int32(&[1, 1], [1, 2]), "output 'OUTPUT' of 8 bytes does not fill its shape [1, 1]"),
        (int32(&[1, -1], []), "output 'OUTPUT' of 0 bytes does not fill its shape [1, -1]"),
    ] {
        let scene = Scene::new(echo_spec());
        scene.puppet.script([Act::Late]);
        scene.submit_rows(1, 1);
        scene.puppet.late().scatter(&[Some(output)]);
        assert_eq!(failure(&scene, 1), (ErrorKind::EngineFailed, text.into()));
    }
}

#[test]
fn only_wanted_outputs_are_answered() {
    let mut spec = echo_spec();
    for list in [&mut spec.inputs, &mut spec.outputs] {
        let mut second = list[0].clone();
        second.name.push('2');
        list.push(second);
    }
    let scene = Scene::new(spec);
    let mut request = scene.request(1, 2);
    request.inputs.push(Some(int32(&[2, 1], [8, 9])));
    request.wanted.push(1);
    scene.submit(request);
    let answer = scene.letters.answer(1);
    assert_eq!(answer.responses[0].outputs.len(), 1);
    assert_eq!(answer.output(1), [8, 0, 0, 0, 9, 0, 0, 0]);
}

#[test]
fn a_batch_is_delivered_once_to_each_mailbox() {
    let scene = Scene::new(echo_spec());
    let other = Arc::new(Letterbox::default());
    scene.plug();
    for key in 1..=8 {
        let mut request = scene.request(key, 1);
        if key % 2 == 0 {
            request.reply = kushi_core::Reply::new(other.clone(), key);
        }
        scene.submit(request);
    }
    scene.puppet.release_all();
    scene.letters.answers(5);
    other.answers(4);
    assert_eq!(scene.letters.deliveries(), 2);
    assert_eq!(other.deliveries(), 1);
}

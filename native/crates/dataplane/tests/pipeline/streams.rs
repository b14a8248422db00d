//! Steps that give other than one answer: each goes on by itself.

use std::sync::Arc;

use kushi_core::{Batch, ErrorKind, Mail, ModelSpec, Reply, Request, Response, Runner, Sent, Window};
use kushi_dataplane::StepSpec;
use kushi_testkit::{Act, PATIENCE, SlowReader, int32, send_when_room, until};

use crate::site::{Site, chain, lead, model, step, value};
use crate::two_models;

fn of(value: i32) -> Response {
    Response { outputs: [(0, int32(&[1, 1], [value]))].into_iter().collect(), ..Response::default() }
}

#[track_caller]
fn send(batch: &mut Batch, value: i32) {
    let sent = batch.send(0, of(value));
    assert!(matches!(sent, Sent::Accepted), "{sent:?}");
}

/// All responses to a request that has ended well.
#[track_caller]
fn values(site: &Site, key: u64) -> Vec<i32> {
    let answer = site.letters.answer(key);
    assert_eq!(answer.error(), None);
    let first = |response: &Response| value(response.outputs[0].1.data.as_bytes());
    answer.responses.iter().map(first).collect()
}

/// A request whose step `model` the test answers.
fn begin(site: &Site, ensemble: &Arc<Runner>, model: &str) -> Batch {
    site.scene(model).puppet.script([Act::Late]);
    site.ask(ensemble, 1);
    site.scene(model).puppet.late()
}

#[test]
fn each_answer_of_a_step_goes_on_by_itself() {
    for inline in [false, true] {
        let (site, ensemble) = two_models(inline);
        let mut stream = begin(&site, &ensemble, "first");
        send(&mut stream, 10);
        site.letters.responses(1, 1);
        send(&mut stream, 11);
        site.letters.responses(1, 2);
        stream.end(0, Ok(()));
        assert_eq!(values(&site, 1), [10, 11]);
        let statistics = ensemble.statistics();
        assert_eq!((statistics.success.count, statistics.execution_count), (1, 1));
    }
}

#[test]
fn an_answer_that_comes_with_the_end_is_the_last_of_its_stream() {
    let (site, ensemble) = two_models(false);
    let mut stream = begin(&site, &ensemble, "first");
    send(&mut stream, 10);
    stream.end_with(0, of(11));
    assert_eq!(values(&site, 1), [10, 11]);
}

#[test]
fn a_last_step_of_many_answers_makes_the_ensemble_one() {
    let (site, ensemble) = two_models(false);
    let mut stream = begin(&site, &ensemble, "second");
    (0..50).for_each(|value| send(&mut stream, value));
    stream.end(0, Ok(()));
    assert!(values(&site, 1).into_iter().eq(0..50));
}

#[test]
fn a_stream_without_answers_ends_without_answers() {
    let (site, ensemble) = two_models(false);
    let before = site.scene("second").puppet.seen().len();
    begin(&site, &ensemble, "first").end(0, Ok(()));
    assert_eq!(values(&site, 1), []);
    assert_eq!(site.scene("second").puppet.seen().len(), before);
}

#[test]
fn answers_leave_in_the_order_in_which_the_first_step_gave_them() {
    let two = ModelSpec { instances: 2, ..model("second", &["INPUT"], &["OUTPUT"]) };
    let mut site = Site::new([model("first", &["INPUT"], &["OUTPUT"]), two]);
    let ensemble = site.chained(&["first", "second"]);
    let mut stream = begin(&site, &ensemble, "first");
    let second = &site.scene("second").puppet;
    second.script([Act::Late, Act::Late]);
    send(&mut stream, 10);
    let first = second.late();
    send(&mut stream, 11);
    second.late().scatter(&[Some(int32(&[1, 1], [11]))]);
    stream.end(0, Ok(()));
    first.scatter(&[Some(int32(&[1, 1], [10]))]);
    assert_eq!(values(&site, 1), [10, 11]);
}

#[test]
fn streams_of_streams_keep_their_order() {
    let mut site = Site::new(["a", "b", "c"].map(|name| model(name, &["INPUT"], &["OUTPUT"])));
    let ensemble = site.chained(&["a", "b", "c"]);
    let mut outer = begin(&site, &ensemble, "a");
    site.scene("b").puppet.script([Act::Late, Act::Late]);
    send(&mut outer, 1);
    let mut first = site.scene("b").puppet.late();
    send(&mut outer, 2);
    let mut second = site.scene("b").puppet.late();
    outer.end(0, Ok(()));
    send(&mut second, 20);
    send(&mut first, 10);
    send(&mut second, 21);
    second.end(0, Ok(()));
    send(&mut first, 11);
    first.end(0, Ok(()));
    assert_eq!(values(&site, 1), [10, 11, 20, 21]);
}

/// `one` and `two` begin with the request; `join` answers with what `one` gave.
fn joined() -> (Site, Arc<Runner>) {
    let name = |name: &str| model(name, &["INPUT"], &["OUTPUT"]);
    let mut site = Site::new([name("one"), name("two"), model("join", &["A", "B"], &["C"])]);
    let steps = [
        step("one", &[("INPUT", "in")], &[("OUTPUT", "a")]),
        step("two", &[("INPUT", "in")], &[("OUTPUT", "b")]),
        step("join", &[("A", "a"), ("B", "b")], &[("C", "out")]),
    ];
    let ensemble = site.ensemble(model("ensemble", &["in"], &["out"]), &steps);
    (site, ensemble)
}

fn begin_both(site: &Site, ensemble: &Arc<Runner>) -> [Batch; 2] {
    site.scene("two").puppet.script([Act::Late]);
    let one = begin(site, ensemble, "one");
    [one, site.scene("two").puppet.late()]
}

#[test]
fn each_answer_waits_for_what_another_branch_gives_once() {
    let (site, ensemble) = joined();
    let [mut one, two] = begin_both(&site, &ensemble);
    send(&mut one, 10);
    send(&mut one, 11);
    assert_eq!(site.scene("join").puppet.seen().len(), 0);
    two.scatter(&[Some(int32(&[1, 1], [5]))]);
    site.letters.responses(1, 2);
    send(&mut one, 12);
    one.end(0, Ok(()));
    assert_eq!(values(&site, 1), [10, 11, 12]);
}

#[test]
fn the_nth_answers_of_two_streams_meet() {
    for shorter in [0, 1] {
        let (site, ensemble) = joined();
        let mut streams = begin_both(&site, &ensemble);
        for stream in &mut streams {
            send(stream, 10);
            send(stream, 11);
        }
        // The third of one has nobody to meet.
        send(&mut streams[1 - shorter], 12);
        for mut stream in streams {
            stream.end(0, Ok(()));
        }
        assert_eq!(values(&site, 1), [10, 11]);
    }
}

#[test]
fn an_answer_is_taken_when_the_steps_behind_it_have_ended() {
    let mut site = Site::new(["first", "second"].map(|name| model(name, &["INPUT"], &["OUTPUT"])));
    let steps: Vec<_> = chain(&["first", "second"])
        .into_iter()
        .map(|step| StepSpec { max_inflight_requests: 2, ..step })
        .collect();
    let ensemble = site.ensemble(model("ensemble", &["0"], &["2"]), &steps);
    site.scene("second").puppet.hold();
    let mut stream = begin(&site, &ensemble, "first");
    send(&mut stream, 10);
    send(&mut stream, 11);
    assert!(matches!(stream.send(0, of(12)), Sent::Full(_)), "two are in the second step");
    site.scene("second").puppet.release_all();
    assert!(send_when_room(&mut stream, 0, of(12)));
    stream.end(0, Ok(()));
    assert_eq!(values(&site, 1), [10, 11, 12]);
}

#[test]
fn a_slow_asker_slows_the_first_step() {
    let (site, ensemble) = two_models(false);
    let reader = Arc::new(SlowReader::default());
    let window = Window { answers: 1, ..Window::default() };
    let request =
        Request { reply: Reply::with_window(reader.clone(), 1, window), ..site.request(1, &[Some(1)]) };
    site.scene("first").puppet.script([Act::Late]);
    lead(&ensemble, request);
    let mut stream = site.scene("first").puppet.late();
    let mut sent = 0;
    // One is on its way to the asker, and a window of others behind the first step.
    while sent < 1 + Window::default().answers as i32 {
        if sent == 1 {
            until("the first answer", || reader.untaken() == 1);
        }
        assert!(send_when_room(&mut stream, 0, of(sent)));
        sent += 1;
    }
    assert!(matches!(stream.send(0, of(sent)), Sent::Full(_)));
    assert_eq!(reader.untaken(), 1);
    stream.end(0, Ok(()));
    for expected in 0..sent {
        let Mail { response, end, .. } = reader.take();
        assert_eq!(end.and_then(|end| end.result.err()), None);
        assert_eq!(response.map(|response| value(response.outputs[0].1.data.as_bytes())), Some(expected));
    }
    assert!(reader.take().end.is_some_and(|end| end.result.is_ok()));
}

#[test]
fn an_answer_that_waits_for_room_is_reshaped_once() {
    let mut site = Site::new([model("first", &["INPUT"], &["OUTPUT"])]);
    let mut spec = model("ensemble", &["0"], &["1"]);
    spec.outputs[0].dims = vec![3];
    spec.outputs[0].reshape = Some(vec![1, 3]);
    let ensemble = site.ensemble(spec, &chain(&["first"]));
    let reader = Arc::new(SlowReader::default());
    let window = Window { answers: 1, ..Window::default() };
    let request =
        Request { reply: Reply::with_window(reader.clone(), 1, window), ..site.request(1, &[Some(1)]) };
    site.scene("first").puppet.script([Act::Late]);
    lead(&ensemble, request);
    let mut stream = site.scene("first").puppet.late();
    for _ in 0..3 {
        let outputs = [(0, int32(&[2, 1, 3], [1, 2, 3, 4, 5, 6]))].into_iter().collect();
        assert!(send_when_room(&mut stream, 0, Response { outputs, ..Response::default() }));
    }
    stream.end(0, Ok(()));
    for _ in 0..3 {
        let response = reader.take().response.expect("three of them");
        assert_eq!(response.outputs[0].1.shape.as_slice(), [2, 3]);
    }
    assert!(reader.take().end.is_some_and(|end| end.result.is_ok()));
}

#[test]
fn an_asker_that_goes_ends_the_stream() {
    for reads in [true, false] {
        let (site, ensemble) = two_models(false);
        let reader = Arc::new(SlowReader::default());
        let window = Window { answers: 1, ..Window::default() };
        let request =
            Request { reply: Reply::with_window(reader.clone(), 1, window), ..site.request(1, &[Some(1)]) };
        site.scene("first").puppet.script([Act::Late]);
        let ticket = lead(&ensemble, request);
        let mut stream = site.scene("first").puppet.late();
        send(&mut stream, 10);
        send(&mut stream, 11);
        until("an answer", || reader.untaken() == 1);
        if reads {
            drop(reader.take());
            until("the other answer", || reader.untaken() == 1);
        }
        ticket.cancel();
        until("the first step hears of it", || stream.is_abandoned(0));
        drop(stream);
        assert!(reader.take().end.is_none());
        let end = reader.take().end.expect("the end");
        assert_eq!(end.result.err().map(|error| error.kind), Some(ErrorKind::Cancelled));
        assert_eq!(ensemble.drain(PATIENCE) + site.scene("second").runner.drain(PATIENCE), 0);
    }
}

#[test]
fn an_error_behind_a_stream_ends_it() {
    let (site, ensemble) = two_models(false);
    let mut stream = begin(&site, &ensemble, "first");
    send(&mut stream, 10);
    site.letters.responses(1, 1);
    site.scene("second").puppet.script([Act::Drop]);
    send(&mut stream, 11);
    until("the first step hears of it", || stream.is_abandoned(0));
    drop(stream);
    let answer = site.letters.answer(1);
    assert_eq!(answer.error().map(|error| error.kind), Some(ErrorKind::EngineFailed));
    assert_eq!(answer.responses.len(), 1);
}

#[test]
fn an_inner_ensemble_may_stream() {
    let mut site = Site::new(["a", "b"].map(|name| model(name, &["INPUT"], &["OUTPUT"])));
    let inner = [
        step("a", &[("INPUT", "INPUT")], &[("OUTPUT", "between")]),
        step("b", &[("INPUT", "between")], &[("OUTPUT", "OUTPUT")]),
    ];
    site.ensemble(model("inner", &["INPUT"], &["OUTPUT"]), &inner);
    let ensemble = site.chained(&["b", "inner", "b"]);
    let mut stream = begin(&site, &ensemble, "a");
    for value in 0..200 {
        assert!(send_when_room(&mut stream, 0, of(value)));
    }
    stream.end(0, Ok(()));
    assert!(values(&site, 1).into_iter().eq(0..200));
}

//! Children of requests that were admitted are part of what a drain lets finish; nothing else is.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kushi_core::{Batch, Context, ErrorKind, Request, State};
use kushi_testkit::{Act, PATIENCE, Scene, echo_spec, until};

/// A request in an engine.
fn parent(scene: &Scene) -> Batch {
    scene.puppet.script([Act::Late]);
    scene.ask([1]);
    scene.puppet.late()
}

/// For a child of a request to another model.
fn pinning(scene: &Scene) -> Context {
    let other = Scene::new(echo_spec());
    let context = parent(&other).child_context_in(0, std::slice::from_ref(&scene.runner));
    drop(other.letters.answer(1));
    context.unwrap_or_else(|error| panic!("{error}"))
}

fn child(scene: &Scene, key: u64, context: &Context) -> Request {
    Request { context: context.clone(), ..scene.request(key, 1) }
}

#[test]
fn a_drain_waits_for_a_pipeline_that_may_still_come_and_lets_it_in() {
    let scene = Scene::new(echo_spec());
    let context = pinning(&scene);
    assert_eq!((scene.runner.inside(), scene.runner.occupancy().running), (0, 0), "nothing runs yet");
    thread::scope(|scope| {
        let drained = scope.spawn(|| scene.runner.drain(PATIENCE));
        until("draining", || scene.runner.state() == State::Draining);
        assert_eq!(scene.refused(scene.request(1, 1)).kind, ErrorKind::ShuttingDown);
        assert_eq!(scene.runner.drain(Duration::ZERO), 1);
        for key in [2, 3] {
            scene.submit(child(&scene, key, &context));
            let answer = scene.letters.answer(key);
            assert!(answer.error().is_none());
        }
        assert!(!drained.is_finished(), "it may come once more");
        drop(context);
        assert_eq!(drained.join().ok(), Some(0));
    });
    assert!(scene.runner.retire(PATIENCE));
}

#[test]
fn a_child_keeps_a_drain_waiting_when_its_parent_has_gone() {
    let scene = Scene::new(echo_spec());
    let context = pinning(&scene);
    scene.puppet.script([Act::Late]);
    scene.runner.stop_admitting();
    scene.submit(child(&scene, 1, &context));
    let batch = scene.puppet.late();
    drop(context);
    assert!(scene.runner.drain(Duration::ZERO) > 0);
    drop(batch);
    drop(scene.letters.answer(1));
    assert_eq!(scene.runner.drain(PATIENCE), 0);
}

#[test]
fn requests_that_belong_together_are_all_let_in_once_the_first_was() {
    let scene = Scene::new(echo_spec());
    let context = scene.runner.keep(&Context::default()).unwrap_or_else(|error| panic!("{error}"));
    scene.runner.stop_admitting();
    assert_eq!(scene.refused(scene.request(1, 1)).kind, ErrorKind::ShuttingDown);
    let refused = scene.runner.keep(&Context::default()).err().map(|error| error.kind);
    assert_eq!(refused, Some(ErrorKind::ShuttingDown), "it begins too late");
    for key in [2, 3] {
        scene.submit(child(&scene, key, &context));
        assert!(scene.letters.answer(key).error().is_none());
    }
    until("nothing but the context", || scene.runner.drain(Duration::ZERO) == 1);
    drop(context);
    assert_eq!(scene.runner.drain(PATIENCE), 0);
}

#[test]
fn what_an_engine_asks_of_other_models_is_let_in_while_its_request_goes_on() {
    let (asking, asked) = (Scene::new(echo_spec()), Scene::new(echo_spec()));
    asking.puppet.script([Act::Late]);
    asking.ask([1]);
    let batch = asking.puppet.late();
    asking.runner.stop_admitting();
    asked.runner.stop_admitting();
    let context = batch.child_context(0).unwrap_or_else(|| panic!("it goes on"));
    asked.submit(child(&asked, 2, &context));
    assert!(asked.letters.answer(2).error().is_none());
    drop(batch);
    drop(asking.letters.answer(1));
    assert_eq!(asking.runner.drain(Duration::ZERO), 1, "its engine may ask once more");
    drop(context);
    assert_eq!(asking.runner.drain(PATIENCE) + asked.runner.drain(PATIENCE), 0);
}

#[test]
fn nobody_makes_a_context_for_children_of_what_is_not_inside() {
    let scene = Scene::new(echo_spec());
    scene.puppet.script([Act::Late, Act::Late]);
    scene.ask([1]);
    let mut first = scene.puppet.late();
    let ticket = scene.submit_rows(2, 1);
    let second = scene.puppet.late();
    first.end(0, Ok(()));
    assert!(first.child_context(0).is_none(), "it has ended");
    assert!(ticket.cancel());
    assert!(second.child_context(0).is_none(), "nobody waits for it");
    drop(second);
    let (asking, other) = (Scene::new(echo_spec()), Scene::new(echo_spec()));
    let batch = parent(&asking);
    let steps = [other.runner.clone(), scene.runner.clone()];
    scene.runner.stop_admitting();
    assert!(batch.child_context_in(0, &steps).is_ok(), "its drain has not ended");
    assert!(scene.runner.retire(PATIENCE));
    let refused = batch.child_context_in(0, &steps).err().map(|error| error.kind);
    assert_eq!(refused, Some(ErrorKind::ShuttingDown));
    assert_eq!(other.runner.drain(PATIENCE), 0, "it pins none of them then");
    assert!(asking.runner.inside() > 0);
}

#[test]
fn a_child_comes_too_late_where_the_patience_of_a_retirement_is_over() {
    let scene = Scene::new(echo_spec());
    let context = pinning(&scene);
    assert!(scene.runner.retire(Duration::ZERO));
    assert_eq!(scene.refused(child(&scene, 1, &context)).kind, ErrorKind::ShuttingDown);
    let held = Scene::new(echo_spec());
    held.plug();
    assert!(!held.runner.retire(Duration::ZERO), "the engine is held");
    assert_eq!(held.refused(child(&held, 1, &context)).kind, ErrorKind::ShuttingDown);
    let ended = Arc::new(Scene::new(echo_spec()));
    ended.runner.stop_admitting();
    ended.runner.end_runs();
    assert_eq!(ended.refused(child(&ended, 1, &context)).kind, ErrorKind::ShuttingDown);
}

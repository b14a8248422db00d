//! What becomes of runs when models come and go.

use std::thread;
use std::time::Duration;

use kushi_core::{ErrorKind, ModelSpec, State};
use kushi_testkit::{Act, PATIENCE, Scene, drive, echo_spec, until};

use crate::site::{Site, model, step, submit};
use crate::two_models;

fn second() -> Scene {
    Scene::without_drivers(ModelSpec { name: "second".into(), ..echo_spec() })
}

#[test]
fn a_drain_that_begins_between_its_steps_lets_it_finish() {
    for inline in [false, true] {
        let (site, ensemble) = two_models(inline);
        let first = &site.scene("first").puppet;
        first.hold();
        let before = first.seen().len();
        thread::scope(|scope| {
            let asker = scope.spawn(|| site.ask(&ensemble, 7));
            first.await_batches(before + 1);
            let runners = [&ensemble, &site.scene("second").runner, &site.scene("first").runner];
            let drains = runners.map(|runner| {
                let drain = scope.spawn(|| runner.retire(PATIENCE));
                until("draining", || runner.state() == State::Draining);
                drain
            });
            let refused = submit(&ensemble, site.request(8, &[Some(8)]));
            assert_eq!(refused.err().map(|error| error.kind), Some(ErrorKind::ShuttingDown));
            first.release_all();
            assert_eq!(site.value(7), 7);
            assert!(drains.into_iter().all(|drain| drain.join().is_ok_and(|retired| retired)));
            assert!(asker.join().is_ok());
        });
    }
}

#[test]
fn a_request_that_was_admitted_before_a_drain_begins_its_steps_after_it() {
    let (site, ensemble) = two_models(false);
    let (_ticket, lease) = submit(&ensemble, site.request(7, &[Some(7)])).expect("it is ready");
    for runner in [&ensemble, &site.scene("first").runner, &site.scene("second").runner] {
        runner.stop_admitting();
    }
    lease.map(drive);
    assert_eq!(site.value(7), 7);
}

#[test]
fn a_run_finishes_with_the_models_that_it_began_with() {
    let (mut site, ensemble) = two_models(false);
    site.scene("first").puppet.hold();
    let before = site.scene("first").puppet.seen().len();
    site.ask(&ensemble, 1);
    site.scene("first").puppet.await_batches(before + 1);
    let old = site.serve(second()).expect("there was one");
    thread::scope(|scope| {
        let retired = scope.spawn(|| old.runner.retire(PATIENCE));
        until("draining", || old.runner.state() == State::Draining);
        site.scene("first").puppet.release_all();
        assert_eq!(site.value(1), 1);
        assert!(retired.join().is_ok_and(|retired| retired));
    });
    assert_eq!((old.puppet.seen().len(), site.scene("second").puppet.seen().len()), (1, 0));
    site.ask(&ensemble, 2);
    assert_eq!(site.value(2), 2);
    assert_eq!((old.puppet.seen().len(), site.scene("second").puppet.seen().len()), (1, 1));
}

#[test]
fn reloads_of_a_step_refuse_no_request() {
    const RELOADS: usize = 30;
    let (site, ensemble) = two_models(false);
    let registry = &site.plane.registry;
    thread::scope(|scope| {
        let reloads = scope.spawn(|| {
            let mut serving = second();
            drop(registry.publish("second", vec![serving.runner.clone()]));
            for _ in 0..RELOADS {
                let next = second();
                let old = registry.publish("second", vec![next.runner.clone()]);
                assert!(old.into_iter().all(|old| old.retire(PATIENCE)));
                serving = next;
            }
            serving
        });
        let mut key = 0;
        while key == 0 || !reloads.is_finished() {
            key += 1;
            site.ask(&ensemble, key);
            assert_eq!(site.value(key), key as i32);
        }
        let serving = reloads.join().unwrap_or_else(|_| panic!("a reload failed"));
        assert!(ensemble.retire(PATIENCE));
        drop(serving);
    });
}

#[test]
fn a_step_that_was_unloaded_is_named() {
    let (site, ensemble) = two_models(false);
    site.plane.unload("second");
    site.ask(&ensemble, 1);
    let error = site.error(1);
    let text = "in ensemble 'ensemble', Request for unknown model: 'second' has no available versions";
    assert_eq!((error.kind, &*error.message), (ErrorKind::ModelNotFound, text));
}

#[test]
fn a_drain_waits_for_no_run_that_has_failed() {
    let (site, ensemble) = two_models(false);
    site.scene("first").puppet.script([Act::Drop]);
    site.ask(&ensemble, 1);
    assert_eq!(site.error(1).kind, ErrorKind::EngineFailed);
    assert_eq!(site.scene("second").runner.drain(PATIENCE) + ensemble.drain(PATIENCE), 0);
}

#[test]
fn an_ensemble_that_goes_gives_up_what_does_not_end() {
    let (site, ensemble) = two_models(false);
    site.scene("second").puppet.script([Act::Late]);
    site.ask(&ensemble, 1);
    let batch = site.scene("second").puppet.late();
    assert!(ensemble.retire(Duration::ZERO));
    until("the step is given up", || batch.is_abandoned(0));
    drop(batch);
    let error = site.error(1);
    assert_eq!(
        (error.kind, &*error.message),
        (ErrorKind::ShuttingDown, "ensemble 'ensemble' is being stopped")
    );
}

#[test]
fn an_ensemble_that_would_ask_itself_is_not_started() {
    let one = |name| model(name, &["0"], &["1"]);
    let step = |name| [step(name, &[("0", "0")], &[("1", "1")])];
    let mut site = Site::new([one("inner")]);
    site.ensemble(one("outer"), &step("inner"));
    let error = site.start(one("inner"), &step("outer")).err().map(|error| error.to_string());
    let text = "model 'inner' cannot ask 'outer': that would be a ring: 'inner' → 'outer' → 'inner'";
    assert_eq!(error.as_deref(), Some(text));
}

#[test]
fn too_many_ensembles_one_inside_the_other_are_an_error() {
    let one = |name: &str| model(name, &["0"], &["1"]);
    let step = |name: &str| [step(name, &[("0", "0")], &[("1", "1")])];
    let mut site = Site::new([one("0")]);
    let outermost =
        (1..=40).map(|level: usize| site.ensemble(one(&level.to_string()), &step(&(level - 1).to_string())));
    let outermost = outermost.last().expect("there are forty");
    site.ask(&outermost, 1);
    let error = site.error(1);
    assert_eq!(error.kind, ErrorKind::InvalidInput);
    assert!(error.message.starts_with("in ensemble '40', in ensemble '39', "), "{error}");
    assert!(error.message.contains("too many models ask one another in a row"), "{error}");
    assert_eq!(outermost.drain(PATIENCE), 0);
}

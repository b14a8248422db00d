//! Instances come and go while the model serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kushi_core::{
    Capability, Engine, ErrorKind, InstanceRate, ModelSpec, Placement, RateLimiter, ResourceDemand, Runner,
    RunnerOptions,
};
use kushi_testkit::{Act, PATIENCE, PuppetEngine, Scene, drive, echo_spec, until};

fn single(instances: usize) -> ModelSpec {
    ModelSpec { instances, max_batch_size: 1, ..echo_spec() }
}

fn resize(scene: &Scene, instances: usize) {
    if let Err(error) = scene.runner.resize(instances) {
        panic!("{error}");
    }
    assert_eq!(scene.runner.instances(), instances);
}

#[test]
fn instances_that_come_execute_what_waits() {
    let scene = Scene::new(single(1));
    scene.puppet.hold();
    scene.ask(1..=4);
    scene.puppet.await_batches(1);
    resize(&scene, 3);
    scene.puppet.await_batches(3);
    assert_eq!(scene.runner.backlog().requests, 1);
    scene.puppet.release_all();
    scene.letters.answers(4);
    assert_eq!(scene.puppet.most_at_once(), 3);
}

#[test]
fn instances_that_go_finish_what_they_execute_and_begin_nothing() {
    let scene = Scene::new(single(3));
    scene.puppet.hold();
    scene.ask(1..=6);
    scene.puppet.await_batches(3);
    resize(&scene, 1);
    let of_slot = |slot| scene.puppet.seen().iter().position(|seen| seen.slot == slot).unwrap();
    for slot in [1, 2] {
        scene.puppet.release(of_slot(slot));
    }
    scene.letters.answers(2);
    assert_eq!(scene.puppet.seen().len(), 3, "their slots take no more work");
    scene.puppet.release_all();
    scene.letters.answers(4);
    assert!(scene.puppet.seen()[3..].iter().all(|seen| seen.slot == 0));
    until("the threads of the others have ended", || scene.runner.at_rest());
}

#[test]
fn an_instance_that_is_left_works_while_the_others_finish() {
    for round in 0..20 {
        let scene = Scene::without_drivers(single(2));
        scene.puppet.hold();
        scene.ask([1]);
        scene.puppet.await_batches(1);
        scene.ask([2]);
        assert_eq!(scene.puppet.await_batches(2)[1].slot, 1);
        scene.puppet.release(0);
        scene.letters.answer(1);
        // whichever thread it is that executes on the slot which goes
        resize(&scene, 1);
        scene.ask([3]);
        let seen = scene.puppet.await_batches(3);
        assert_eq!(seen[2].slot, 0, "round {round}");
        scene.puppet.release_all();
        scene.letters.answers(2);
        until("the thread of the other has ended", || scene.runner.at_rest());
    }
}

#[test]
fn instances_that_are_free_go_at_once_and_come_back() {
    let scene = Scene::new(single(4));
    for instances in [1, 3, 2, 70, 1, 4] {
        resize(&scene, instances);
        until("the threads sleep", || scene.runner.at_rest());
        let before = scene.puppet.seen().len();
        scene.puppet.hold();
        scene.ask(1..=instances as u64 + 1);
        scene.puppet.await_batches(before + instances);
        assert_eq!(scene.runner.backlog().requests, 1, "{instances} instances");
        scene.puppet.release_all();
        for key in 1..=instances as u64 + 1 {
            assert!(scene.letters.answer(key).error().is_none());
        }
    }
}

#[test]
fn one_that_is_to_go_and_still_executes_may_stay_after_all() {
    let scene = Scene::new(single(2));
    scene.puppet.hold();
    scene.ask(1..=4);
    scene.puppet.await_batches(2);
    resize(&scene, 1);
    resize(&scene, 2);
    scene.puppet.release_all();
    scene.letters.answers(4);
    assert_eq!(scene.puppet.most_at_once(), 2);
    until("the threads sleep", || scene.runner.at_rest());
}

#[test]
fn what_runs_inline_has_instances_that_come_as_well() {
    let scene = Scene::new(single(1));
    scene.earn_inline();
    scene.puppet.hold();
    let seen = scene.puppet.seen().len();
    let (_, lead) = scene.lead(scene.request(1, 1));
    let Some(lead) = lead else { panic!("nobody leads") };
    let first = std::thread::spawn(move || drive(lead));
    scene.puppet.await_batches(seen + 1);
    scene.ask([2]);
    assert!(scene.leases.is_empty());
    resize(&scene, 2);
    let mut others = Vec::new();
    while scene.puppet.seen().len() < seen + 2 {
        // an io thread may be asked, or a thread of the model takes it
        if !scene.leases.is_empty() {
            let lease = scene.leases.lease();
            others.push(std::thread::spawn(move || drive(lease)));
        }
        std::thread::yield_now();
    }
    scene.puppet.release_all();
    assert!(first.join().is_ok() && others.into_iter().all(|other| other.join().is_ok()));
    assert!([1, 2].iter().all(|&key| scene.letters.answer(key).error().is_none()));
    assert_eq!(scene.runner.placement(), Placement::Inline);
}

#[test]
fn a_run_that_is_to_begin_again_does_so_on_an_instance_that_is_left() {
    let scene = Scene::without_drivers(ModelSpec { instances: 2, ..echo_spec() });
    scene.puppet.hold();
    for key in [8, 9] {
        scene.ask([key]);
        scene.puppet.await_batches(key as usize - 7);
    }
    let tickets = scene.ask([1, 2]);
    scene.puppet.script([Act::Endless]);
    scene.puppet.release(1);
    scene.puppet.release(2);
    assert_eq!(scene.puppet.await_batches(3)[2].slot, 1);
    scene.letters.answer(9);
    resize(&scene, 1);
    // it goes on for long after one of its callers has left, who may be the reason
    assert!(tickets[0].cancel());
    scene.clock.advance(Duration::from_secs(1));
    scene.runner.renew_runs();
    scene.puppet.release_all();
    assert!([8, 2].iter().all(|&key| scene.letters.answer(key).error().is_none()));
    let again = &scene.puppet.seen()[3];
    assert_eq!((again.slot, &again.ids[..]), (0, &["2".to_owned()][..]));
}

#[test]
fn it_retires_with_as_many_instances_as_there_are() {
    let scene = Scene::new(single(2));
    resize(&scene, 5);
    resize(&scene, 1);
    scene.ask(1..=3);
    assert!(scene.runner.retire(PATIENCE));
    scene.letters.answers(3);
    let refused = scene.runner.resize(2).err().map(|error| error.kind);
    assert_eq!(refused, Some(ErrorKind::ConfigInvalid), "its engine has gone");
}

#[test]
fn instances_that_are_told_apart_stay_as_they_are() {
    let refused = |runner: &Arc<Runner>| {
        assert_eq!(runner.most_instances(), 0);
        let error = runner.resize(2).err().map(|error| error.kind);
        assert_eq!(error, Some(ErrorKind::ConfigInvalid));
    };
    refused(&Scene::keeping(single(1)).runner);
    refused(&Scene::new(ModelSpec { cores: vec![vec![0], vec![0]], ..single(2) }).runner);
    let resources = vec![ResourceDemand { name: "r".into(), is_global: false, count: 1 }];
    let rates = vec![InstanceRate { device: None, priority: 0, resources }];
    let capability = Capability { concurrent: true, inline: true, keeps_slots: false };
    let limiter = Arc::new(RateLimiter::new(Vec::new()));
    refused(&Scene::limited(ModelSpec { rates, ..single(1) }, capability, &limiter).runner);
    let capability = Capability { concurrent: false, ..capability };
    refused(&Scene::limited(single(1), capability, &limiter).runner);
    let two: Vec<Arc<dyn Engine>> =
        vec![Arc::new(PuppetEngine::default()), Arc::new(PuppetEngine::default())];
    let Ok(runner) = Runner::start(single(2), two, RunnerOptions::default()) else { panic!("it starts") };
    refused(&runner);
    assert!(runner.retire(PATIENCE));
    let scene = Scene::new(single(1));
    for instances in [0, scene.runner.most_instances() + 1] {
        assert!(scene.runner.resize(instances).is_err());
    }
    assert_eq!(scene.runner.instances(), 1);
}

#[test]
fn every_request_is_answered_once_while_instances_come_and_go() {
    const REQUESTS: u64 = 2000;
    let scene = Scene::without_drivers(echo_spec());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in (1..=5).cycle() {
                resize(&scene, (count * 7) % 5 + 1);
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for key in 0..REQUESTS {
            let (_, lead) = scene.lead(scene.request(key, 1));
            lead.map(drive);
        }
        for key in 0..REQUESTS {
            assert!(scene.letters.answer(key).error().is_none());
        }
        done.store(true, Ordering::Relaxed);
    });
    until("the threads sleep", || scene.runner.at_rest());
    assert_eq!((scene.runner.inside(), scene.letters.unread()), (0, 0));
}

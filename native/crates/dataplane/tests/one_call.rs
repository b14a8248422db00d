//! A thread that waits for one answer, whatever its engine gives.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use kushi_core::{Error, ErrorKind, Reply, Request, Response, Runner, Ticket};
use kushi_dataplane::OneCall;
use kushi_testkit::{Act, PATIENCE, Scene, drive, echo_spec, respond, send_when_room};

const MANY: usize = 500;

fn request(scene: &Scene, call: &Arc<OneCall>) -> (u64, Request) {
    let key = call.next_key();
    (key, Request { reply: Reply::new(call.clone(), key), ..scene.request(key, 1) })
}

fn ask(scene: &Scene, call: &Arc<OneCall>) -> Ticket {
    scene.submit(request(scene, call).1)
}

/// What the call gave: the only response, or an error.
fn outcome(call: &OneCall, runner: &Runner) -> Result<Response, Error> {
    assert!(call.wait(Instant::now() + PATIENCE), "waited in vain for an end");
    let (only, mut end) = call.take().unwrap_or_else(|| panic!("no end"));
    only.close(&runner.spec().name, &mut end)
}

fn too_many() -> Error {
    Error::new(ErrorKind::EngineFailed, format!("model 'echo' gave {MANY} responses, expected exactly 1"))
}

#[test]
fn an_engine_of_many_answers_comes_to_its_end_while_the_asker_sleeps() {
    let scene = Scene::new(echo_spec());
    let call = Arc::new(OneCall::default());
    scene.puppet.script([Act::Late]);
    ask(&scene, &call);
    let mut batch = scene.puppet.late();
    let engine = thread::spawn(move || {
        let empty = || Response::default();
        let sent = (0..MANY).all(|_| send_when_room(&mut batch, 0, empty()));
        batch.end(0, Ok(()));
        sent
    });
    assert_eq!(outcome(&call, &scene.runner).map(|_| ()), Err(too_many()));
    assert!(engine.join().is_ok_and(|sent| sent));
    assert!(call.take().is_none() && !call.has_end());
}

#[test]
fn an_asker_that_runs_the_engine_itself_hears_all_its_answers() {
    let scene = Scene::new(echo_spec());
    scene.earn_inline();
    let call = Arc::new(OneCall::default());
    scene.puppet.script([Act::Respond(MANY), Act::Respond(1)]);
    for expected in [Err(too_many()), Ok(())] {
        let (_, lease) = scene.lead(request(&scene, &call).1);
        lease.map(drive);
        assert_eq!(outcome(&call, &scene.runner).map(|_| ()), expected);
    }
}

#[test]
fn what_comes_late_for_an_earlier_call_is_no_part_of_the_next() {
    let scene = Scene::new(echo_spec());
    let call = Arc::new(OneCall::default());
    scene.puppet.script([Act::Late, Act::Late]);
    let ticket = ask(&scene, &call);
    let first = scene.puppet.late();
    assert!(ticket.cancel());
    ask(&scene, &call);
    let second = scene.puppet.late();
    respond(first, 1);
    assert!(!call.has_end() && !call.wait(Instant::now()));
    respond(second, 1);
    assert!(outcome(&call, &scene.runner).is_ok_and(|response| response.outputs.is_empty()));
}

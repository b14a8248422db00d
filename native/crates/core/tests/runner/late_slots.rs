//! Slots that come back late, with batches that failed on them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kushi_core::{
    Batch, Capability, Engine, Error, ErrorKind, ModelSpec, Runner, RunnerOptions, Slot, SlotToken, State,
};
use kushi_testkit::{Act, Scene, echo_spec, respond};

use crate::slot_tokens::{begin, keeping};

fn broken(text: &str) -> Error {
    Error::new(ErrorKind::EngineFailed, text.to_owned())
}

/// Keeps every slot, and can end no run.
#[derive(Default)]
struct Stubborn(Mutex<Vec<(SlotToken, Batch)>>);

impl Engine for Stubborn {
    fn capability(&self) -> Capability {
        Capability { concurrent: true, inline: false, keeps_slots: true }
    }

    fn execute(&self, _slot: &mut Slot, _batch: Batch) {
        unreachable!("it keeps its slots")
    }

    fn begin(&self, slot: SlotToken, batch: Batch) {
        if let Ok(mut kept) = self.0.lock() {
            kept.push((slot, batch));
        }
    }
}

#[test]
fn what_is_to_run_again_on_a_slot_that_comes_back_after_a_retirement_ends_there() {
    let scene = Scene::new(echo_spec());
    let stubborn = Arc::new(Stubborn::default());
    let spec = ModelSpec { max_batch_size: 2, ..echo_spec() };
    let options = RunnerOptions { drivers: Some(scene.leases.clone()), ..RunnerOptions::default() };
    let Ok(runner) = Runner::start(spec, vec![stubborn.clone()], options) else { panic!("it starts") };
    let Ok((first, kushi_core::Admission::Lead(lease))) = runner.submit(scene.request(1, 1)) else {
        panic!("nobody else leads")
    };
    let Ok((second, _)) = runner.submit(scene.request(2, 1)) else { panic!("there is room") };
    lease.run();
    assert!(!runner.retire(Duration::ZERO), "the slot is out");
    assert_eq!(runner.state(), State::Failed);
    let kept = stubborn.0.lock().ok().and_then(|mut kept| kept.pop());
    let Some((mut token, batch)) = kept else { panic!("it has one") };
    token.fail(batch, &broken("of somebody's data"));
    drop(token);
    for answer in scene.letters.answers(2) {
        assert_eq!(answer.error().map(|error| error.kind), Some(ErrorKind::ShuttingDown));
    }
    assert_eq!(runner.inside(), 0);
    drop((first, second));
}

#[test]
fn of_two_batches_that_fail_on_one_slot_each_ends_with_its_own_error() {
    let scene = keeping(1);
    scene.puppet.script([Act::Late, Act::Keep]);
    begin(&scene, 1);
    let earlier = scene.puppet.late();
    begin(&scene, 2);
    let (mut token, batch) = scene.puppet.kept();
    token.fail(earlier, &broken("the first"));
    token.fail(batch, &broken("the second"));
    assert!(token.give_back().is_none());
    let texts = [1, 2].map(|key| scene.letters.answer(key).error().map(|error| error.message.to_string()));
    assert_eq!(texts, ["the first", "the second"].map(|text| Some(text.to_owned())));
    begin(&scene, 3);
    let (_token, batch) = scene.puppet.kept();
    respond(batch, 0);
}

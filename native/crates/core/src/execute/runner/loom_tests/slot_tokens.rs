//! Slots and answers that come back from another thread.

use super::*;
use crate::base::sync::Condvar;
use crate::{SlotToken, UNANSWERED_PER_SLOT};

/// Keeps its first batches and answers the others at once.
pub(super) struct Keeper {
    keeps: AtomicUsize,
    /// Or the batch alone.
    keeps_the_slot: bool,
    kept: Mutex<Vec<(Option<SlotToken>, Batch)>>,
    came: Condvar,
}

impl Keeper {
    pub(super) fn new(keeps: usize, keeps_the_slot: bool) -> Arc<Self> {
        Arc::new(Self {
            keeps: AtomicUsize::new(keeps),
            keeps_the_slot,
            kept: Mutex::new(Vec::new()),
            came: Condvar::new(),
        })
    }

    /// Waits for a batch that was kept.
    pub(super) fn kept(&self) -> (Option<SlotToken>, Batch) {
        let mut kept = lock(&self.kept);
        loop {
            match kept.pop() {
                Some(one) => return one,
                None => kept = self.came.wait(kept).unwrap(),
            }
        }
    }
}

pub(super) fn answer(mut batch: Batch) {
    (0..batch.len()).for_each(|index| batch.end(index, Ok(())));
}

impl Engine for Keeper {
    fn capability(&self) -> Capability {
        Capability { concurrent: false, inline: false, keeps_slots: true }
    }

    fn execute(&self, _slot: &mut Slot, _batch: Batch) {
        unreachable!("it keeps its slots")
    }

    fn begin(&self, slot: SlotToken, batch: Batch) {
        let before = self.keeps.load(Ordering::SeqCst);
        if before == 0 {
            return answer(batch);
        }
        self.keeps.store(before - 1, Ordering::SeqCst);
        lock(&self.kept).push((self.keeps_the_slot.then_some(slot), batch));
        self.came.notify_one();
    }
}

fn scene(keeper: &Arc<Keeper>) -> Scene {
    Scene::on(keeper.clone(), Arc::new(Seen::default()))
}

#[test]
fn a_token_comes_back_beside_the_call_and_an_admission() {
    check(2, || {
        let keeper = Keeper::new(1, true);
        let scene = scene(&keeper);
        let thread = thread::spawn(move || {
            let (token, batch) = keeper.kept();
            answer(batch);
            drop(token);
        });
        assert!(scene.ask(1).is_some());
        assert!(scene.ask(2).is_some());
        thread.join().unwrap();
        assert_eq!(scene.runner.drain(PATIENCE), 0);
        scene.end(&[1, 2]);
    });
}

#[test]
fn a_token_comes_back_beside_a_retirement() {
    check(2, || {
        let keeper = Keeper::new(1, true);
        let scene = scene(&keeper);
        assert!(scene.ask(1).is_some());
        assert!(scene.ask(2).is_some());
        let thread = thread::spawn(move || {
            let (token, batch) = keeper.kept();
            answer(batch);
            drop(token);
        });
        scene.end(&[1, 2]);
        thread.join().unwrap();
    });
}

#[test]
fn whoever_gives_a_token_back_leads_or_finds_a_leader() {
    check(2, || {
        let keeper = Keeper::new(1, true);
        let scene = scene(&keeper);
        let thread = thread::spawn(move || {
            let (token, batch) = keeper.kept();
            answer(batch);
            let mut lease = token.and_then(SlotToken::give_back);
            while let Some(Step::Again(next)) = lease.map(Lease::run) {
                lease = Some(next);
            }
        });
        assert!(scene.ask(1).is_some());
        assert!(scene.ask(2).is_some());
        thread.join().unwrap();
        assert_eq!(scene.runner.drain(PATIENCE), 0);
        scene.end(&[1, 2]);
    });
}

#[test]
fn an_answer_makes_room_beside_an_admission_that_is_held_back() {
    check(2, || {
        let keeper = Keeper::new(UNANSWERED_PER_SLOT, false);
        let scene = scene(&keeper);
        assert!(scene.ask(1).is_some());
        assert!(scene.ask(2).is_some());
        let other = keeper.clone();
        let thread = thread::spawn(move || answer(other.kept().1));
        assert!(scene.ask(3).is_some());
        thread.join().unwrap();
        await_end(&scene, 3);
        answer(keeper.kept().1);
        assert_eq!(scene.runner.drain(PATIENCE), 0);
        scene.end(&[1, 2, 3]);
    });
}

#[test]
fn an_answer_makes_room_beside_a_leader_who_finds_the_bound_reached() {
    check(3, || {
        let keeper = Keeper::new(UNANSWERED_PER_SLOT, false);
        let scene = scene(&keeper);
        assert!(scene.ask(1).is_some());
        let (_ticket, lead) = scene.submit(2).unwrap();
        assert!(scene.submit(3).is_some());
        let other = keeper.clone();
        let thread = thread::spawn(move || answer(other.kept().1));
        drive(lead);
        thread.join().unwrap();
        await_end(&scene, 3);
        answer(keeper.kept().1);
        assert_eq!(scene.runner.drain(PATIENCE), 0);
        scene.end(&[1, 2, 3]);
    });
}

fn await_end(scene: &Scene, key: u64) {
    while !scene.seen.ends().contains(&key) {
        thread::yield_now();
    }
}

//! Every interleaving of submitters, leaders and sleepers, in loom.

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::*;

mod affinity;
mod bound;
mod resizing;

/// Items to run, one per batch.
#[derive(Default)]
struct Items {
    /// For any slot.
    waiting: usize,
    /// Fewer wait for company; in loom no alarm ever rings.
    patient_below: usize,
    /// For this slot only.
    bound: [usize; 2],
    /// What becomes due for the other slot when one has finished.
    follows: [usize; 2],
}

impl Items {
    fn take(&mut self, slot: u8) -> Option<()> {
        self.patient_below = 0;
        let mine = &mut self.bound[usize::from(slot)];
        let from = if *mine > 0 { mine } else { &mut self.waiting };
        *from = from.checked_sub(1)?;
        Some(())
    }

    fn done(&mut self, slot: u8) {
        let slot = usize::from(slot);
        self.bound[1 - slot] += std::mem::take(&mut self.follows[slot]);
    }
}

impl Work for Items {
    fn due(&self, now: Instant, free: &FreeSlots) -> Due {
        assert!(!free.is_empty(), "there is nothing to be said of no slot");
        if let Some(slot) = free.iter().find(|&slot| self.bound[slot] > 0) {
            return Due::Only(slot);
        }
        match self.waiting {
            0 => Due::Nothing,
            waiting if waiting < self.patient_below => Due::Later(now + Duration::from_secs(1)),
            _ => Due::Any { whole_batch: true },
        }
    }
}

impl Indexed for u8 {
    fn index(&self) -> usize {
        usize::from(*self)
    }
}

type Desk = Handover<Items, u8>;

struct Scene {
    state: Desk,
    ran: AtomicUsize,
    now: Instant,
}

impl Scene {
    fn new(slots: u8, inline: bool) -> Arc<Self> {
        let state = Desk::new(Items::default(), (0..slots).collect());
        if inline {
            state.set_inline();
        }
        Arc::new(Self { state, ran: AtomicUsize::new(0), now: Instant::now() })
    }

    /// Each slot has a thread of its own.
    fn bound(slots: u8) -> Arc<Self> {
        let state = Desk::bound(Items::default(), (0..slots).collect());
        Arc::new(Self { state, ran: AtomicUsize::new(0), now: Instant::now() })
    }

    fn submit(&self) -> Option<u8> {
        self.submit_at_once(1)
    }

    fn submit_at_once(&self, count: usize) -> Option<u8> {
        self.add(|items| items.waiting += count)
    }

    fn submit_for(&self, slot: usize) -> Option<u8> {
        self.add(|items| items.bound[slot] += 1)
    }

    fn add(&self, add: impl FnOnce(&mut Items)) -> Option<u8> {
        let added = self.state.admit(self.now, |items| {
            add(items);
            Ok::<_, ()>(())
        });
        added.ok().and_then(|((), slot)| slot)
    }

    /// Drives a slot as a leader or an instance thread does; `inline` is what the gate says.
    fn drive(&self, slot: Option<u8>, inline: bool) {
        self.drive_with(slot, inline, || ());
    }

    /// The same for items that take as long as `execute`.
    fn drive_with(&self, slot: Option<u8>, inline: bool, execute: impl Fn() + Copy) {
        let mut next = slot;
        while let Some(slot) = next {
            next = match self.state.begin(self.now, slot, |items, &slot| items.take(slot)) {
                Begin::Nothing => None,
                Begin::Run((), slot, second) => {
                    execute();
                    self.ran.fetch_add(1, Ordering::Relaxed);
                    if let Some(second) = second {
                        self.drive_with(Some(second), inline, execute);
                    }
                    self.state.finish(self.now, slot, |items, &slot| {
                        items.done(slot);
                        inline
                    })
                }
            };
        }
    }

    /// An instance thread that leaves once `until` items have run.
    fn work(&self, until: usize, inline: bool) {
        self.work_with(until, inline, || ());
    }

    fn work_with(&self, until: usize, inline: bool, execute: impl Fn() + Copy) {
        while self.ran.load(Ordering::Relaxed) < until {
            let Some(slot) = self.state.wait(0, || self.now) else { return };
            self.drive_with(Some(slot), inline, execute);
        }
        self.state.close();
    }

    fn finished(&self, items: usize, slots: usize) {
        assert_eq!(self.ran.load(Ordering::Relaxed), items, "every item runs exactly once");
        assert_eq!(lock(&self.state.state).free.len(), slots, "every slot is home");
    }
}

fn check(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(body);
}

#[test]
fn two_submitters_leave_nothing_behind_inline() {
    for slots in [1, 2] {
        check(move || {
            let scene = Scene::new(slots, true);
            let other = scene.clone();
            let thread = thread::spawn(move || other.drive(other.submit(), true));
            // The second may come while the other leader finds nothing and leaves.
            scene.drive(scene.submit(), true);
            scene.drive(scene.submit(), true);
            thread.join().unwrap();
            scene.finished(3, usize::from(slots));
        });
    }
}

#[test]
fn a_sleeping_thread_hears_of_every_item() {
    check(|| {
        let scene = Scene::new(1, false);
        let other = scene.clone();
        let thread = thread::spawn(move || other.work(2, false));
        assert_eq!(scene.submit(), None);
        assert_eq!(scene.submit(), None);
        thread.join().unwrap();
        scene.finished(2, 1);
    });
}

#[test]
fn two_sleeping_threads_share_the_items_and_leave_together() {
    check(|| {
        let scene = Scene::new(2, false);
        let threads = [(); 2].map(|()| {
            let other = scene.clone();
            thread::spawn(move || other.work(2, false))
        });
        assert_eq!(scene.submit(), None);
        assert_eq!(scene.submit(), None);
        for thread in threads {
            thread.join().unwrap();
        }
        scene.finished(2, 2);
    });
}

#[test]
fn a_sleeper_with_an_alarm_is_called_when_work_is_due_before_it() {
    check(|| {
        let scene = Scene::new(1, false);
        lock(&scene.state.state).work.patient_below = 2;
        let other = scene.clone();
        let thread = thread::spawn(move || other.work(2, false));
        assert_eq!(scene.submit(), None);
        assert_eq!(scene.submit(), None);
        thread.join().unwrap();
        scene.finished(2, 1);
    });
}

#[test]
fn a_burst_gets_one_leader_who_hands_on_a_second_lease() {
    check(|| {
        let scene = Scene::new(2, true);
        let other = scene.clone();
        let lead = scene.submit();
        assert!(lead.is_some());
        assert_eq!(scene.submit(), None, "a leader is on its way");
        let thread = thread::spawn(move || other.drive(other.submit(), true));
        scene.drive(lead, true);
        thread.join().unwrap();
        scene.finished(3, 2);
    });
}

#[test]
fn a_dropped_lease_is_taken_over_by_a_thread() {
    check(|| {
        let scene = Scene::new(1, true);
        let other = scene.clone();
        let thread = thread::spawn(move || other.work(1, true));
        match scene.submit() {
            Some(slot) => scene.state.give_back(slot, scene.now),
            None => unreachable!("the only slot is free"),
        }
        thread.join().unwrap();
        scene.finished(1, 1);
    });
}

#[test]
fn work_follows_a_model_that_moves_to_its_threads() {
    check(|| {
        let scene = Scene::new(1, true);
        let other = scene.clone();
        let thread = thread::spawn(move || other.work(2, false));
        let lead = scene.submit();
        assert_eq!(scene.submit(), None, "a leader is on its way");
        scene.drive(lead, false);
        thread.join().unwrap();
        scene.finished(2, 1);
    });
}

/// Where whoever comes waits for another.
#[derive(Default)]
struct Meeting {
    here: Mutex<usize>,
    came: Condvar,
}

impl Meeting {
    fn meet(&self) {
        let mut here = lock(&self.here);
        *here += 1;
        self.came.notify_one();
        while *here < 2 {
            here = self.came.wait(here).unwrap();
        }
    }
}

/// Two instance threads run two items, each until the other does, too.
fn run_side_by_side(scene: &Arc<Scene>, submit: impl FnOnce()) {
    let meeting = Arc::new(Meeting::default());
    let threads = [(); 2].map(|()| {
        let (other, meeting) = (scene.clone(), meeting.clone());
        thread::spawn(move || other.work_with(2, false, || meeting.meet()))
    });
    submit();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    scene.finished(2, 2);
}

#[test]
fn whoever_begins_calls_the_next_for_what_came_at_once() {
    check(|| {
        let scene = Scene::new(2, false);
        run_side_by_side(&scene, || assert_eq!(scene.submit_at_once(2), None));
    });
}

#[test]
fn all_who_sleep_leave_when_it_closes() {
    check(|| {
        let scene = Scene::new(2, false);
        let threads = [(); 2].map(|()| {
            let other = scene.clone();
            thread::spawn(move || other.state.wait(0, || other.now))
        });
        scene.state.close();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), None);
        }
    });
}

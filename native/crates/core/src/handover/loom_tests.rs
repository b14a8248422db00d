//! Every interleaving of submitters, leaders and sleepers, in loom.

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::*;

/// Items to run, one per batch.
struct Items {
    waiting: usize,
    /// Fewer wait for company; in loom no alarm ever rings.
    patient_below: usize,
}

impl Work for Items {
    fn due(&self, now: Instant) -> Result<(), Option<Instant>> {
        match self.waiting {
            0 => Err(None),
            waiting if waiting < self.patient_below => Err(Some(now + Duration::from_secs(1))),
            _ => Ok(()),
        }
    }

    fn has_full_batch(&self) -> bool {
        self.waiting > 0
    }
}

type Desk = Handover<Items, u8>;

struct Scene {
    desk: Desk,
    ran: AtomicUsize,
    now: Instant,
}

impl Scene {
    fn new(slots: u8, inline: bool) -> Arc<Self> {
        let desk = Desk::new(Items { waiting: 0, patient_below: 0 }, (0..slots).collect());
        if inline {
            desk.set_inline();
        }
        Arc::new(Self { desk, ran: AtomicUsize::new(0), now: Instant::now() })
    }

    fn submit(&self) -> Option<u8> {
        self.submit_at_once(1)
    }

    fn submit_at_once(&self, count: usize) -> Option<u8> {
        let add = |items: &mut Items| {
            items.waiting += count;
            Ok::<_, ()>(())
        };
        self.desk.admit(self.now, add).ok().and_then(|((), slot)| slot)
    }

    /// Drives a slot as a leader or an instance thread does; `inline` is what the gate says.
    fn drive(&self, slot: Option<u8>, inline: bool) {
        let mut next = slot;
        while let Some(slot) = next {
            let take = |items: &mut Items, _: &u8| {
                items.patient_below = 0;
                items.waiting.checked_sub(1).map(|rest| items.waiting = rest)
            };
            next = match self.desk.begin(self.now, slot, take) {
                Begin::Nothing => None,
                Begin::Run((), slot, second) => {
                    self.ran.fetch_add(1, Ordering::Relaxed);
                    if let Some(second) = second {
                        self.drive(Some(second), inline);
                    }
                    self.desk.finish(self.now, slot, |_, _| inline)
                }
            };
        }
    }

    /// An instance thread that leaves once `until` items have run.
    fn work(&self, until: usize, inline: bool) {
        while self.ran.load(Ordering::Relaxed) < until {
            let Some(slot) = self.desk.wait(|| self.now) else { return };
            self.drive(Some(slot), inline);
        }
        self.desk.close();
    }

    fn finished(&self, items: usize, slots: usize) {
        assert_eq!(self.ran.load(Ordering::Relaxed), items, "every item runs exactly once");
        assert_eq!(lock(&self.desk.state).free.len(), slots, "every slot is home");
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
        lock(&scene.desk.state).work.patient_below = 2;
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
            Some(slot) => scene.desk.give_back(slot, scene.now),
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

#[test]
fn whoever_begins_calls_the_next_for_what_came_at_once() {
    check(|| {
        let scene = Scene::new(2, false);
        let running = Arc::new((Mutex::new(0), Condvar::new()));
        let threads = [(); 2].map(|()| {
            let (other, running) = (scene.clone(), running.clone());
            thread::spawn(move || {
                let slot = other.desk.wait(|| other.now).unwrap();
                let take =
                    |items: &mut Items, _: &u8| items.waiting.checked_sub(1).map(|rest| items.waiting = rest);
                let Begin::Run((), slot, None) = other.desk.begin(other.now, slot, take) else {
                    unreachable!("there is an item for each")
                };
                // Each runs until the other does, too.
                let mut count = lock(&running.0);
                *count += 1;
                running.1.notify_one();
                while *count < 2 {
                    count = running.1.wait(count).unwrap();
                }
                drop(count);
                assert_eq!(other.desk.finish(other.now, slot, |_, _| false), None);
            })
        });
        assert_eq!(scene.submit_at_once(2), None);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        scene.finished(0, 2);
    });
}

#[test]
fn all_who_sleep_leave_when_it_closes() {
    check(|| {
        let scene = Scene::new(2, false);
        let threads = [(); 2].map(|()| {
            let other = scene.clone();
            thread::spawn(move || other.desk.wait(|| other.now))
        });
        scene.desk.close();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), None);
        }
    });
}

//! Slots that come and go while work comes and threads sleep.

use super::*;

impl Scene {
    /// An instance thread of this number, which leaves once `until` items have run, or its slot has gone.
    fn work_as(&self, thread: usize, until: usize) {
        while self.ran.load(Ordering::Relaxed) < until {
            let Some(slot) = self.state.wait(thread, || self.now) else { return };
            self.drive(Some(slot), false);
        }
        self.state.close();
    }

    /// False where all have run before.
    fn resize(&self, count: usize) -> bool {
        self.state.enlist(0);
        self.state.enlist(1);
        self.state.resize(self.now, count, |index| index as u8, |_| ()).is_some()
    }
}

#[test]
fn a_slot_that_goes_leaves_its_work_to_the_others() {
    check(|| {
        let scene = Scene::new(2, false);
        let threads = [0, 1].map(|index| {
            let other = scene.clone();
            thread::spawn(move || other.work_as(index, 2))
        });
        scene.submit_at_once(2);
        let slots = if scene.resize(1) { 1 } else { 2 };
        for thread in threads {
            thread.join().unwrap();
        }
        scene.finished(2, slots);
    });
}

#[test]
fn work_that_comes_while_a_slot_goes_is_for_the_others() {
    check(|| {
        let scene = Scene::new(2, false);
        let threads = [0, 1].map(|index| {
            let other = scene.clone();
            thread::spawn(move || other.work_as(index, 3))
        });
        scene.submit_at_once(2);
        assert!(scene.resize(1));
        scene.submit();
        for thread in threads {
            thread.join().unwrap();
        }
        scene.finished(3, 1);
    });
}

#[test]
fn a_slot_that_comes_takes_what_waits() {
    check(|| {
        let scene = Scene::new(1, false);
        let other = scene.clone();
        let first = thread::spawn(move || other.work_as(0, 2));
        scene.submit_at_once(2);
        let slots = if scene.resize(2) { 2 } else { 1 };
        let other = scene.clone();
        let second = thread::spawn(move || other.work_as(1, 2));
        first.join().unwrap();
        second.join().unwrap();
        scene.finished(2, slots);
    });
}

#[test]
fn a_slot_that_goes_and_comes_back_is_home_in_the_end() {
    check(|| {
        let scene = Scene::new(2, true);
        let other = scene.clone();
        let leader = thread::spawn(move || other.drive(other.submit(), true));
        assert!(scene.resize(1));
        scene.drive(scene.submit(), true);
        assert!(scene.resize(2));
        leader.join().unwrap();
        scene.finished(2, 2);
    });
}

//! Slots that each have a thread of their own, which takes no other.

use super::*;

/// The thread of one slot, until `until` items have run in all.
fn work_on(scene: &Arc<Scene>, own: u8, until: usize) -> thread::JoinHandle<()> {
    let other = scene.clone();
    thread::spawn(move || {
        while other.ran.load(Ordering::Relaxed) < until {
            let Some(slot) = other.state.wait(usize::from(own), || other.now) else { return };
            assert_eq!(slot, own, "it is on the cores of its own slot");
            other.drive(Some(slot), false);
        }
        other.state.close();
    })
}

#[test]
fn work_for_any_slot_is_taken_by_either_thread_with_its_own() {
    check(|| {
        let scene = Scene::bound(2);
        let threads = [0, 1].map(|own| work_on(&scene, own, 2));
        assert_eq!(scene.submit(), None);
        assert_eq!(scene.submit(), None);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        scene.finished(2, 2);
    });
}

#[test]
fn the_thread_of_a_slot_hears_of_work_for_it_whoever_else_sleeps() {
    for slot in [0, 1] {
        check(move || {
            let scene = Scene::bound(2);
            let threads = [0, 1].map(|own| work_on(&scene, own, 1));
            assert_eq!(scene.submit_for(slot), None);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            scene.finished(1, 2);
        });
    }
}

#[test]
fn what_becomes_due_for_the_other_slot_wakes_its_thread() {
    check(|| {
        let scene = Scene::bound(2);
        let threads = [0, 1].map(|own| work_on(&scene, own, 2));
        scene.add(|items| (items.bound, items.follows) = ([1, 0], [1, 0]));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        scene.finished(2, 2);
    });
}

#[test]
fn a_sleeper_with_an_alarm_is_called_like_all_others() {
    check(|| {
        let scene = Scene::bound(2);
        lock(&scene.state.state).work.patient_below = 2;
        let threads = [0, 1].map(|own| work_on(&scene, own, 2));
        assert_eq!(scene.submit(), None, "it waits for company");
        assert_eq!(scene.submit_for(1), None);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        scene.finished(2, 2);
    });
}

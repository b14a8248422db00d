//! Work that is bound to a slot: another slot that is free, or whose leader is on its way, is no help.

use super::*;

#[test]
fn a_sleeping_thread_hears_of_work_for_either_slot() {
    check(|| {
        let scene = Scene::new(2, false);
        let other = scene.clone();
        let thread = thread::spawn(move || other.work(2, false));
        assert_eq!(scene.submit_for(1), None);
        assert_eq!(scene.submit_for(0), None);
        thread.join().unwrap();
        scene.finished(2, 2);
    });
}

#[test]
fn work_for_one_slot_waits_for_it_while_the_other_is_free() {
    for slot in [0, 1] {
        check(move || {
            let scene = Scene::new(2, false);
            let mine = lock(&scene.state.state).take(slot);
            let other = scene.clone();
            let thread = thread::spawn(move || other.work(1, false));
            assert_eq!(scene.submit_for(slot), None);
            assert_eq!(lock(&scene.state.state).called, 0, "it wakes nobody");
            assert_eq!(scene.ran.load(Ordering::Relaxed), 0, "nobody else may run it");
            scene.state.give_back(mine.unwrap(), scene.now);
            thread.join().unwrap();
            scene.finished(1, 2);
        });
    }
}

#[test]
fn an_admission_calls_a_second_thread_for_the_second_slot() {
    check(|| {
        let scene = Scene::new(2, false);
        run_side_by_side(&scene, || {
            assert_eq!(scene.submit_for(0), None);
            assert_eq!(scene.submit_for(1), None);
        });
    });
}

/// An instance thread that has a slot and does not begin until another thread has one, too.
fn lead_when_another_does(scene: &Arc<Scene>, meeting: &Arc<Meeting>) -> thread::JoinHandle<()> {
    let (other, meeting) = (scene.clone(), meeting.clone());
    thread::spawn(move || {
        let slot = other.state.wait(0, || other.now);
        meeting.meet();
        other.drive(slot, false);
    })
}

#[test]
fn whoever_takes_a_slot_calls_the_next_for_the_other_before_it_begins() {
    check(|| {
        let scene = Scene::new(2, false);
        let meeting = Arc::default();
        let threads = [(); 2].map(|()| lead_when_another_does(&scene, &meeting));
        assert_eq!(scene.add(|items| items.bound = [1, 1]), None);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        scene.finished(2, 2);
    });
}

#[test]
fn a_slot_that_goes_on_calls_a_thread_for_what_it_has_set_free_for_the_other() {
    check(|| {
        let scene = Scene::new(2, false);
        let lead = lock(&scene.state.state).take(0);
        let meeting = Arc::default();
        let thread = lead_when_another_does(&scene, &meeting);
        scene.add(|items| (items.bound, items.follows) = ([2, 0], [1, 0]));
        let begun = scene.state.begin(scene.now, lead.unwrap(), |items, &slot| items.take(slot));
        let Begin::Run((), slot, None) = begun else { unreachable!("there is work for it") };
        let again = scene.state.finish(scene.now, slot, |items, &slot| {
            items.done(slot);
            false
        });
        assert_eq!(again, Some(0));
        meeting.meet();
        scene.drive(again, false);
        thread.join().unwrap();
        scene.finished(2, 2);
    });
}

#[test]
fn a_slot_that_finishes_goes_home_when_the_work_is_for_another() {
    check(|| {
        let scene = Scene::new(2, true);
        let lead = scene.submit_for(0);
        let begun = scene.state.begin(scene.now, lead.unwrap(), |items, &slot| items.take(slot));
        let Begin::Run((), slot, None) = begun else { unreachable!("there is work for it") };
        let other = scene.clone();
        let thread = thread::spawn(move || other.work(1, true));
        let again = scene.state.finish(scene.now, slot, |items, _| {
            items.bound[1] += 1;
            true
        });
        assert_eq!(again, None);
        thread.join().unwrap();
        scene.finished(1, 2);
    });
}

#[test]
fn a_slot_that_finishes_goes_on_with_its_own_work_though_another_is_named_first() {
    check(|| {
        let scene = Scene::new(2, false);
        let lead = lock(&scene.state.state).take(1);
        let meeting = Arc::default();
        let thread = lead_when_another_does(&scene, &meeting);
        scene.add(|items| items.bound = [0, 1]);
        let begun = scene.state.begin(scene.now, lead.unwrap(), |items, &slot| items.take(slot));
        let Begin::Run((), slot, None) = begun else { unreachable!("there is work for it") };
        let again = scene.state.finish(scene.now, slot, |items, _| {
            items.bound = [1, 1];
            false
        });
        assert_eq!(again, Some(1));
        meeting.meet();
        scene.drive(again, false);
        thread.join().unwrap();
        scene.finished(2, 2);
    });
}

#[test]
fn a_leader_on_its_way_with_one_slot_leaves_work_for_the_other_to_whoever_brings_it() {
    check(|| {
        let scene = Scene::new(2, true);
        let lead = scene.submit_for(0);
        assert_eq!(lead, Some(0));
        assert_eq!(scene.submit(), None, "any leader takes that");
        let second = scene.submit_for(1);
        assert_eq!(second, Some(1));
        let other = scene.clone();
        let thread = thread::spawn(move || other.drive(second, true));
        scene.drive(lead, true);
        thread.join().unwrap();
        scene.finished(3, 2);
    });
}

#[test]
fn the_slot_that_is_named_is_led_and_no_other() {
    for slot in [0, 1] {
        check(move || {
            let scene = Scene::new(2, true);
            let lead = scene.submit_for(slot);
            assert_eq!(lead.map(usize::from), Some(slot));
            scene.drive(lead, true);
            scene.finished(1, 2);
        });
    }
}

#[test]
fn one_slot_finishes_beside_an_admission_for_the_other() {
    for inline in [true, false] {
        check(move || {
            let scene = Scene::new(2, inline);
            let other = scene.clone();
            let thread = thread::spawn(move || {
                if inline {
                    other.drive(other.submit_for(0), true);
                } else {
                    other.work(3, false);
                }
            });
            scene.drive(scene.submit_for(1), true);
            scene.drive(scene.submit_for(if inline { 1 } else { 0 }), true);
            if !inline {
                scene.submit_for(0);
            }
            thread.join().unwrap();
            scene.finished(3, 2);
        });
    }
}

#[test]
fn a_second_lease_is_for_the_slot_that_has_work() {
    check(|| {
        let scene = Scene::new(2, true);
        let lead = scene.submit_for(0);
        lock(&scene.state.state).work.bound[1] += 1;
        let Begin::Run((), slot, second) =
            scene.state.begin(scene.now, lead.unwrap(), |items, &slot| items.take(slot))
        else {
            unreachable!("there is work for it")
        };
        assert_eq!((slot, second), (0, Some(1)));
        assert_eq!(scene.state.finish(scene.now, slot, |_, _| true), None, "what is left is for the other");
        scene.drive(second, true);
        scene.ran.fetch_add(1, Ordering::Relaxed);
        scene.finished(2, 2);
    });
}

#[test]
fn a_sleeper_with_an_alarm_is_called_for_a_slot_that_has_work_before_it() {
    check(|| {
        let scene = Scene::new(2, false);
        lock(&scene.state.state).work.patient_below = 2;
        let other = scene.clone();
        let thread = thread::spawn(move || other.work(2, false));
        assert_eq!(scene.submit(), None, "it waits for company");
        assert_eq!(scene.submit_for(1), None);
        thread.join().unwrap();
        scene.finished(2, 2);
    });
}

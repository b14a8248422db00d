//! Every interleaving of who sends and who takes, in loom.

use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;

use super::*;

/// One answer at a time.
fn claim() -> Arc<Claim> {
    Arc::new(Claim::new(Window { answers: 1, bytes: 1 }))
}

/// Counts with the standard library's atomics, which add no interleavings of their own.
fn wake(rings: &Arc<AtomicUsize>) -> Wake {
    let rings = rings.clone();
    Box::new(move || {
        rings.fetch_add(1, Ordering::SeqCst);
    })
}

#[test]
fn a_sender_that_finds_no_room_hears_once_of_the_answer_that_is_taken() {
    loom::model(|| {
        let claim = claim();
        let answer = Credit::take(&claim, 1);
        let taker = thread::spawn(move || drop(answer));
        let rings = Arc::new(AtomicUsize::new(0));
        let sent = Credit::take(&claim, 1);
        let is_full = sent.is_none();
        if is_full {
            claim.when_room(wake(&rings));
        }
        taker.join().unwrap();
        assert_eq!(rings.load(Ordering::SeqCst), usize::from(is_full));
        drop(sent);
        assert!(Credit::take(&claim, 1).is_some(), "all that was taken is room again");
    });
}

#[test]
fn a_sender_that_finds_no_room_hears_once_that_its_asker_has_gone() {
    for leave in [Claim::cancel, Claim::expire] {
        loom::model(move || {
            let claim = claim();
            let answer = Credit::take(&claim, 1);
            let asker = claim.clone();
            let leaving = thread::spawn(move || {
                leave(&asker);
                // What it has not taken goes afterwards.
                drop(answer);
            });
            let rings = Arc::new(AtomicUsize::new(0));
            claim.when_room(wake(&rings));
            leaving.join().unwrap();
            assert_eq!(rings.load(Ordering::SeqCst), 1);
        });
    }
}

#[test]
fn whoever_waits_for_the_asker_to_go_hears_of_it_once() {
    for leave in [Claim::cancel, Claim::expire] {
        loom::model(move || {
            let claim = claim();
            let asker = claim.clone();
            let leaving = thread::spawn(move || leave(&asker));
            let rings = Arc::new(AtomicUsize::new(0));
            claim.when_abandoned(wake(&rings));
            assert!(leaving.join().unwrap());
            assert_eq!(rings.load(Ordering::SeqCst), 1);
        });
    }
}

#[test]
fn a_sender_hears_that_its_asker_has_gone_with_answers_that_are_still_on_their_way() {
    loom::model(|| {
        let claim = claim();
        let _on_its_way = Credit::take(&claim, 1);
        let asker = claim.clone();
        let leaving = thread::spawn(move || asker.cancel());
        let rings = Arc::new(AtomicUsize::new(0));
        claim.when_room(wake(&rings));
        assert!(leaving.join().unwrap());
        assert_eq!(rings.load(Ordering::SeqCst), 1);
    });
}

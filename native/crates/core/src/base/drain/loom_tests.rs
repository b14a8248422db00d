//! Every interleaving of those who end and the drain that waits for them, in loom.

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::*;

#[derive(Default)]
struct Scene {
    drain: Drain,
    count: Count,
    /// Written before an end, with no order of its own: whoever sees the end must see it.
    written: AtomicUsize,
}

impl Scene {
    fn end(&self) {
        self.written.fetch_add(1, Ordering::Relaxed);
        self.count.end(1);
        self.drain.something_ended();
    }

    /// Without a wake-up loom reports a deadlock: no time passes there.
    fn wait(&self) {
        let until = Instant::now() + Duration::from_secs(3600);
        assert_eq!(self.drain.wait_until_none(|| self.count.get(), until), 0);
    }
}

fn check(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

#[test]
fn a_drain_ends_when_the_last_has_ended_and_not_before() {
    for begun in [1, 2] {
        check(move || {
            let scene = Arc::new(Scene::default());
            (0..begun).for_each(|_| scene.count.begin());
            let threads: Vec<_> = (0..begun)
                .map(|_| {
                    let scene = scene.clone();
                    thread::spawn(move || scene.end())
                })
                .collect();
            scene.drain.begin();
            scene.wait();
            assert_eq!(scene.written.load(Ordering::Relaxed), begun);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

#[test]
fn a_drain_waits_for_one_count_after_the_other() {
    check(|| {
        let scene = Arc::new(Scene::default());
        let first = Arc::new(Count::default());
        first.begin();
        scene.count.begin();
        let (other, others_first) = (scene.clone(), first.clone());
        let thread = thread::spawn(move || {
            others_first.end(1);
            other.drain.something_ended();
            other.end();
        });
        scene.drain.begin();
        let until = Instant::now() + Duration::from_secs(3600);
        assert_eq!(scene.drain.wait_until_none(|| first.get(), until), 0);
        scene.wait();
        assert_eq!(scene.written.load(Ordering::Relaxed), 1);
        thread.join().unwrap();
    });
}

#[test]
fn what_is_admitted_is_waited_for_and_what_comes_later_is_not_counted() {
    check(|| {
        let scene = Arc::new(Scene::default());
        let other = scene.clone();
        let thread = thread::spawn(move || {
            let admitted = other.drain.admit(&other.count);
            if admitted {
                other.end();
            }
            admitted
        });
        scene.drain.begin();
        scene.wait();
        let written = scene.written.load(Ordering::Relaxed);
        let admitted = thread.join().unwrap();
        assert_eq!(written, usize::from(admitted), "the drain has ended");
        assert_eq!(scene.count.get(), 0);
    });
}

#[test]
fn one_of_two_begins_where_nothing_has() {
    check(|| {
        let count = Arc::new(Count::default());
        let other = count.clone();
        let thread = thread::spawn(move || other.begin_only_one());
        let here = count.begin_only_one();
        assert!(here != thread.join().unwrap());
        assert_eq!(count.end(1), 0);
    });
}

//! Every interleaving of those who push and the one who reads, in loom.

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar};
use loom::thread;

use super::*;

/// A reader that sleeps until it is woken, as an io thread and an event loop do.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
    rings: AtomicUsize,
}

impl Bell {
    fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        *lock(&self.rung) = true;
        self.heard.notify_one();
    }

    fn wait(&self) {
        let mut rung = lock(&self.rung);
        while !*rung {
            rung = self.heard.wait(rung).unwrap();
        }
        *rung = false;
    }
}

fn inbox(capacity: usize) -> (Arc<Inbox<u8>>, Arc<Bell>) {
    let bell = Arc::new(Bell::default());
    let rings = bell.clone();
    (Arc::new(Inbox::new(capacity, move || rings.ring())), bell)
}

/// Reads until so many items have come. Answers them, and in how many bursts.
fn read(inbox: &Inbox<u8>, bell: &Bell, items: usize) -> (Vec<u8>, usize) {
    let (mut read, mut burst, mut bursts) = (Vec::new(), Vec::new(), 0);
    while read.len() < items {
        bell.wait();
        inbox.drain(&mut burst);
        bursts += usize::from(!burst.is_empty());
        read.append(&mut burst);
    }
    (read, bursts)
}

fn check(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(body);
}

#[test]
fn each_item_arrives_once_and_each_burst_costs_one_wake_up() {
    check(|| {
        let (inbox, bell) = inbox(3);
        let pushers = [[1, 2], [3, 4]].map(|items| {
            let inbox = inbox.clone();
            thread::spawn(move || {
                assert!(inbox.push(items[0]).is_ok());
                inbox.push_owed(items[1]);
            })
        });
        let (mut items, bursts) = read(&inbox, &bell, 4);
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        let place = |item| items.iter().position(|&found| found == item);
        assert!(place(1) < place(2) && place(3) < place(4), "in the order of each pusher");
        items.sort_unstable();
        assert_eq!(items, [1, 2, 3, 4]);
        assert_eq!(bell.rings.load(Ordering::Relaxed), bursts);
    });
}

#[test]
fn a_full_inbox_gives_back_and_the_rest_arrives() {
    check(|| {
        let (inbox, bell) = inbox(1);
        let pushers = [1, 2].map(|item| {
            let inbox = inbox.clone();
            thread::spawn(move || usize::from(inbox.push(item).is_ok()))
        });
        let mut burst = Vec::new();
        inbox.drain(&mut burst);
        assert!(burst.len() <= 1, "one has room");
        let taken: usize = pushers.into_iter().map(|pusher| pusher.join().unwrap()).sum();
        let before = burst.len();
        let (rest, _) = read(&inbox, &bell, taken - before);
        assert!(taken >= 1, "the first has room");
        assert_eq!(before + rest.len(), taken, "what is accepted arrives, once");
        assert!(rest.len() <= 1, "one has room behind what was read, too");
        assert!(inbox.push(3).is_ok(), "what is read makes room");
    });
}

#[test]
fn what_comes_while_it_closes_is_dropped() {
    check(|| {
        let (closing, _bell) = inbox(2);
        let inbox = closing.clone();
        let pusher = thread::spawn(move || {
            inbox.push_owed(1);
            inbox.push(2).is_ok()
        });
        closing.close();
        let _ = pusher.join().unwrap();
        assert!(closing.push(3).is_err());
        let mut left = Vec::new();
        closing.drain(&mut left);
        assert!(left.is_empty());
    });
}

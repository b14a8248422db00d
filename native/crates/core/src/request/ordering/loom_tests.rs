//! Every interleaving of those who pass mail, in loom.

use std::sync::{Arc, Weak};
use std::time::Instant;

use loom::sync::atomic::{AtomicUsize, Ordering as Atomic};
use loom::thread;

use super::*;
use crate::{Bound, End, Inputs, Mail, Mailbox, Reply, Request, Timings, Wanted};

/// Notes what is delivered, and whether two threads do that at once.
#[derive(Default)]
struct Seen {
    delivering: AtomicUsize,
    keys: Mutex<Vec<u64>>,
    /// Passes mail of batch 1 from inside the delivery of batch 0.
    again: Option<(Weak<Ordering>, Weak<Self>)>,
}

impl Mailbox for Seen {
    fn deliver(&self, mail: Vec<Mail>) {
        assert_eq!(self.delivering.fetch_add(1, Atomic::AcqRel), 0, "one thread delivers at a time");
        lock(&self.keys).extend(mail.iter().map(|mail| mail.key));
        self.delivering.fetch_sub(1, Atomic::AcqRel);
        if let Some((ordering, itself)) = &self.again
            && mail.iter().any(|mail| mail.key == 0)
        {
            pass(&ordering.upgrade().unwrap(), 1, &(itself.upgrade().unwrap() as Arc<dyn Mailbox>));
        }
    }
}

/// The only mail of a batch of one request.
fn pass(ordering: &Ordering, sequence: u64, to: &Arc<dyn Mailbox>) {
    let bound = Bound { inputs: Inputs::default(), wanted: Wanted::default(), rows: 1 };
    let request = Box::new(Request::new(bound, Instant::now(), Reply::new(to.clone(), sequence)));
    let end = End { result: Ok(()), timings: Timings::default(), request };
    let mail = Mail { key: sequence, response: None, end: Some(end), credit: None };
    ordering.pass(sequence, [Numbered { number: sequence, mailbox: to.clone(), mail }]);
}

/// Of this many batches, of one request each that has their number.
fn begun(batches: u64) -> Ordering {
    let ordering = Ordering::new(false, Arc::new(|| ()));
    (0..batches).for_each(|sequence| ordering.begin(sequence, std::iter::once(sequence)));
    ordering
}

fn check(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(body);
}

#[test]
fn mail_leaves_in_order_whoever_passes_it_first() {
    check(|| {
        let ordering = Arc::new(begun(3));
        let seen = Arc::new(Seen::default());
        let mailbox: Arc<dyn Mailbox> = seen.clone();
        let others = [1, 2].map(|sequence| {
            let (ordering, mailbox) = (ordering.clone(), mailbox.clone());
            thread::spawn(move || pass(&ordering, sequence, &mailbox))
        });
        pass(&ordering, 0, &mailbox);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(*lock(&seen.keys), [0, 1, 2], "each once, in order");
    });
}

#[test]
fn a_delivery_may_pass_mail_again() {
    check(|| {
        let ordering = Arc::new(begun(3));
        let seen = Arc::new_cyclic(|itself| Seen {
            again: Some((Arc::downgrade(&ordering), Weak::clone(itself))),
            ..Seen::default()
        });
        let mailbox: Arc<dyn Mailbox> = seen.clone();
        let other = {
            let (ordering, mailbox) = (ordering.clone(), mailbox.clone());
            thread::spawn(move || pass(&ordering, 2, &mailbox))
        };
        pass(&ordering, 0, &mailbox);
        other.join().unwrap();
        assert_eq!(*lock(&seen.keys), [0, 1, 2], "what was passed from inside has its place");
    });
}

#[test]
fn what_nobody_waits_for_holds_nobody_back_and_is_delivered_itself() {
    check(|| {
        let ordering = Arc::new(begun(2));
        let seen = Arc::new(Seen::default());
        let mailbox: Arc<dyn Mailbox> = seen.clone();
        let gives_up = {
            let ordering = ordering.clone();
            thread::spawn(move || ordering.give_up(0, 0))
        };
        let passes = {
            let (ordering, mailbox) = (ordering.clone(), mailbox.clone());
            thread::spawn(move || pass(&ordering, 1, &mailbox))
        };
        gives_up.join().unwrap();
        passes.join().unwrap();
        assert_eq!(*lock(&seen.keys), [1], "it does not wait for the first");
        pass(&ordering, 0, &mailbox);
        assert_eq!(*lock(&seen.keys), [1, 0], "whose own end comes late");
    });
}

//! The open connections of one io thread: a closing server tells each of them, those at which too long
//! nothing happens are ended, and those that are silent give their places to others, or their memory.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::activity::{Activity, Look};
use crate::limits::Limits;
use crate::listen::{Entrance, Guest};

/// How often connections are looked over.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A connection on which nothing has come for this long may be ended where its place is needed. Clients of
/// ours do not use one again by then.
const SILENT_FOR: Duration = Duration::from_secs(5);
/// How many connections are looked at for one that is silent.
const LOOKED_AT: usize = 512;

#[derive(Default)]
pub struct Connections {
    closing: Cell<bool>,
    draining: Cell<bool>,
    rows: RefCell<Vec<Row>>,
    free: RefCell<Vec<usize>>,
    looking: Cell<bool>,
    /// Where the next look for a silent one begins.
    hand: Cell<usize>,
}

/// Of a connection, as others name it who may be late.
#[derive(Clone, Copy)]
pub struct Key(pub u64);

#[derive(Default)]
struct Row {
    /// By connections before.
    uses: u32,
    waker: Option<Waker>,
    /// Of those that are looked over.
    watch: Option<Watch>,
}

struct Watch {
    activity: Rc<Activity>,
    entrance: Arc<Entrance>,
    /// The time of the last news.
    since: Instant,
}

impl Connections {
    /// Every connection finishes the request it is at and closes; so does every later one.
    pub fn close(&self) {
        self.closing.set(true);
        self.rows.borrow().iter().for_each(Row::wake);
    }

    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// New requests are refused from now on: a connection whose protocol can say so tells its client.
    pub fn begin_drain(&self) {
        if !self.draining.replace(true) {
            self.rows.borrow().iter().for_each(Row::wake);
        }
    }

    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// A connection that is woken when the server closes.
    pub fn enter(&self) -> Entered<'_> {
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            self.rows.borrow_mut().push(Row::default());
            self.rows.borrow().len() - 1
        });
        Entered { connections: self, index, known: Cell::new(false), is_late: self.draining.get() }
    }

    /// The client of a connection will say nothing more.
    pub fn has_left(&self, Key(key): Key) {
        let rows = self.rows.borrow();
        let (index, uses) = (key as u32 as usize, (key >> 32) as u32);
        let row = rows.get(index).filter(|row| row.uses == uses);
        if let Some((row, watch)) = row.and_then(|row| Some((row, row.watch.as_ref()?))) {
            watch.activity.set_deserted();
            row.wake();
        }
    }

    /// Whether somebody has to begin to look them over.
    pub fn need_looks(&self) -> bool {
        !self.looking.replace(true)
    }

    /// Looks them over until there is none.
    pub async fn look_over(&self, limits: &Limits) {
        let in_a_drain = limits.in_a_drain();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let limits = if self.draining.get() { &in_a_drain } else { limits };
            let now = Instant::now();
            let mut any = false;
            for row in &mut *self.rows.borrow_mut() {
                let Some(Watch { activity, since, .. }) = &mut row.watch else { continue };
                any = true;
                match activity.look(now.saturating_duration_since(*since), limits) {
                    Look::Moved => *since = now,
                    Look::Patience => {}
                    Look::Rest | Look::Overdue => row.wake(),
                }
            }
            if !any {
                self.looking.set(false);
                return;
            }
        }
    }

    /// Ends a connection that has been silent for a while, of `entrance` or of any. False if none was found among
    /// those whose turn it was to be looked at.
    pub fn end_one_silent(&self, entrance: Option<&Arc<Entrance>>) -> bool {
        let now = Instant::now();
        let rows = self.rows.borrow();
        for _ in 0..rows.len().min(LOOKED_AT) {
            let row = &rows[self.hand.get() % rows.len()];
            self.hand.set((self.hand.get() + 1) % rows.len());
            let Some(watch) = &row.watch else { continue };
            let is_wanted = entrance.is_none_or(|entrance| Arc::ptr_eq(entrance, &watch.entrance));
            if is_wanted
                && now.saturating_duration_since(watch.since) >= SILENT_FOR
                && watch.activity.dismiss()
            {
                row.wake();
                return true;
            }
        }
        false
    }
}

impl Row {
    fn wake(&self) {
        self.waker.iter().for_each(Waker::wake_by_ref);
    }
}

/// A connection among those of its thread.
pub struct Entered<'a> {
    connections: &'a Connections,
    index: usize,
    known: Cell<bool>,
    /// It came while the server drained.
    is_late: bool,
}

impl Entered<'_> {
    /// A task keeps its waker for life: the first one is enough.
    pub fn remember(&self, waker: &Waker) {
        if !self.known.replace(true) {
            self.connections.rows.borrow_mut()[self.index].waker = Some(waker.clone());
        }
    }

    pub fn key(&self) -> Key {
        let uses = self.connections.rows.borrow()[self.index].uses;
        Key(u64::from(uses) << 32 | self.index as u64)
    }

    /// From now on the connection is looked over.
    pub fn watch(&self, activity: &Rc<Activity>, guest: &Guest) {
        let (activity, entrance) = (activity.clone(), guest.entrance().clone());
        let watch = Watch { activity, entrance, since: Instant::now() };
        self.connections.rows.borrow_mut()[self.index].watch = Some(watch);
    }

    /// Whether its client had better go elsewhere: one that has come since would come again and again.
    pub fn is_unwelcome(&self) -> bool {
        self.connections.draining.get() && !self.is_late
    }

    /// Whether the connection has to close behind the request that it is at.
    pub fn is_closing(&self) -> bool {
        self.connections.is_closing()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let left = {
            let row = &mut self.connections.rows.borrow_mut()[self.index];
            let uses = row.uses.wrapping_add(1);
            std::mem::replace(row, Row { uses, ..Row::default() })
        };
        self.connections.free.borrow_mut().push(self.index);
        drop(left);
    }
}

//! The open connections of one io thread: a closing server tells each of them, those at which too long
//! nothing happens are ended, and those that are silent give their place to others, or their memory.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::HttpService;

use crate::activity::{Activity, Look};
use crate::limits::Limits;
use crate::listen::Door;

/// How often connections are looked over.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A connection on which nothing has come for this long may be ended where its place is needed. Clients of
/// ours do not use one again by then.
const SILENT_FOR: Duration = Duration::from_secs(5);
/// How many connections are looked at for one that is silent.
const LOOKED_AT: usize = 512;

#[derive(Default)]
pub(crate) struct Connections {
    closing: Cell<bool>,
    places: RefCell<Vec<Place>>,
    free: RefCell<Vec<usize>>,
    looking: Cell<bool>,
    /// Where the next look for a silent one begins.
    hand: Cell<usize>,
}

/// Of a connection, as others name it who may be late.
#[derive(Clone, Copy)]
pub(crate) struct Key(pub u64);

#[derive(Default)]
struct Place {
    /// By connections before.
    uses: u32,
    waker: Option<Waker>,
    /// Of those that are looked over.
    watch: Option<Watch>,
}

struct Watch {
    activity: Rc<Activity>,
    door: Arc<Door>,
    /// The time of the last news.
    since: Instant,
}

/// How a connection was served.
pub(crate) enum Served {
    /// By both sides' will, or because the client broke the protocol.
    Ended(hyper::Result<()>),
    /// Too long nothing has happened, its place was needed, or its client has left.
    Overdue,
    /// It goes on, and has nothing to remember.
    Rested,
}

impl Connections {
    /// Every connection finishes the request it is at and closes; so does every later one.
    pub(crate) fn close(&self) {
        self.closing.set(true);
        self.places.borrow().iter().for_each(Place::wake);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// A connection that is woken when the server closes.
    pub(crate) fn enter(&self) -> Entered<'_> {
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            self.places.borrow_mut().push(Place::default());
            self.places.borrow().len() - 1
        });
        Entered { connections: self, index, known: Cell::new(false) }
    }

    /// The client of a connection will say nothing more.
    pub(crate) fn has_left(&self, Key(key): Key) {
        let places = self.places.borrow();
        let (index, uses) = (key as u32 as usize, (key >> 32) as u32);
        let place = places.get(index).filter(|place| place.uses == uses);
        if let Some((place, watch)) = place.and_then(|place| Some((place, place.watch.as_ref()?))) {
            watch.activity.set_deserted();
            place.wake();
        }
    }

    /// Whether somebody has to begin to look them over.
    pub(crate) fn need_looks(&self) -> bool {
        !self.looking.replace(true)
    }

    /// Looks them over until there is none.
    pub(crate) async fn look_over(&self, limits: &Limits) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = Instant::now();
            let mut any = false;
            for place in &mut *self.places.borrow_mut() {
                let Some(Watch { activity, since, .. }) = &mut place.watch else { continue };
                any = true;
                match activity.look(now.saturating_duration_since(*since), limits) {
                    Look::Moved => *since = now,
                    Look::Patience => {}
                    Look::Rest | Look::Overdue => place.wake(),
                }
            }
            if !any {
                self.looking.set(false);
                return;
            }
        }
    }

    /// Ends a connection that has been silent for a while, of `door` or of any. False if none was found among
    /// those whose turn it was to be looked at.
    pub(crate) fn end_one_silent(&self, door: Option<&Arc<Door>>) -> bool {
        let now = Instant::now();
        let places = self.places.borrow();
        for _ in 0..places.len().min(LOOKED_AT) {
            let place = &places[self.hand.get() % places.len()];
            self.hand.set((self.hand.get() + 1) % places.len());
            let Some(watch) = &place.watch else { continue };
            let is_wanted = door.is_none_or(|door| Arc::ptr_eq(door, &watch.door));
            if is_wanted
                && now.saturating_duration_since(watch.since) >= SILENT_FOR
                && watch.activity.dismiss()
            {
                place.wake();
                return true;
            }
        }
        false
    }
}

impl Place {
    fn wake(&self) {
        self.waker.iter().for_each(Waker::wake_by_ref);
    }
}

/// The place of a connection.
pub(crate) struct Entered<'a> {
    connections: &'a Connections,
    index: usize,
    known: Cell<bool>,
}

impl Entered<'_> {
    /// A task keeps its waker for life: the first one is enough.
    pub(crate) fn remember(&self, waker: &Waker) {
        if !self.known.replace(true) {
            self.connections.places.borrow_mut()[self.index].waker = Some(waker.clone());
        }
    }

    pub(crate) fn key(&self) -> Key {
        let uses = self.connections.places.borrow()[self.index].uses;
        Key(u64::from(uses) << 32 | self.index as u64)
    }

    /// From now on the connection is looked over.
    pub(crate) fn watch(&self, activity: &Rc<Activity>, door: &Arc<Door>) {
        let watch = Watch { activity: activity.clone(), door: door.clone(), since: Instant::now() };
        self.connections.places.borrow_mut()[self.index].watch = Some(watch);
    }

    /// `old_buffer` is that of the connection which this one replaces. It is freed when this one has a buffer of its
    /// own: memory that is returned in one piece can be reused in one piece.
    pub(crate) async fn run<I, S>(
        &self,
        connection: &mut http1::Connection<I, S>,
        activity: &Activity,
        old_buffer: Bytes,
    ) -> Served
    where
        I: Read + Write + Unpin,
        S: HttpService<Incoming> + Unpin,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        S::ResBody: 'static,
        <S::ResBody as hyper::body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut old_buffer = Some(old_buffer);
        let mut shutting_down = false;
        poll_fn(|context| {
            if self.connections.is_closing() && !shutting_down {
                shutting_down = true;
                Pin::new(&mut *connection).graceful_shutdown();
            }
            self.remember(context.waker());
            // First what has come: it may be what was waited for.
            if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(context) {
                return Poll::Ready(Served::Ended(ended));
            }
            drop(old_buffer.take());
            if activity.is_lost() {
                Poll::Ready(Served::Overdue)
            } else if activity.take_rest() && !shutting_down {
                Poll::Ready(Served::Rested)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let left = {
            let place = &mut self.connections.places.borrow_mut()[self.index];
            let uses = place.uses.wrapping_add(1);
            std::mem::replace(place, Place { uses, ..Place::default() })
        };
        self.connections.free.borrow_mut().push(self.index);
        drop(left);
    }
}

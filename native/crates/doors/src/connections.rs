//! The open connections of one io thread: a closing server tells each of them, and those at which too
//! long nothing happens are ended.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::HttpService;

use crate::activity::{Activity, Look};
use crate::limits::Limits;

/// How often connections are looked over.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Connections {
    closing: Cell<bool>,
    places: RefCell<Vec<Place>>,
    free: RefCell<Vec<usize>>,
    looking: Cell<bool>,
}

#[derive(Default)]
struct Place {
    waker: Option<Waker>,
    /// Of those that are looked over, with the time of the last news.
    watched: Option<(Rc<Activity>, Instant)>,
}

/// How a connection was served.
pub(crate) enum Served {
    /// By both sides' will, or because the client broke the protocol.
    Ended(hyper::Result<()>),
    /// Too long nothing has happened.
    Overdue,
}

impl Connections {
    /// Every connection finishes the request it is at and closes; so does every later one.
    pub(crate) fn close(&self) {
        self.closing.set(true);
        self.places.borrow().iter().filter_map(|place| place.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    pub(crate) async fn run<I, S>(
        &self,
        connection: &mut http1::Connection<I, S>,
        activity: &Rc<Activity>,
    ) -> Served
    where
        I: Read + Write + Unpin,
        S: HttpService<Incoming> + Unpin,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        S::ResBody: 'static,
        <S::ResBody as hyper::body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let place = self.enter();
        place.watch(activity);
        let mut told = false;
        poll_fn(|context| {
            if activity.is_lost() {
                return Poll::Ready(Served::Overdue);
            }
            if self.closing.get() && !told {
                told = true;
                Pin::new(&mut *connection).graceful_shutdown();
            }
            place.remember(context.waker());
            Pin::new(&mut *connection).poll(context).map(Served::Ended)
        })
        .await
    }

    /// A connection that is woken when the server closes.
    pub(crate) fn enter(&self) -> Entered<'_> {
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            self.places.borrow_mut().push(Place::default());
            self.places.borrow().len() - 1
        });
        Entered { connections: self, index, known: Cell::new(false) }
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
                let Some((activity, since)) = &mut place.watched else { continue };
                any = true;
                match activity.look(now.saturating_duration_since(*since), limits) {
                    Look::Moved => *since = now,
                    Look::Patience => {}
                    Look::Overdue => place.waker.iter().for_each(Waker::wake_by_ref),
                }
            }
            if !any {
                self.looking.set(false);
                return;
            }
        }
    }
}

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

    fn watch(&self, activity: &Rc<Activity>) {
        let watched = (activity.clone(), Instant::now());
        self.connections.places.borrow_mut()[self.index].watched = Some(watched);
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.connections.places.borrow_mut()[self.index]);
        self.connections.free.borrow_mut().push(self.index);
        drop(left);
    }
}

//! The open connections of one io thread, so that a closing server can tell each of them.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Waker;

use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::HttpService;

#[derive(Default)]
pub(crate) struct Connections {
    closing: Cell<bool>,
    wakers: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<usize>>,
}

impl Connections {
    /// Every connection finishes the request it is at and closes; so does every later one.
    pub(crate) fn close(&self) {
        self.closing.set(true);
        self.wakers.borrow().iter().flatten().for_each(Waker::wake_by_ref);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    pub(crate) async fn run<I, S>(&self, connection: http1::Connection<I, S>) -> hyper::Result<()>
    where
        I: Read + Write + Unpin,
        S: HttpService<Incoming>,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        S::ResBody: 'static,
        <S::ResBody as hyper::body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let place = self.enter();
        let mut connection = std::pin::pin!(connection);
        let mut told = false;
        poll_fn(|context| {
            if self.closing.get() && !told {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
            place.remember(context.waker());
            Pin::new(&mut connection).poll(context)
        })
        .await
    }

    /// A connection that is woken when the server closes.
    pub(crate) fn enter(&self) -> Entered<'_> {
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            self.wakers.borrow_mut().push(None);
            self.wakers.borrow().len() - 1
        });
        Entered { connections: self, index, known: Cell::new(false) }
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
            self.connections.wakers.borrow_mut()[self.index] = Some(waker.clone());
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.connections.wakers.borrow_mut()[self.index] = None;
        self.connections.free.borrow_mut().push(self.index);
    }
}

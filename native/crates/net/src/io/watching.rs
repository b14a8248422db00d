//! Descriptors of others that an io thread looks at, each in a task.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Poll;

use kushi_core::{Look, Watched, Watcher};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(super) struct Tasks;

/// Says that nobody looks any more, also where the task panics or ends with its thread.
struct Left(Arc<dyn Watched>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.left();
    }
}

/// Connections that are ready in this round bring their requests first, which the next batch takes with it.
async fn behind_others() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Watcher for Tasks {
    fn watch(&self, descriptor: Arc<OwnedFd>, watched: Arc<dyn Watched>) -> io::Result<()> {
        #[allow(
            deprecated,
            reason = "what takes its place is unsafe; this descriptor is open until it is dropped"
        )]
        let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
        let watched = Left(watched);
        tokio::task::spawn_local(async move {
            let watched = watched;
            // Goes first: another thread may watch it from then on.
            let descriptor = descriptor;
            while let Ok(mut ready) = descriptor.readable().await {
                behind_others().await;
                match watched.0.look() {
                    Look::Done => ready.clear_ready(),
                    Look::More => tokio::task::yield_now().await,
                    Look::Over => return,
                }
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kushi_core::WatchingThread;
    use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

    use super::*;

    /// Reads a byte at a look, and does what it says.
    struct Reader {
        socket: UnixStream,
        read: Mutex<Vec<u8>>,
        left: AtomicUsize,
    }

    impl Watched for Reader {
        fn look(&self) -> Look {
            let mut byte = [0];
            match (&self.socket).read(&mut byte) {
                Ok(1) if byte == *b"!" => panic!("it was told to"),
                Ok(1) => {
                    self.read.lock().unwrap().push(byte[0]);
                    Look::More
                }
                Ok(_) => Look::Over,
                Err(_) => Look::Done,
            }
        }

        fn left(&self) {
            self.left.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn runtime() -> LocalRuntime {
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap()
    }

    fn watched() -> (UnixStream, Arc<Reader>) {
        let (theirs, socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        (theirs, Arc::new(Reader { socket, read: Mutex::default(), left: AtomicUsize::new(0) }))
    }

    fn watch(reader: &Arc<Reader>) -> io::Result<()> {
        WatchingThread::watch(Arc::new(reader.socket.try_clone()?.into()), reader.clone())
    }

    async fn turns() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn all_that_comes_is_dealt_with_until_its_end() {
        let (mut theirs, reader) = watched();
        runtime().block_on(async {
            let _watching = WatchingThread::begin(Rc::new(Tasks));
            theirs.write_all(b"before").unwrap();
            watch(&reader).unwrap();
            turns().await;
            assert_eq!(*reader.read.lock().unwrap(), b"before");
            theirs.write_all(b", behind").unwrap();
            turns().await;
            assert_eq!(*reader.read.lock().unwrap(), b"before, behind");
            assert_eq!(reader.left.load(Ordering::Relaxed), 0);
            drop(theirs);
            turns().await;
            assert_eq!(reader.left.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn whoever_is_watched_hears_that_it_is_not_any_more() {
        let (mut theirs, panics) = watched();
        let (_theirs, stays) = watched();
        let runtime = runtime();
        runtime.block_on(async {
            let _watching = WatchingThread::begin(Rc::new(Tasks));
            watch(&panics).unwrap();
            watch(&stays).unwrap();
            theirs.write_all(b"!").unwrap();
            turns().await;
        });
        assert_eq!((panics.left.load(Ordering::Relaxed), stays.left.load(Ordering::Relaxed)), (1, 0));
        drop(runtime);
        assert_eq!(stays.left.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_thread_that_ends_before_it_has_looked_says_so() {
        let (_theirs, reader) = watched();
        let runtime = runtime();
        runtime.block_on(async {
            let _watching = WatchingThread::begin(Rc::new(Tasks));
            watch(&reader).unwrap();
        });
        drop(runtime);
        assert_eq!(reader.left.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn other_threads_watch_nothing() {
        let (_theirs, reader) = watched();
        assert_eq!(WatchingThread::number(), 0);
        assert!(watch(&reader).is_err());
    }
}

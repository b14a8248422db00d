//! Io threads, one by one: their mail runs what a test wants to happen there.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::Poll;

use kushi_core::{Buffer, DataType, Drivers, Response, Shape, Tensor};
use kushi_testkit::{PATIENCE, Scene, echo_spec, until};
use smallvec::smallvec;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::*;
use crate::Budget;
use crate::listen::{Entrance, Listener};
use crate::net::NetOptions;
use crate::{Door, Limits, Serving};

/// Says something to whoever says something, until its end or the server's.
struct Talkative;

impl Door for Talkative {
    fn serve<'a>(&'a self, io: &'a Rc<IoContext>, socket: Socket, _: &'a Guest) -> Serving<'a> {
        Box::pin(async move {
            match socket {
                Socket::Tcp(stream) => talk(io, tokio::net::TcpStream::from_std(stream).unwrap()).await,
                Socket::Unix(stream) => talk(io, tokio::net::UnixStream::from_std(stream).unwrap()).await,
            }
        })
    }

    fn answers_when_full(&self) -> bool {
        true
    }
}

async fn talk(io: &IoContext, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let place = io.connections.enter();
    let mut words = [0; 16];
    loop {
        let heard = poll_fn(|context| {
            place.remember(context.waker());
            if place.is_closing() {
                return Poll::Ready(Ok(0));
            }
            let mut words = ReadBuf::new(&mut words);
            let read = Pin::new(&mut stream).poll_read(context, &mut words);
            read.map_ok(|()| words.filled().len())
        });
        if heard.await.is_ok_and(|count| count == 0) || stream.write_all(b"!").await.is_err() {
            return;
        }
    }
}

fn entrance() -> Arc<Entrance> {
    Entrance::new(Arc::new(Talkative), 10)
}

fn start(count: usize) -> (Arc<IoThreads>, Vec<thread::JoinHandle<()>>) {
    let options = NetOptions {
        io_threads: count,
        limits: Limits::default(),
        budget: Arc::new(Budget::new(1 << 30)),
        tls: vec![],
        give_way: || {},
        chores: Vec::new(),
    };
    IoThreads::spawn(count, &Arc::new(Net::new(&options))).unwrap()
}

/// Answers whether they end.
fn end(io: &IoThreads, threads: Vec<thread::JoinHandle<()>>) -> bool {
    io.stop();
    ended(threads)
}

fn ended(threads: Vec<thread::JoinHandle<()>>) -> bool {
    let (report, ended) = mpsc::channel();
    thread::spawn(move || {
        for thread in threads {
            thread.join().unwrap_or_default();
        }
        report.send(())
    });
    ended.recv_timeout(PATIENCE).is_ok()
}

struct OnDrop(Option<Box<dyn FnOnce() + Send>>);

impl AsRef<[u8]> for OnDrop {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|work| work());
    }
}

/// Mail for nobody: `work` is done where it is dropped.
fn mail(work: impl FnOnce() + Send + 'static) -> Vec<Mail> {
    let data = Buffer::from_owner(OnDrop(Some(Box::new(work))));
    let tensor = Tensor { datatype: DataType::Uint8, shape: Shape::from_slice(&[0]), data };
    let response = Some(Response { outputs: smallvec![(0, tensor)], ..Response::default() });
    vec![Mail { key: u64::MAX, response, end: None, credit: None }]
}

#[test]
fn mail_of_its_own_comes_at_once_and_overtakes_none() {
    let (io, threads) = start(1);
    let (report, reports) = mpsc::channel();
    let thread = io.threads[0].clone();
    io.threads[0].deliver(mail(move || {
        let say = |word: &'static str| {
            let report = report.clone();
            mail(move || report.send(word).unwrap())
        };
        thread.deliver(say("its own"));
        report.send("afterwards").unwrap();
        thread.inbox.push_owed(Item::Mail(say("another's")));
        thread.deliver(say("its own, later"));
    }));
    let said: Vec<_> = (0..4).filter_map(|_| reports.recv_timeout(PATIENCE).ok()).collect();
    assert_eq!(said, ["its own", "afterwards", "another's", "its own, later"]);
    assert!(end(&io, threads));
}

/// A connection to a thread that has the fewest.
fn connect(io: &IoThreads) -> Option<UnixStream> {
    let (client, server) = UnixStream::pair().unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    server.set_nonblocking(true).unwrap();
    let guest = entrance().admit();
    io.hand_out(Socket::Unix(server), guest).then_some(client)
}

fn is_answered(mut client: impl Read + Write) -> bool {
    client.write_all(b"?").unwrap();
    client.read_exact(&mut [0]).is_ok()
}

#[test]
fn of_two_leases_in_one_burst_each_goes_to_a_thread_of_its_own() {
    let (io, threads) = start(2);
    let scenes = [(); 2].map(|()| Scene::without_drivers(echo_spec()));
    let (gates, waits): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel::<()>()).unzip();
    for (thread, wait) in io.threads.iter().zip(waits) {
        thread.deliver(mail(move || wait.recv().unwrap_or_default()));
    }
    let mut before = Vec::new();
    for scene in &scenes {
        scene.earn_inline();
        scene.puppet.hold();
        before.push(scene.puppet.seen().len());
        let (_, lease) = scene.lead(scene.request(1, 1));
        io.offer(lease.expect("nobody else leads"));
    }
    drop(gates);
    for (scene, before) in scenes.iter().zip(before) {
        scene.puppet.await_batches(before + 1);
    }
    for scene in &scenes {
        scene.puppet.release_all();
    }
    assert!(end(&io, threads));
    assert!(io.threads.iter().all(|thread| thread.leading.get() == 0));
}

#[test]
fn a_thread_that_panics_closes_its_connections_and_begins_again() {
    let (io, threads) = start(2);
    let (lost, kept) = (connect(&io).unwrap(), connect(&io).unwrap());
    assert!(is_answered(&lost) && is_answered(&kept));
    io.threads[0].deliver(mail(|| panic!("out of charcoal")));
    assert_eq!((&lost).read_to_end(&mut Vec::new()).map(|_| ()).ok(), Some(()), "its end");
    until("an end", || io.open_connections() == 1);
    let (report, alive) = mpsc::channel();
    io.threads[0].deliver(mail(move || report.send(()).unwrap_or_default()));
    assert!(alive.recv_timeout(PATIENCE).is_ok(), "it serves again");
    assert!(is_answered(&kept), "of the other thread");
    let next = connect(&io).unwrap();
    assert_eq!(io.threads[0].connections.get(), 1);
    assert!(is_answered(&next));
    assert!(end(&io, threads));
}

#[test]
fn what_came_behind_a_panic_is_done_in_the_next_life() {
    let (io, threads) = start(1);
    let behind_a_panic = |work: &dyn Fn()| {
        let (gate, wait) = mpsc::channel::<()>();
        let (report, begun) = mpsc::channel();
        io.threads[0].deliver(mail(move || {
            let _ = report.send(());
            let _ = wait.recv();
        }));
        assert!(begun.recv_timeout(PATIENCE).is_ok());
        // These come in one burst.
        io.threads[0].deliver(mail(|| panic!("out of charcoal")));
        work();
        drop(gate);
    };
    let client = Cell::new(None);
    behind_a_panic(&|| client.set(connect(&io)));
    assert!(is_answered(&client.take().unwrap()));
    behind_a_panic(&|| io.close_connections());
    let late = connect(&io).unwrap();
    assert_eq!((&late).read_to_end(&mut Vec::new()).ok(), Some(0), "connections are closed");
    behind_a_panic(&|| io.threads[0].deliver(mail(|| ())));
    let late = connect(&io).unwrap();
    assert_eq!((&late).read_to_end(&mut Vec::new()).ok(), Some(0), "in the life behind that, too");
    behind_a_panic(&|| io.stop());
    assert!(ended(threads));
}

#[test]
fn whoever_accepts_goes_on_after_a_panic_until_the_listeners_are_closed() {
    let (io, threads) = start(1);
    let (listener, port) = Listener::tcp("127.0.0.1", 0, false).unwrap();
    io.listen(listener, entrance());
    let connect = || {
        let client = TcpStream::connect(("127.0.0.1", port))?;
        client.set_read_timeout(Some(PATIENCE)).map(|()| client)
    };
    assert!(is_answered(&connect().unwrap()));
    io.reception.deliver(mail(|| panic!("out of charcoal")));
    // Whether it comes before the panic or waits for the next life.
    assert!(is_answered(&connect().unwrap()));
    let (report, alive) = mpsc::channel();
    io.reception.deliver(mail(move || report.send(()).unwrap_or_default()));
    assert!(alive.recv_timeout(PATIENCE).is_ok());
    assert!(is_answered(&connect().unwrap()));
    io.close_listeners();
    assert_eq!(connect().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(end(&io, threads));
}

#[test]
fn what_hangs_beside_a_thread_does_not_keep_its_end() {
    let (io, threads) = start(1);
    let (gate, wait) = mpsc::channel::<()>();
    let (report, begun) = mpsc::channel();
    io.threads[0].deliver(mail(move || {
        tokio::task::spawn_blocking(move || {
            let _ = report.send(());
            let _ = wait.recv();
        });
    }));
    begun.recv_timeout(PATIENCE).unwrap();
    assert!(end(&io, threads));
    drop(gate);
}

#[test]
fn what_comes_after_the_end_is_not_kept() {
    let (io, threads) = start(1);
    assert!(end(&io, threads));
    assert!(connect(&io).is_none());
    assert_eq!(io.open_connections(), 0);
    let (report, dropped) = mpsc::channel();
    io.threads[0].deliver(mail(move || report.send(()).unwrap_or_default()));
    assert!(dropped.try_recv().is_ok());
}

//! Credit: a request that its asker does not take answers from costs a window of them, and nothing more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use kushi_core::{
    Batch, Buffer, DataType, Mail, Reply, Request, Response, Sent, Shape, Tensor, Ticket, Window,
};
use kushi_testkit::{Act, PATIENCE, Scene, SlowReader, echo_spec, int32, send_when_room};

fn response(value: i32) -> Response {
    Response { outputs: [(0, int32(&[1, 1], [value]))].into_iter().collect(), ..Response::default() }
}

fn value(mail: &Mail) -> Option<i32> {
    let tensor = &mail.response.as_ref()?.outputs.first()?.1;
    tensor.data.as_bytes().first_chunk().copied().map(i32::from_le_bytes)
}

/// A request in an engine that answers as the test says, and an asker that takes answers as the test says.
struct Stream {
    reader: Arc<SlowReader>,
    batch: Batch,
    ticket: Ticket,
    scene: Scene,
}

impl Stream {
    fn new(window: Window) -> Self {
        let scene = Scene::new(echo_spec());
        let reader = Arc::new(SlowReader::default());
        scene.puppet.script([Act::Late]);
        let reply = Reply::with_window(reader.clone(), 1, window);
        let ticket = scene.submit(Request { reply, ..scene.request(1, 1) });
        Self { reader, batch: scene.puppet.late(), ticket, scene }
    }

    fn of(answers: usize) -> Self {
        Self::new(Window { answers, ..Window::default() })
    }

    fn send(&mut self, value: i32) -> Sent {
        self.batch.send(0, response(value))
    }

    fn when_abandoned(&self) -> Arc<AtomicUsize> {
        let woken = Arc::new(AtomicUsize::new(0));
        let counter = woken.clone();
        self.batch.when_abandoned(0, move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        woken
    }

    /// Counts how often the engine is woken.
    fn when_room(&self) -> Arc<AtomicUsize> {
        let woken = Arc::new(AtomicUsize::new(0));
        let counter = woken.clone();
        self.batch.when_room(0, move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        woken
    }
}

fn count(woken: &AtomicUsize) -> usize {
    woken.load(Ordering::SeqCst)
}

#[test]
fn an_answer_beyond_the_window_comes_back_and_nothing_of_it_is_kept() {
    let mut stream = Stream::of(2);
    assert!(matches!(stream.send(1), Sent::Accepted));
    assert!(matches!(stream.send(2), Sent::Accepted));
    for _ in 0..3 {
        let Sent::Full(back) = stream.send(3) else { panic!("there is no room") };
        assert_eq!(back.outputs[0].1.data.as_bytes(), 3_i32.to_le_bytes());
    }
    assert_eq!(value(&stream.reader.take()), Some(1));
    assert!(matches!(stream.send(4), Sent::Accepted));
    assert!(matches!(stream.send(5), Sent::Full(_)));
    // The end needs no room.
    stream.batch.end(0, Ok(()));
    let left = [2, 4].map(|expected| (value(&stream.reader.take()), Some(expected)));
    assert!(left.iter().all(|(value, expected)| value == expected), "{left:?}");
    assert!(stream.reader.take().end.is_some_and(|end| end.result.is_ok()));
    assert_eq!(stream.reader.untaken(), 0);
}

#[test]
fn the_bytes_of_answers_are_bounded_and_one_answer_always_fits() {
    let large = || {
        let data = Buffer::host(vec![0; 4096]);
        let tensor = Tensor { datatype: DataType::Int32, shape: Shape::from_slice(&[1, 1024]), data };
        Response { outputs: [(0, tensor)].into_iter().collect(), ..Response::default() }
    };
    for (bytes, fits) in [(0, 1), (1, 1), (4096, 1), (4097, 2), (3 * 4096, 3)] {
        let mut stream = Stream::new(Window { answers: 64, bytes });
        for _ in 0..fits {
            assert!(matches!(stream.batch.send(0, large()), Sent::Accepted), "{bytes}");
        }
        assert!(matches!(stream.batch.send(0, large()), Sent::Full(_)), "{bytes}");
        drop(stream.reader.take());
        assert!(matches!(stream.batch.send(0, large()), Sent::Accepted), "{bytes}");
    }
    let mut stream = Stream::of(0);
    assert!(matches!(stream.send(1), Sent::Accepted));
    assert!(matches!(stream.send(2), Sent::Full(_)));
}

#[test]
fn an_engine_is_woken_once_there_is_room() {
    let mut stream = Stream::of(1);
    assert_eq!(count(&stream.when_room()), 1, "there is room");
    assert!(matches!(stream.send(1), Sent::Accepted));
    let first = stream.when_room();
    let second = stream.when_room();
    let mail = stream.reader.take();
    assert_eq!(count(&second), 0, "whoever keeps its credit has not taken it");
    drop(mail);
    assert_eq!((count(&first), count(&second)), (0, 1), "the last one takes the place of others");
    assert!(matches!(stream.send(2), Sent::Accepted));
    drop(stream.reader.take());
    assert_eq!(count(&second), 1, "once");
}

#[test]
fn an_engine_is_woken_when_its_asker_goes() {
    let mut stream = Stream::of(1);
    assert!(matches!(stream.send(1), Sent::Accepted));
    let woken = stream.when_room();
    assert!(stream.ticket.cancel());
    assert_eq!(count(&woken), 1);
    assert!(matches!(stream.send(2), Sent::Abandoned));
    assert_eq!(count(&stream.when_room()), 1, "it has gone");
    stream.batch.end(0, Ok(()));
    assert_eq!(count(&stream.when_room()), 1, "it has ended");
    assert!(matches!(stream.send(3), Sent::Abandoned));
}

#[test]
fn an_engine_hears_that_its_asker_goes_beside_waiting_for_room() {
    let mut stream = Stream::of(1);
    assert!(matches!(stream.send(1), Sent::Accepted));
    let gone = stream.when_abandoned();
    let room = stream.when_room();
    drop(stream.reader.take());
    assert_eq!((count(&gone), count(&room)), (0, 1), "room is no reason to go");
    assert!(matches!(stream.send(2), Sent::Accepted));
    let room = stream.when_room();
    assert!(stream.ticket.cancel());
    assert_eq!((count(&gone), count(&room)), (1, 1));
    assert_eq!(count(&stream.when_abandoned()), 1, "it has gone");
    stream.batch.end(0, Ok(()));
    assert_eq!(count(&stream.when_abandoned()), 1, "it has ended");
}

#[test]
fn answers_that_nobody_takes_make_room_where_they_are_dropped() {
    let mut stream = Stream::of(2);
    let first = response(1);
    assert!(matches!(stream.batch.send(0, first), Sent::Accepted));
    assert!(matches!(stream.send(2), Sent::Accepted));
    let woken = stream.when_room();
    stream.reader.leave();
    assert_eq!(count(&woken), 1);
    assert!(matches!(stream.send(3), Sent::Accepted));
}

#[test]
fn every_answer_reaches_a_reader_that_is_slower_than_its_engine() {
    const ANSWERS: i32 = 500;
    let Stream { reader, mut batch, scene, .. } = Stream::of(3);
    let engine = thread::spawn(move || {
        let sent = (0..ANSWERS).all(|value| send_when_room(&mut batch, 0, response(value)));
        batch.end(0, Ok(()));
        sent
    });
    for expected in 0..ANSWERS {
        assert!(reader.untaken() <= 4, "the window, and the end");
        assert_eq!(value(&reader.take()), Some(expected));
    }
    assert!(reader.take().end.is_some());
    assert!(engine.join().is_ok_and(|sent| sent));
    drop(scene);
}

#[test]
fn an_engine_that_waits_for_room_hears_of_the_end_of_its_asker() {
    let Stream { mut batch, ticket, scene, .. } = Stream::of(1);
    let (report, sends) = mpsc::channel();
    let engine = thread::spawn(move || {
        let mut sent = 0;
        while send_when_room(&mut batch, 0, response(sent)) {
            sent += 1;
            let _ = report.send(sent);
        }
        sent
    });
    assert_eq!(sends.recv_timeout(PATIENCE), Ok(1));
    assert!(ticket.cancel());
    assert!(engine.join().is_ok_and(|sent| sent == 1));
    drop(scene);
}

#[test]
fn an_engine_that_never_looks_for_room_loses_its_own_answers_only() {
    let scene = Scene::new(echo_spec());
    let reader = Arc::new(SlowReader::default());
    scene.puppet.script([Act::Respond(100), Act::Echo]);
    let reply = Reply::with_window(reader.clone(), 1, Window { answers: 5, ..Window::default() });
    scene.submit(Request { reply, ..scene.request(1, 1) });
    scene.submit_rows(2, 1);
    assert!(scene.letters.answer(2).error().is_none(), "its slot is free");
    for _ in 0..5 {
        assert!(reader.take().response.is_some());
    }
    assert!(reader.take().end.is_some_and(|end| end.result.is_ok()));
    assert_eq!(reader.untaken(), 0);
}

//! Where tensors live: not copied when that can be, and given back on the asker's thread.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use kushi_core::{Buffer, DataType, Error, ErrorKind, Request, Shape, Tensor};
use kushi_testkit::{Act, Scene, echo_spec};

type Graves = Arc<Mutex<Vec<ThreadId>>>;

/// Memory of another language, say: it tells where it was released.
struct Foreign {
    bytes: [u8; 8],
    released: Graves,
}

impl AsRef<[u8]> for Foreign {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Ok(mut released) = self.released.lock() {
            released.push(thread::current().id());
        }
    }
}

fn tensor(data: Buffer) -> Tensor {
    Tensor { datatype: DataType::Int32, shape: Shape::from_slice(&[1, 2]), data }
}

fn foreign(scene: &Scene, key: u64, released: &Graves) -> Request {
    let owner = Foreign { bytes: [7; 8], released: released.clone() };
    scene.request_of(key, tensor(Buffer::from_owner(owner)))
}

fn graves(released: &Graves) -> Vec<ThreadId> {
    released.lock().map(|released| released.clone()).unwrap_or_default()
}

#[test]
fn owners_of_inputs_are_released_on_the_askers_thread_however_the_batch_ends() {
    let fail = Act::Fail(Error::new(ErrorKind::EngineFailed, "broken"));
    for act in [Act::Echo, fail, Act::Panic, Act::Drop, Act::Silence, Act::Respond(2)] {
        let scene = Scene::new(echo_spec());
        let released = Graves::default();
        scene.plug();
        scene.puppet.script([act]);
        let requests = 3;
        for key in 1..=requests {
            scene.submit(foreign(&scene, key, &released));
        }
        scene.puppet.release_all();
        let answers = scene.letters.answers(1 + requests as usize);
        assert_eq!(scene.runner.drain(kushi_testkit::PATIENCE), 0);
        assert!(graves(&released).is_empty(), "they are in the answers");
        drop(answers);
        assert_eq!(graves(&released), vec![thread::current().id(); requests as usize]);
    }
}

#[test]
fn owners_of_inputs_come_back_from_the_queue_as_well() {
    let scene = Scene::new(echo_spec());
    let released = Graves::default();
    scene.plug();
    let cancelled = scene.submit(foreign(&scene, 1, &released));
    scene.submit(foreign(&scene, 2, &released));
    thread::scope(|scope| scope.spawn(|| cancelled.cancel()).join().ok());
    assert!(!scene.runner.retire(std::time::Duration::ZERO));
    let answers = scene.letters.answers(2);
    assert!(graves(&released).is_empty());
    drop(answers);
    assert_eq!(graves(&released).len(), 2);
}

/// Eight bytes that begin `past` a boundary of 64.
fn placed(past: usize) -> Buffer {
    let memory = Buffer::host(vec![9_u8; 256]);
    let start = memory.as_bytes().as_ptr().align_offset(64) + past;
    memory.slice(start..start + 8)
}

#[test]
fn a_request_alone_in_its_batch_is_executed_where_it_lies() {
    let scene = Scene::new(echo_spec());
    let data = placed(4);
    scene.submit(scene.request_of(1, tensor(data.clone())));
    scene.letters.answer(1);
    assert_eq!(scene.puppet.seen()[0].addresses, [data.as_bytes().as_ptr().addr()]);
}

#[test]
fn an_unaligned_request_is_copied_to_an_aligned_place() {
    let scene = Scene::new(echo_spec());
    let data = placed(1);
    scene.submit(scene.request_of(1, tensor(data.clone())));
    assert_eq!(scene.letters.answer(1).output(0), data.as_bytes());
    assert_eq!(scene.puppet.seen()[0].addresses[0] % 64, 0);
}

#[test]
fn joined_requests_lie_in_aligned_memory_that_the_slot_keeps() {
    let scene = Scene::new(echo_spec());
    for _ in 0..2 {
        let before = scene.puppet.seen().len();
        scene.plug();
        scene.ask(1..=4);
        scene.puppet.release_all();
        scene.letters.answers(5);
        assert_eq!(scene.puppet.seen().len(), before + 2);
    }
    let joined: Vec<_> =
        scene.puppet.seen().iter().filter(|seen| seen.rows == 4).map(|seen| seen.addresses[0]).collect();
    assert_eq!(joined[0] % 64, 0);
    assert_eq!(joined[0], joined[1]);
}

#[test]
fn shares_of_an_output_are_slices_of_the_batch_output() {
    let scene = Scene::new(echo_spec());
    scene.plug();
    scene.submit_rows(1, 2);
    scene.submit_rows(2, 3);
    scene.puppet.release_all();
    let (first, second) = (scene.letters.answer(1), scene.letters.answer(2));
    assert_eq!(first.output(0).as_ptr_range().end, second.output(0).as_ptr_range().start);
}

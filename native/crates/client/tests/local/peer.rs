//! The other end of a connection, which says what a test tells it to.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kushi_client::local::{Connection, Door, Ended, Outcome};
use kushi_client::{Draft, InferCall};
use kushi_core::{Buffer, DataType, Error, Tensor};
use kushi_oip::{
    Frame, Hello, InferOutputTensor, Kind, ModelInferRequest, ModelInferResponse, PROTOCOL, Reader,
    SlotRange, write_frame, write_message,
};
use kushi_shm::{Slot, receive, send};
use prost::Message;

pub const MS: Duration = Duration::from_millis(1);

pub struct Peer {
    stream: UnixStream,
    reader: Reader,
    pub descriptors: VecDeque<OwnedFd>,
}

/// A connection whose asker is a word, and its peer; neither has said anything.
pub fn pair() -> (Connection<&'static str>, Peer) {
    pair_of(&Door::new(PathBuf::from("/nowhere")))
}

pub fn pair_of(door: &Arc<Door>) -> (Connection<&'static str>, Peer) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (Connection::new(Arc::new(ours), door.clone(), Instant::now()), Peer::new(theirs))
}

/// The same after both have said hello.
pub fn greeted() -> (Connection<&'static str>, Peer) {
    let (mut connection, mut peer) = pair();
    peer.hello(PROTOCOL);
    connection.flush(Instant::now()).unwrap();
    assert_eq!(peer.next().kind, Kind::Hello);
    assert!(hear(&mut connection).unwrap().is_empty());
    (connection, peer)
}

pub fn hear(connection: &mut Connection<&'static str>) -> Result<Vec<Ended<&'static str>>, Error> {
    let mut ended = Vec::new();
    connection.receive(Instant::now(), &mut ended).map(|_| ended)
}

pub fn call_with(data: Vec<u8>) -> InferCall {
    let tensor = Tensor {
        datatype: DataType::Uint8,
        shape: smallvec::smallvec![data.len() as i64],
        data: Buffer::host(data),
    };
    InferCall {
        model: "m".into(),
        inputs: [Draft { name: None, tensor }].into_iter().collect(),
        ..InferCall::default()
    }
}

pub fn ask(connection: &mut Connection<&'static str>, asker: &'static str) -> u64 {
    ask_with(connection, asker, vec![1, 2, 3])
}

pub fn ask_with(connection: &mut Connection<&'static str>, asker: &'static str, data: Vec<u8>) -> u64 {
    let call = call_with(data);
    let placed = connection.door().arena().place(&call);
    connection.infer(&call, placed, asker, None, Instant::now()).unwrap()
}

/// The asker and the first output of each answer.
pub fn answers(ended: &[Ended<&'static str>]) -> Vec<(&'static str, Vec<u8>)> {
    let read = |ended: &Ended<&'static str>| match &ended.outcome {
        Ok(Outcome::Answer(answer)) => (ended.asker, answer.outputs[0].1.data.as_bytes().to_vec()),
        other => panic!("{} got {other:?}", ended.asker),
    };
    ended.iter().map(read).collect()
}

impl Peer {
    pub fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { stream, reader: Reader::default(), descriptors: VecDeque::new() }
    }

    /// Reads so many bytes, of whatever it may be.
    pub fn take_in(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let received = receive(&self.stream, self.reader.room(4096)).unwrap();
            assert!(received.bytes > 0, "the client has closed the connection");
            left = left.saturating_sub(received.bytes);
        }
    }

    /// Waits for a frame; panics at the end of the stream.
    pub fn next(&mut self) -> Frame {
        self.try_next().expect("the client has closed the connection")
    }

    pub fn try_next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.reader.next_frame().unwrap() {
                return Some(frame);
            }
            let received = receive(&self.stream, self.reader.room(4096)).unwrap();
            self.descriptors.extend(received.descriptor);
            if received.bytes == 0 {
                return None;
            }
        }
    }

    /// The next frame that asks for work: where a test was held up, the client asks whether its server lives.
    pub fn next_but_pings(&mut self) -> Frame {
        loop {
            let frame = self.next();
            if frame.kind != Kind::Ping {
                return frame;
            }
            self.say_nothing(Kind::Pong, frame.id);
        }
    }

    pub fn next_infer(&mut self) -> (u64, ModelInferRequest) {
        let frame = self.next_but_pings();
        assert_eq!(frame.kind, Kind::Infer);
        (frame.id, ModelInferRequest::decode(frame.body).unwrap())
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        assert_eq!(send(&self.stream, &[IoSlice::new(bytes)], None).unwrap(), bytes.len());
    }

    pub fn say(&mut self, kind: Kind, id: u64, message: &impl Message) {
        let mut out = BytesMut::new();
        write_message(&mut out, kind, id, message);
        self.raw(&out);
    }

    pub fn say_nothing(&mut self, kind: Kind, id: u64) {
        let mut out = BytesMut::new();
        write_frame(&mut out, kind, id, b"");
        self.raw(&out);
    }

    pub fn hello(&mut self, protocol: u32) {
        self.say(Kind::Hello, 0, &Hello { protocol, version: "9.9".into() });
    }

    pub fn answer(&mut self, id: u64, data: &[u8]) {
        self.say(Kind::Answer, id, &response(data));
    }

    /// With the output in a slot that has been announced.
    pub fn answer_in(&mut self, id: u64, range: SlotRange) {
        let output = InferOutputTensor {
            name: "Y".into(),
            datatype: "UINT8".into(),
            shape: vec![range.length as i64],
            slot: Some(range),
            ..InferOutputTensor::default()
        };
        let response = ModelInferResponse { outputs: vec![output], ..ModelInferResponse::default() };
        self.say(Kind::Answer, id, &response);
    }

    pub fn announce(&mut self, slot: &Slot) {
        let message = kushi_oip::Slot { slot: slot.id(), length: slot.len() as u64 };
        let mut out = BytesMut::new();
        write_message(&mut out, Kind::Slot, 0, &message);
        assert_eq!(send(&self.stream, &[IoSlice::new(&out)], Some(slot.fd().as_fd())).unwrap(), out.len());
    }
}

pub fn response(data: &[u8]) -> ModelInferResponse {
    let output = InferOutputTensor {
        name: "Y".into(),
        datatype: "UINT8".into(),
        shape: vec![data.len() as i64],
        ..InferOutputTensor::default()
    };
    ModelInferResponse {
        model_name: "m".into(),
        model_version: "1".into(),
        outputs: vec![output],
        raw_output_contents: vec![data.to_vec().into()],
        ..ModelInferResponse::default()
    }
}

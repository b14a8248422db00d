//! A client that sends whatever it is told to, and keeps count of what comes back.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use kushi_oip::{
    CallAnswer, Failure, Frame, Hello, InferInputTensor, Kind, ModelInferRequest, ModelInferResponse,
    PROTOCOL, Reader, Release, SlotRange, write_frame, write_message,
};
use kushi_shm::{Slot, View, receive, send};
use kushi_testkit::PATIENCE;
use prost::Message;

pub struct Client {
    pub stream: UnixStream,
    reader: Reader,
    descriptors: VecDeque<OwnedFd>,
    /// The server's slots, by id.
    pub views: HashMap<u64, View>,
    /// The server has forgotten these.
    pub forgotten: Vec<u64>,
    /// Reads that brought something.
    pub reads: usize,
}

#[derive(Debug, PartialEq)]
pub enum Outcome {
    Answer(ModelInferResponse),
    Failure { kind: String, message: String },
    Call(CallAnswer),
    Pong,
}

/// What the wire says of one tensor of so many INT32 values.
pub fn tensor(shape: &[i64]) -> InferInputTensor {
    InferInputTensor {
        name: "INPUT".into(),
        datatype: "INT32".into(),
        shape: shape.to_vec(),
        ..Default::default()
    }
}

/// One row of one value.
pub fn request(value: i32) -> ModelInferRequest {
    request_of(tensor(&[1, 1]), value.to_le_bytes().to_vec())
}

pub fn request_of(input: InferInputTensor, bytes: Vec<u8>) -> ModelInferRequest {
    ModelInferRequest {
        model_name: "echo".into(),
        inputs: vec![input],
        raw_input_contents: vec![bytes.into()],
        ..Default::default()
    }
}

/// One row of FP32 values that lie in a slot.
pub fn request_in(slot: &Slot, offset: u64, elements: u64) -> ModelInferRequest {
    let range = SlotRange { slot: slot.id(), offset, length: 4 * elements };
    let input = InferInputTensor {
        name: "INPUT".into(),
        datatype: "FP32".into(),
        shape: vec![1, elements.cast_signed()],
        slot: Some(range),
        ..Default::default()
    };
    ModelInferRequest { model_name: "echo".into(), inputs: vec![input], ..Default::default() }
}

pub fn frame(kind: Kind, id: u64, message: &impl Message) -> BytesMut {
    let mut bytes = BytesMut::new();
    write_message(&mut bytes, kind, id, message);
    bytes
}

pub fn hello() -> BytesMut {
    frame(Kind::Hello, 0, &Hello { protocol: PROTOCOL, version: "test".into() })
}

pub fn slot_frame(slot: u64, length: usize) -> BytesMut {
    frame(Kind::Slot, 0, &kushi_oip::Slot { slot, length: length as u64 })
}

impl Client {
    /// Connected, and silent.
    pub fn connect(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).unwrap_or_else(|error| panic!("{error}")))
    }

    pub fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            reader: Reader::default(),
            descriptors: VecDeque::new(),
            views: HashMap::new(),
            forgotten: Vec::new(),
            reads: 0,
        }
    }

    pub fn greet(&mut self) {
        self.send(&hello());
        let frame = self.frame().unwrap_or_else(|| panic!("closed before its hello"));
        let theirs = Hello::decode(frame.body).unwrap();
        assert_eq!((frame.kind, theirs.protocol, &*theirs.version), (Kind::Hello, PROTOCOL, "7.7"));
    }

    pub fn send(&self, bytes: &[u8]) {
        self.try_send(bytes, None).unwrap_or_else(|error| panic!("{error}"));
    }

    pub fn send_with(&self, bytes: &[u8], descriptor: BorrowedFd<'_>) {
        self.try_send(bytes, Some(descriptor)).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Fails when the server has closed, or reads no more.
    pub fn try_send(&self, mut bytes: &[u8], mut descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = send(&self.stream, &[IoSlice::new(bytes)], descriptor.take())?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    pub fn announce(&self, slot: &Slot) {
        self.send_with(&slot_frame(slot.id(), slot.len()), slot.fd());
    }

    pub fn infer(&self, id: u64, request: &ModelInferRequest) {
        self.send(&frame(Kind::Infer, id, request));
    }

    pub fn cancel(&self, id: u64) {
        let mut bytes = BytesMut::new();
        write_frame(&mut bytes, Kind::Cancel, id, b"");
        self.send(&bytes);
    }

    /// Waits until the server has read all that was sent.
    pub fn await_pong(&mut self) {
        let mut ping = BytesMut::new();
        write_frame(&mut ping, Kind::Ping, 9, b"");
        self.send(&ping);
        assert_eq!(self.outcome(), Some((9, Outcome::Pong)));
    }

    pub fn release(&self, slots: &[u64]) {
        self.send(&frame(Kind::Release, 0, &Release { slots: slots.to_vec() }));
    }

    pub fn forget(&self, slots: &[u64]) {
        self.send(&frame(Kind::Forget, 0, &Release { slots: slots.to_vec() }));
    }

    /// The next frame; `None` when the server has closed.
    pub fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.reader.next_frame().unwrap() {
                return Some(frame);
            }
            let room = self.reader.room(256 << 10);
            match receive(&self.stream, room) {
                Ok(received) if received.bytes > 0 => self.descriptors.extend(received.descriptor),
                Ok(_) => return None,
                // Bytes of ours that the server has not read.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
            self.reads += 1;
        }
    }

    /// The next answer to anything; keeps the server's slots on the way.
    pub fn outcome(&mut self) -> Option<(u64, Outcome)> {
        loop {
            let Frame { kind, id, body } = self.frame()?;
            let outcome = match kind {
                Kind::Answer => Outcome::Answer(ModelInferResponse::decode(body).unwrap()),
                Kind::Failure => {
                    let Failure { kind, message } = Failure::decode(body).unwrap();
                    Outcome::Failure { kind, message }
                }
                Kind::CallAnswer => Outcome::Call(CallAnswer::decode(body).unwrap()),
                Kind::Pong => Outcome::Pong,
                Kind::Slot => {
                    let slot = kushi_oip::Slot::decode(body).unwrap();
                    let descriptor = self.descriptors.pop_front().unwrap();
                    let before = self.views.insert(slot.slot, View::map(descriptor, slot.length).unwrap());
                    assert!(before.is_none(), "a slot was announced twice");
                    continue;
                }
                Kind::Forget => {
                    for slot in Release::decode(body).unwrap().slots {
                        assert!(self.views.remove(&slot).is_some(), "a slot was forgotten twice");
                        self.forgotten.push(slot);
                    }
                    continue;
                }
                other => panic!("the server sent {other:?}"),
            };
            return Some((id, outcome));
        }
    }

    pub fn answer(&mut self) -> (u64, ModelInferResponse) {
        match self.outcome() {
            Some((id, Outcome::Answer(answer))) => (id, answer),
            other => panic!("no answer: {other:?}"),
        }
    }

    /// The kind and the text, without the prefix that names the request.
    pub fn failure(&mut self) -> (u64, String, String) {
        match self.outcome() {
            Some((id, Outcome::Failure { kind, message })) => {
                (id, kind, message.replace("[request id: <id_unknown>] ", ""))
            }
            other => panic!("no failure: {other:?}"),
        }
    }

    /// The bytes of the only output, wherever they travelled, and the slot to release.
    pub fn output(&self, answer: &ModelInferResponse) -> (Bytes, Option<u64>) {
        assert_eq!(answer.outputs.len(), 1);
        match answer.outputs[0].slot {
            Some(SlotRange { slot, offset, length }) => {
                (self.views[&slot].range(offset, length).unwrap(), Some(slot))
            }
            None => (answer.raw_output_contents[0].clone(), None),
        }
    }

    /// Whether the next answer has this id and echoes this value.
    pub fn echoes(&mut self, id: u64, value: i32) -> bool {
        let (answered, answer) = self.answer();
        answered == id && self.output(&answer).0[..] == value.to_le_bytes()
    }

    pub fn asks(&mut self, value: i32) -> bool {
        self.infer(1, &request(value));
        self.echoes(1, value)
    }

    pub fn hang_up(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// What the server says before it closes; answers that came before are passed over.
    pub fn last_words(&mut self) -> Option<String> {
        let mut words = None;
        while let Some((id, outcome)) = self.outcome() {
            if let (0, Outcome::Failure { message, .. }) = (id, outcome) {
                words = Some(message);
            }
        }
        words
    }
}

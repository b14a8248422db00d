//! A server on a real socket that does what a script says, and the client's side of a test.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use kushi_client::{Answer, Call, CallAnswer, Draft, InferCall, RemoteClient, RemoteOptions};
use kushi_core::{Buffer, DataType, Error, Tensor};

/// Protects a test from hanging; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request as it was heard.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Connections are counted from 0.
    pub connection: usize,
    pub method: String,
    pub path: String,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

/// What a script lets the server do with a request.
pub enum Act {
    Answer(Vec<u8>),
    /// Sends the bytes and closes.
    Last(Vec<u8>),
    /// Closes without a word, by a reset.
    Reset,
    /// Keeps silent until the client closes.
    Silence,
}

/// What a server has seen, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Opened(usize),
    Asked(usize, String),
    Closed(usize),
}

pub struct Scripted {
    pub url: String,
    heard: Arc<Mutex<Vec<Heard>>>,
    events: mpsc::Receiver<Event>,
}

impl Scripted {
    pub fn serve(script: impl Fn(&Heard) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (report, events) = mpsc::channel();
        let (script, all) = (Arc::new(script), heard.clone());
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (script, all, report) = (script.clone(), all.clone(), report.clone());
                let _ = report.send(Event::Opened(number));
                thread::spawn(move || {
                    attend(stream.unwrap(), number, &*script, &all, &report);
                    let _ = report.send(Event::Closed(number));
                });
            }
        });
        Self { url, heard, events }
    }

    /// A server that takes binary tensors and leaves the inference requests to the script.
    pub fn binary(script: impl Fn(&Heard) -> Act + Send + Sync + 'static) -> Self {
        Self::serve(move |heard| match heard.path.as_str() {
            "/v2" => Act::Answer(json_answer(200, r#"{"extensions":["binary_tensor_data"]}"#)),
            _ => script(heard),
        })
    }

    /// Answers each inference with the same bytes.
    pub fn always(answer: Vec<u8>) -> Self {
        Self::binary(move |_| Act::Answer(answer.clone()))
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    pub fn paths(&self) -> Vec<String> {
        self.heard().into_iter().map(|heard| heard.path).collect()
    }

    pub fn wait_for(&self, event: &Event) {
        while self.events.recv_timeout(PATIENCE).expect("the event has not come") != *event {}
    }

    pub fn client(&self) -> RemoteClient {
        self.client_with(RemoteOptions::default())
    }

    pub fn client_with(&self, options: RemoteOptions) -> RemoteClient {
        RemoteClient::new(&self.url, options).unwrap()
    }
}

fn attend(
    stream: TcpStream,
    connection: usize,
    script: &dyn Fn(&Heard) -> Act,
    all: &Mutex<Vec<Heard>>,
    report: &mpsc::Sender<Event>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(heard) = hear(&mut reader, connection) {
        all.lock().unwrap().push(heard.clone());
        let _ = report.send(Event::Asked(connection, heard.path.clone()));
        match script(&heard) {
            Act::Answer(bytes) => drop(writer.write_all(&bytes)),
            Act::Last(bytes) => {
                let _ = writer.write_all(&bytes);
                let _ = writer.shutdown(Shutdown::Write);
                let _ = reader.read_to_end(&mut Vec::new());
                return;
            }
            Act::Reset => {
                rustix::net::sockopt::set_socket_linger(&writer, Some(Duration::ZERO)).unwrap();
                return;
            }
            Act::Silence => {
                let _ = reader.read_to_end(&mut Vec::new());
                return;
            }
        }
    }
}

fn hear(reader: &mut BufReader<TcpStream>, connection: usize) -> Option<Heard> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = HashMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_owned(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Heard { connection, method, path, headers, body })
}

pub fn answer(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

pub fn json_answer(status: u16, json: &str) -> Vec<u8> {
    answer(status, "content-type: application/json\r\n", json.as_bytes())
}

/// The JSON of an answer and the tensors behind it.
pub fn binary_answer(json: &str, tensors: &[u8]) -> Vec<u8> {
    let header = format!("Inference-Header-Content-Length: {}\r\n", json.len());
    answer(200, &header, &[json.as_bytes(), tensors].concat())
}

/// One output `O` of one INT8.
pub fn good_answer() -> Vec<u8> {
    binary_answer(
        r#"{"model_name":"m","model_version":"1","outputs":[{"name":"O","datatype":"INT8","shape":[1],"parameters":{"binary_data_size":1}}]}"#,
        &[7],
    )
}

pub fn tensor(datatype: DataType, shape: &[i64], data: impl Into<Bytes>) -> Tensor {
    Tensor { datatype, shape: shape.into(), data: Buffer::host(data) }
}

/// A call of model `m` with one input `A` of one INT8.
pub fn small_call() -> InferCall {
    let draft = Draft { name: Some("A".into()), tensor: tensor(DataType::Int8, &[1], vec![3]) };
    InferCall { model: "m".into(), inputs: [draft].into_iter().collect(), ..InferCall::default() }
}

pub type Pending<T> = mpsc::Receiver<Result<T, Error>>;

pub fn begin(client: &RemoteClient, call: InferCall) -> (kushi_client::Ticket, Pending<Answer>) {
    let (sender, receiver) = mpsc::channel();
    let ticket = client.infer(Box::new(call), move |_, answer| {
        let _ = sender.send(answer);
    });
    (ticket, receiver)
}

pub fn end<T>(pending: &Pending<T>) -> Result<T, Error> {
    pending.recv_timeout(PATIENCE).expect("the call has not ended")
}

pub fn infer(client: &RemoteClient, call: InferCall) -> Result<Answer, Error> {
    end(&begin(client, call).1)
}

pub fn ask(client: &RemoteClient, verb: &str, arguments: &str) -> Result<CallAnswer, Error> {
    let (sender, receiver) = mpsc::channel();
    let arguments = Bytes::copy_from_slice(arguments.as_bytes());
    let call = Call { verb: verb.into(), arguments, patience: None };
    client.call(call, move |answer| drop(sender.send(answer)));
    end(&receiver)
}

//! A server over HTTP/2 that does with each call what a script says, and the client's side of a test.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use kushi_client::{Answer, Draft, InferCall, RemoteClient, RemoteOptions};
use kushi_core::{Buffer, DataType, Error, Tensor};
use tokio::net::TcpListener;

/// Protects a test from hanging; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a script lets the server do with a call.
#[derive(Clone)]
pub enum Act {
    /// The status of HTTP, the bytes of the answer, and what stands behind them; `None`: the answer is cut off.
    Answer(u16, Bytes, Option<Vec<(&'static str, &'static str)>>),
    /// Reads all of the request before it answers well.
    Echo,
    /// Answers before it has read anything.
    RefuseAtOnce,
    Reset(Reason),
    /// Ends the connection without a word.
    Drop,
}

pub struct Peer {
    pub url: String,
    calls: Arc<Mutex<Vec<usize>>>,
}

impl Peer {
    /// `script`: what becomes of the call with this number.
    pub fn serve(script: impl Fn(usize) -> Act + Send + Sync + 'static) -> Self {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (report, address) = mpsc::channel();
        let (script, seen) = (Arc::new(script), calls.clone());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(listen(report, script, seen));
        });
        let address = address.recv().unwrap();
        Self { url: format!("grpc://{address}"), calls }
    }

    /// Of each call that has come, the number of its connection.
    pub fn calls(&self) -> Vec<usize> {
        self.calls.lock().unwrap().clone()
    }

    pub fn client(&self) -> RemoteClient {
        self.client_with(RemoteOptions::default())
    }

    pub fn client_with(&self, options: RemoteOptions) -> RemoteClient {
        RemoteClient::new(&self.url, options).unwrap()
    }
}

type Script = Arc<dyn Fn(usize) -> Act + Send + Sync>;

async fn listen(report: mpsc::Sender<SocketAddr>, script: Script, calls: Arc<Mutex<Vec<usize>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    report.send(listener.local_addr().unwrap()).unwrap();
    for number in 0.. {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let mut connection =
            server::Builder::new().initial_window_size(1 << 14).handshake::<_, Bytes>(socket).await.unwrap();
        let (script, calls) = (script.clone(), calls.clone());
        tokio::spawn(async move {
            while let Some(Ok((request, respond))) = connection.accept().await {
                let call = {
                    let mut calls = calls.lock().unwrap();
                    calls.push(number);
                    calls.len() - 1
                };
                match script(call) {
                    Act::Drop => return,
                    act => drop(tokio::spawn(perform(act, request, respond))),
                }
            }
        });
    }
}

async fn perform(act: Act, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let well = || Act::Answer(200, message(b""), Some(vec![("grpc-status", "0")]));
    let mut body = request.into_body();
    let act = match act {
        Act::Echo => {
            let mut length = 0;
            while let Some(Ok(piece)) = body.data().await {
                length += piece.len();
                body.flow_control().release_capacity(piece.len()).unwrap();
            }
            let id = format!("{length}");
            let mut named = vec![0x1a, id.len() as u8];
            named.extend_from_slice(id.as_bytes());
            Act::Answer(200, message(&named), Some(vec![("grpc-status", "0")]))
        }
        Act::RefuseAtOnce => {
            Act::Answer(200, Bytes::new(), Some(vec![("grpc-status", "8"), ("grpc-message", "too much")]))
        }
        act => act,
    };
    let (status, bytes, trailers) = match act {
        Act::Answer(status, bytes, trailers) => (status, bytes, trailers),
        Act::Reset(reason) => return respond.send_reset(reason),
        _ => return Box::pin(perform(well(), Request::new(body), respond)).await,
    };
    let response = Response::builder().status(status).body(()).unwrap();
    let Ok(mut stream) = respond.send_response(response, false) else { return };
    if !bytes.is_empty() {
        stream.send_data(bytes, trailers.is_none()).unwrap();
    }
    if let Some(trailers) = trailers {
        let trailers =
            trailers.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        stream.send_trailers(trailers.collect::<HeaderMap>()).unwrap();
    }
    // The rest of the request may still be on its way.
    let _ = tokio::time::timeout(Duration::from_secs(1), poll_fn(|task| stream.poll_reset(task))).await;
}

/// Behind its head.
pub fn message(bytes: &[u8]) -> Bytes {
    announced(bytes.len() as u32, 0, bytes)
}

pub fn announced(length: u32, compressed: u8, bytes: &[u8]) -> Bytes {
    let mut message = BytesMut::new();
    message.put_u8(compressed);
    message.put_u32(length);
    message.extend_from_slice(bytes);
    message.freeze()
}

/// Of model `m`, with one input `A` of so many bytes.
pub fn call(bytes: usize) -> InferCall {
    let data = Buffer::host(vec![7; bytes]);
    let tensor = Tensor { datatype: DataType::Uint8, shape: [bytes as i64].as_slice().into(), data };
    let draft = Draft { name: Some("A".into()), tensor };
    InferCall { model: "m".into(), inputs: [draft].into_iter().collect(), ..InferCall::default() }
}

pub fn infer(client: &RemoteClient, call: InferCall) -> Result<Answer, Error> {
    let (sender, receiver) = mpsc::channel();
    client.infer(Box::new(call), move |_, answer| drop(sender.send(answer)));
    receiver.recv_timeout(PATIENCE).expect("the call has not ended")
}

//! A server with one model `echo` on a puppet, and clients that see every byte.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use kushi_core::{Engine, ModelSpec, Runner, RunnerOptions};
use kushi_server::{Asker, Server};
use kushi_testkit::{PATIENCE, PuppetEngine, echo_spec};

use crate::options::options;

pub struct Site {
    pub server: Server,
    pub puppet: Arc<PuppetEngine>,
    pub runner: Arc<Runner>,
    port: u16,
}

pub fn server(io_threads: usize) -> Server {
    Server::start(&options(io_threads)).unwrap_or_else(|error| panic!("{error}"))
}

impl Default for Site {
    fn default() -> Self {
        Self::new(1, echo_spec())
    }
}

impl Site {
    pub fn new(io_threads: usize, spec: ModelSpec) -> Self {
        Self::of(server(io_threads), spec)
    }

    pub fn of(server: Server, spec: ModelSpec) -> Self {
        let puppet = Arc::new(PuppetEngine::default());
        let engines = (0..spec.instances).map(|_| puppet.clone() as Arc<dyn Engine>).collect();
        let options = RunnerOptions { drivers: Some(server.drivers()), ..RunnerOptions::default() };
        let runner = Runner::start(spec, engines, options).unwrap_or_else(|error| panic!("{error}"));
        let replaced = server.registry().publish("echo", vec![runner.clone()]);
        assert!(replaced.is_empty());
        server.set_started();
        let port = server.serve_http("127.0.0.1", 0, false).unwrap_or_else(|error| panic!("{error}"));
        Self { server, puppet, runner, port }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.port).unwrap_or_else(|error| panic!("{error}"))
    }

    /// What large requests and answers in flight hold, as the metrics tell.
    pub fn inflight_bytes(&self) -> usize {
        let text =
            String::from_utf8_lossy(&self.server.call(Asker::Client, "Metrics", b"").body).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix("kushi_inflight_bytes "));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    }

    /// Asks for an echo on a connection of its own.
    pub fn ask(&self, value: i32) -> Answer {
        let mut client = self.connect();
        client.send(value, "");
        client.receive()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.puppet.release_all();
    }
}

pub struct Client {
    stream: BufReader<TcpStream>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The error text, without the prefix that names the request.
    pub fn refusal(&self) -> String {
        let text = self.text();
        let text = text.strip_prefix("{\"error\":\"").and_then(|text| text.strip_suffix("\"}"));
        text.unwrap_or_else(|| panic!("no error: {self:?}")).replace("[request id: <id_unknown>] ", "")
    }

    pub fn echoes(&self, value: i32) -> bool {
        self.status == 200 && self.text().ends_with(&format!("\"data\":[{value}]}}]}}"))
    }
}

impl Client {
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// One row of one element; `headers` are whole lines.
    pub fn send(&mut self, value: i32, headers: &str) {
        let tensor = r#"{"name":"INPUT","datatype":"INT32","shape":[1,1],"data":"#;
        let body = format!(r#"{{"inputs":[{tensor}[{value}]}}]}}"#);
        self.post("echo", headers, body.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    }

    /// One row of zeros, to be echoed in binary.
    pub fn send_binary(&mut self, elements: usize) {
        let bytes = 4 * elements;
        let tensor = format!(
            r#"{{"name":"INPUT","datatype":"INT32","shape":[1,{elements}],"parameters":{{"binary_data_size":{bytes}}}}}"#
        );
        let json = format!(r#"{{"parameters":{{"binary_data_output":true}},"inputs":[{tensor}]}}"#);
        let header = format!("Inference-Header-Content-Length: {}\r\n", json.len());
        let body = [json.as_bytes(), &vec![0; bytes]].concat();
        self.post("echo", &header, &body).unwrap_or_else(|error| panic!("{error}"));
    }

    pub fn post(&mut self, model: &str, headers: &str, body: &[u8]) -> io::Result<()> {
        self.post_to(&format!("/v2/models/{model}/infer"), headers, body)
    }

    pub fn post_to(&mut self, path: &str, headers: &str, body: &[u8]) -> io::Result<()> {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: site\r\nContent-Length: {length}\r\n{headers}\r\n");
        self.stream.get_mut().write_all(&[head.as_bytes(), body].concat())
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send_bytes(format!("GET {path} HTTP/1.1\r\nHost: site\r\n\r\n").as_bytes());
        self.receive()
    }

    /// The head of a request whose body of `length` bytes comes later.
    pub fn send_head(&mut self, model: &str, length: usize) {
        self.send_bytes(
            format!(
                "POST /v2/models/{model}/infer HTTP/1.1\r\nHost: site\r\nContent-Length: {length}\r\n\r\n"
            )
            .as_bytes(),
        );
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap_or_else(|error| panic!("{error}"));
    }

    pub fn receive(&mut self) -> Answer {
        self.try_receive().unwrap_or_else(|error| panic!("no answer: {error}"))
    }

    pub fn try_receive(&mut self) -> io::Result<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok());
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let status = number(head.get(9..12)).ok_or(io::ErrorKind::InvalidData)? as u16;
        if head.contains("transfer-encoding: chunked") {
            let mut body = Vec::new();
            while let Some(chunk) = self.next_chunk()? {
                body.extend(chunk);
            }
            return Ok(Answer { status, body });
        }
        let mut body = vec![0; number(length).ok_or(io::ErrorKind::InvalidData)?];
        self.stream.read_exact(&mut body)?;
        Ok(Answer { status, body })
    }

    /// `None`: the last one.
    pub fn next_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut chunk = vec![0; length + 2];
        self.stream.read_exact(&mut chunk)?;
        chunk.truncate(length);
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }

    /// The lines of a head, whose body is still to come.
    pub fn receive_head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = self.stream.read_line(&mut head).unwrap_or_else(|error| panic!("no head: {error}"));
            assert!(read > 0, "no head");
        }
        head
    }

    pub fn finish_sending(&self) {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap_or_else(|error| panic!("{error}"));
    }

    /// All that comes until the server closes.
    pub fn receive_rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap_or_else(|error| panic!("{error}"));
        rest
    }

    pub fn hang_up(self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Both);
    }
}

//! A server that reads requests strictly, and does with each what its header `x-do` says.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// What it has seen that is no request of the test.
pub type Complaints = Arc<Mutex<Vec<String>>>;

pub fn serve(stream: UnixStream, complaints: Complaints) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut writer = stream;
        while let Some((id, act, framing)) = head(&mut reader, &complaints) {
            let length = id.len();
            let plain = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{id}");
            if act == "early" {
                let _ = writer.write_all(plain.as_bytes());
            }
            if act == "early and gone" {
                let _ = writer.write_all(plain.as_bytes());
                return;
            }
            if !body(&mut reader, &framing, &complaints) {
                return;
            }
            let answer = match act.as_str() {
                "early" => continue,
                "chunks" => {
                    let (one, other) = id.split_at(length / 2);
                    let chunk = |part: &str| {
                        if part.is_empty() {
                            String::new()
                        } else {
                            format!("{:x}\r\n{part}\r\n", part.len())
                        }
                    };
                    let chunks = [chunk(one), chunk(other)].concat();
                    format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
                }
                "interim" => format!("HTTP/1.1 103 Early Hints\r\n\r\n{plain}"),
                "close" => {
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{id}")
                }
                "too much" => format!("{plain}HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nhostile"),
                "too little" => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{id}", length + 1),
                "silence" => return,
                _ => plain,
            };
            let _ = writer.write_all(answer.as_bytes());
            if matches!(act.as_str(), "close" | "too little" | "gone") {
                return;
            }
        }
    })
}

enum Framing {
    None,
    Length(usize),
    Chunks,
}

fn head(reader: &mut BufReader<UnixStream>, complaints: &Complaints) -> Option<(String, String, Framing)> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let (mut id, mut act, mut framing) = (String::new(), String::new(), Framing::None);
    if line != "POST /v2 HTTP/1.1\r\n" {
        complaints.lock().unwrap().push(line);
        return None;
    }
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name {
            "x-id" => value.clone_into(&mut id),
            "x-do" => value.clone_into(&mut act),
            "content-length" => framing = Framing::Length(value.parse().unwrap()),
            "transfer-encoding" => framing = Framing::Chunks,
            _ => complaints.lock().unwrap().push(line),
        }
    }
    Some((id, act, framing))
}

/// Whether it has come whole, and is made of the letter that all bodies are made of.
fn body(reader: &mut BufReader<UnixStream>, framing: &Framing, complaints: &Complaints) -> bool {
    let mut take = |length: usize| {
        let mut bytes = vec![0; length];
        let whole = reader.read_exact(&mut bytes).is_ok();
        if whole && bytes.iter().any(|byte| *byte != b'b') {
            complaints.lock().unwrap().push(bytes.escape_ascii().to_string());
        }
        whole
    };
    match framing {
        Framing::None => true,
        Framing::Length(length) => take(*length),
        Framing::Chunks => loop {
            let mut line = String::new();
            if reader.read_line(&mut line).is_err() || line.is_empty() {
                return false;
            }
            let Ok(length) = usize::from_str_radix(line.trim_end(), 16) else {
                complaints.lock().unwrap().push(line);
                return false;
            };
            let mut bytes = vec![0; length + 2];
            if reader.read_exact(&mut bytes).is_err() {
                return false;
            }
            if bytes[..length].iter().any(|byte| *byte != b'b') || !bytes.ends_with(b"\r\n") {
                complaints.lock().unwrap().push(bytes.escape_ascii().to_string());
            }
            if length == 0 {
                return true;
            }
        },
    }
}

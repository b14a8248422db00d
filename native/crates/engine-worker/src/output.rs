//! What a worker prints: lines for the log, and the end of it for errors.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::time::{Duration, Instant};

const TAIL_BYTES: usize = 4 << 10;
const LINE_BYTES: usize = 8 << 10;
/// Further lines in a second are counted and left out.
const LINES_PER_SECOND: usize = 1000;

pub(crate) struct Output {
    /// `None` once nothing more will come.
    pipe: Option<PipeReader>,
    name: String,
    line: Vec<u8>,
    tail: VecDeque<u8>,
    second: Instant,
    lines: usize,
}

impl Output {
    /// Never blocks.
    pub(crate) fn new(pipe: PipeReader, name: String) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let (line, tail) = (Vec::new(), VecDeque::new());
        Ok(Self { pipe: Some(pipe), name, line, tail, second: Instant::now(), lines: 0 })
    }

    pub(crate) fn pipe(&self) -> Option<&PipeReader> {
        self.pipe.as_ref()
    }

    /// Reads a share of what there is.
    pub(crate) fn read(&mut self) {
        let mut room = [0; 16 << 10];
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.read(&mut room) {
            Ok(0) => self.pipe = None,
            Ok(length) => self.take(&room[..length]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.pipe = None,
        }
    }

    /// Reads what is left of a process that has ended; others may still write.
    pub(crate) fn read_rest(&mut self) {
        let mut room = [0; 16 << 10];
        for _ in 0..64 {
            match self.pipe.as_mut().map(|pipe| pipe.read(&mut room)) {
                Some(Ok(length)) if length > 0 => self.take(&room[..length]),
                _ => break,
            }
        }
        if !self.line.is_empty() {
            self.end_line();
        }
    }

    /// The last it has printed, for the text of an error.
    pub(crate) fn tail(&self) -> String {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.tail.extend(bytes);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        for &byte in bytes {
            if byte == b'\n' || self.line.len() >= LINE_BYTES {
                self.end_line();
            }
            if byte != b'\n' {
                self.line.push(byte);
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if self.second.elapsed() >= Duration::from_secs(1) {
            let left_out = self.lines.saturating_sub(LINES_PER_SECOND);
            if left_out > 0 {
                log::warn!("{}: {left_out} lines in a second were left out", self.name);
            }
            (self.second, self.lines) = (Instant::now(), 0);
        }
        self.lines += 1;
        if self.lines <= LINES_PER_SECOND {
            log::info!("{}: {}", self.name, String::from_utf8_lossy(&line).trim_end());
        }
    }
}

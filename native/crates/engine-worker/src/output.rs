//! What a worker prints: lines for the log, and the end of it for errors.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::time::Instant;

use bytes::Bytes;

use crate::lines::{Allowance, LINE_BYTES, Lines};
use crate::message::{TEXT_BYTES, text_of};

const TAIL_BYTES: usize = 4 << 10;

pub(crate) struct Output {
    /// `None` once nothing more will come.
    pipe: Option<PipeReader>,
    name: String,
    lines: Lines,
    tail: VecDeque<u8>,
    printed: Allowance,
    /// Lines of the model's own logger, of which a storm of print must not cut any off.
    logged: Allowance,
}

impl Output {
    /// Never blocks.
    pub(crate) fn new(pipe: PipeReader, name: String) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let now = Instant::now();
        Ok(Self {
            pipe: Some(pipe),
            name,
            lines: Lines::default(),
            tail: VecDeque::new(),
            printed: Allowance::new(now),
            logged: Allowance::new(now),
        })
    }

    pub(crate) fn pipe(&self) -> Option<&PipeReader> {
        self.pipe.as_ref()
    }

    /// Reads a share of what there is. False: there was nothing.
    pub(crate) fn read(&mut self) -> bool {
        let mut room = [0; 16 << 10];
        let Some(pipe) = &mut self.pipe else { return false };
        match pipe.read(&mut room) {
            Ok(length) if length > 0 => {
                self.take(&room[..length]);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => self.pipe = None,
        }
        false
    }

    /// Reads what is left of a process that has ended; others may still write.
    pub(crate) fn read_rest(&mut self) {
        let _ = (0..64).all(|_| self.read());
        let mut lines = std::mem::take(&mut self.lines);
        lines.finish(|line| self.write(line));
        self.say_left_out(Allowance::end);
    }

    /// The last it has printed, for the text of an error.
    pub(crate) fn tail(&self) -> String {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }

    /// What the model writes by its logger.
    pub(crate) fn log(&mut self, level: u32, text: &Bytes) {
        let level = match level {
            0 => log::Level::Error,
            1 => log::Level::Warn,
            2 => log::Level::Info,
            _ => log::Level::Debug,
        };
        self.report(Instant::now());
        for line in text_of(text, TEXT_BYTES).lines().flat_map(|line| line.as_bytes().chunks(LINE_BYTES)) {
            if self.logged.admits() {
                log::log!(level, "{}: {}", self.name, String::from_utf8_lossy(line).trim_end());
            }
        }
    }

    /// Says how many lines were left out, once the second is over. To be called now and then.
    pub(crate) fn report(&mut self, now: Instant) {
        self.say_left_out(|allowance| allowance.renew(now));
    }

    fn say_left_out(&mut self, of: impl Fn(&mut Allowance) -> usize) {
        let left_out = of(&mut self.printed) + of(&mut self.logged);
        if left_out > 0 {
            log::warn!("{}: {left_out} lines in a second were left out", self.name);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.tail.extend(bytes);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        let mut lines = std::mem::take(&mut self.lines);
        lines.take(bytes, |line| self.write(line));
        self.lines = lines;
    }

    fn write(&mut self, line: &[u8]) {
        self.report(Instant::now());
        if self.printed.admits() {
            log::info!("{}: {}", self.name, String::from_utf8_lossy(line).trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};

    use super::*;

    #[test]
    fn the_end_of_what_was_printed_is_kept_and_no_more() {
        let (reader, mut writer) = pipe().unwrap();
        let mut output = Output::new(reader, "m_0".into()).unwrap();
        for number in 0..2000 {
            writeln!(writer, "line {number}").unwrap();
            output.read();
        }
        write!(writer, "the last words\n \n").unwrap();
        drop(writer);
        output.read_rest();
        assert!(output.tail().len() <= TAIL_BYTES);
        assert!(output.tail().ends_with("\nline 1999\nthe last words"), "{}", output.tail());
        assert!(output.pipe().is_none(), "nothing more will come");
    }

    #[test]
    fn what_others_keep_open_is_not_waited_for() {
        let (reader, mut writer) = pipe().unwrap();
        let mut output = Output::new(reader, "m_0".into()).unwrap();
        write!(writer, "the last words").unwrap();
        output.read_rest();
        assert_eq!(output.tail(), "the last words");
        assert!(output.pipe().is_some());
    }
}

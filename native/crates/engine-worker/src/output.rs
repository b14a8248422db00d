//! What a worker prints: lines for the log, and the end of it for errors.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::time::Instant;

use crate::lines::{Allowance, Lines, warn_left_out};

const TAIL_BYTES: usize = 4 << 10;

pub(crate) struct PrintedOutput {
    /// `None` once nothing more will come.
    pipe: Option<PipeReader>,
    name: String,
    lines: Lines,
    tail: VecDeque<u8>,
    printed: Allowance,
    /// In bytes, all of it.
    length: usize,
    /// Of that, what was printed before it was ready.
    before: usize,
}

impl PrintedOutput {
    /// Never blocks.
    pub(crate) fn new(pipe: PipeReader, name: String) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self {
            pipe: Some(pipe),
            name,
            lines: Lines::default(),
            tail: VecDeque::new(),
            printed: Allowance::new(Instant::now()),
            length: 0,
            before: 0,
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
        warn_left_out(&self.name, self.printed.end());
    }

    /// What was read until now was printed by a process that is not ready.
    pub(crate) fn is_not_ready(&mut self) {
        self.before = self.length;
    }

    /// The last it has printed, for the text of an error: of a process that was ready, without what it said of its
    /// start, as libraries do.
    pub(crate) fn tail(&self, was_ready: bool) -> String {
        let since = if was_ready { self.length - self.before } else { self.length };
        let bytes: Vec<u8> = self.tail.iter().skip(self.tail.len().saturating_sub(since)).copied().collect();
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }

    /// Says how many lines were left out, once the second is over. To be called now and then.
    pub(crate) fn report(&mut self, now: Instant) {
        warn_left_out(&self.name, self.printed.renew(now));
    }

    fn take(&mut self, bytes: &[u8]) {
        self.tail.extend(bytes);
        self.length += bytes.len();
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
        let mut output = PrintedOutput::new(reader, "m_0".into()).unwrap();
        for number in 0..2000 {
            writeln!(writer, "line {number}").unwrap();
            output.read();
        }
        write!(writer, "the last words\n \n").unwrap();
        drop(writer);
        output.read_rest();
        assert!(output.tail(false).len() <= TAIL_BYTES);
        assert!(output.tail(false).ends_with("\nline 1999\nthe last words"), "{}", output.tail(false));
        assert!(output.pipe().is_none(), "nothing more will come");
    }

    #[test]
    fn what_one_that_was_ready_printed_before_is_left_out() {
        let (reader, mut writer) = pipe().unwrap();
        let mut output = PrintedOutput::new(reader, "m_0".into()).unwrap();
        for line in 0..2 * TAIL_BYTES / 8 {
            writeln!(writer, "banner {line}").unwrap();
            output.read();
        }
        output.is_not_ready();
        assert_eq!(output.tail(true), "");
        assert!(output.tail(false).ends_with("\nbanner 1023"));
        write!(writer, "the last words").unwrap();
        output.read();
        assert_eq!(output.tail(true), "the last words");
        assert!(output.tail(false).ends_with("\nbanner 1023\nthe last words"));
        for _ in 0..TAIL_BYTES {
            write!(writer, "xy").unwrap();
            output.read();
        }
        assert_eq!(output.tail(true), output.tail(false));
    }

    #[test]
    fn what_others_keep_open_is_not_waited_for() {
        let (reader, mut writer) = pipe().unwrap();
        let mut output = PrintedOutput::new(reader, "m_0".into()).unwrap();
        write!(writer, "the last words").unwrap();
        output.read_rest();
        assert_eq!(output.tail(false), "the last words");
        assert!(output.pipe().is_some());
    }
}

//! Standard error, for lines that nobody waits for. What it does not take at once is kept, and written by a thread;
//! where that grows too large, lines are left out, and their number is said. So a reader that stands still, as a
//! terminal that is stopped or a log driver that hangs, costs lines and nothing else.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open};
use rustix::io::{Errno, write};
use rustix::net::{SendFlags, send};
use rustix::stdio::stderr;

/// What is kept of lines that wait.
const MOST_BYTES: usize = 4 << 20;
/// A pipe that can be written to takes so many.
const PIPE_BYTES: usize = 4096;
/// From one look to the next whether it takes lines again: it may have become another file meanwhile.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

static WAITING: Mutex<Waiting> = Mutex::new(Waiting::new());
static WRITTEN: Condvar = Condvar::new();

/// Lines that wait until standard error takes them, the first one perhaps in part.
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    left_out: u64,
    /// The process whose thread writes them; a child that was forked meanwhile has none.
    writer: Option<u32>,
    way: Option<Way>,
}

/// How one file is written to without waiting for whoever reads it.
struct Way {
    device: u64,
    inode: u64,
    kind: Kind,
}

enum Kind {
    /// A pipe or a terminal, opened once more: not to wait is a property of what was opened.
    Own(OwnedFd),
    Socket,
    /// A pipe or a terminal that cannot be opened once more.
    Looked,
    /// Nobody reads it at the other end.
    File,
}

/// Writes a line, now or later.
pub(crate) fn write_line(line: &[u8]) {
    let mut waiting = lock();
    waiting.forget_the_parents();
    let written = if waiting.lines.is_empty() { waiting.write_now(line) } else { 0 };
    if written == line.len() {
        return;
    }
    waiting.keep(&line[written..]);
    if waiting.writer.is_none() {
        let writer = thread::Builder::new().name("kushi-log".to_owned()).spawn(write_waiting);
        // Without a thread the next line tries again.
        waiting.writer = writer.is_ok().then(std::process::id);
    }
}

/// Waits until all lines are written, but no longer than that.
pub(crate) fn flush(patience: Duration) {
    let mut waiting = lock();
    waiting.forget_the_parents();
    drop(WRITTEN.wait_timeout_while(waiting, patience, |waiting| waiting.writer.is_some()));
}

fn write_waiting() {
    loop {
        // Whatever it answers: what is written next tells more.
        let _ = poll(&mut [PollFd::from_borrowed_fd(stderr(), PollFlags::OUT)], Some(&LOOK));
        let mut waiting = lock();
        if waiting.write_all_now() {
            waiting.writer = None;
            WRITTEN.notify_all();
            return;
        }
    }
}

fn lock() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiting {
    const fn new() -> Self {
        Self { lines: VecDeque::new(), bytes: 0, left_out: 0, writer: None, way: None }
    }

    fn forget_the_parents(&mut self) {
        if self.writer.is_some_and(|process| process != std::process::id()) {
            *self = Self::new();
        }
    }

    fn keep(&mut self, line: &[u8]) {
        if self.bytes + line.len() > MOST_BYTES {
            self.left_out += 1;
            return;
        }
        self.bytes += line.len();
        self.lines.push_back(line.to_vec());
    }

    /// Whether nothing waits any more.
    fn write_all_now(&mut self) -> bool {
        while let Some(line) = self.lines.pop_front() {
            self.bytes -= line.len();
            let written = self.write_now(&line);
            if written < line.len() {
                self.bytes += line.len() - written;
                self.lines.push_front(line[written..].to_vec());
                return false;
            }
            if self.lines.is_empty() && self.left_out > 0 {
                let left_out = std::mem::take(&mut self.left_out);
                self.keep(format!("{left_out} lines were left out: standard error took none\n").as_bytes());
            }
        }
        true
    }

    /// How much of it was written, all of it where nobody can read it any more.
    fn write_now(&mut self, bytes: &[u8]) -> usize {
        let Some(way) = self.way() else { return bytes.len() };
        let mut written = 0;
        while written < bytes.len() {
            match way.write(&bytes[written..]) {
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return written,
                Err(_) => return bytes.len(),
            }
        }
        written
    }

    /// None where it is closed.
    fn way(&mut self) -> Option<&Way> {
        let found = fstat(stderr()).ok()?;
        if !self.way.as_ref().is_some_and(|way| way.leads_to(&found)) {
            self.way = Some(Way::to(&found));
        }
        self.way.as_ref()
    }
}

impl Way {
    fn to(found: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(found.st_mode) {
            FileType::Fifo | FileType::CharacterDevice => {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                open("/proc/self/fd/2", flags, Mode::empty()).map_or(Kind::Looked, Kind::Own)
            }
            FileType::Socket => Kind::Socket,
            _ => Kind::File,
        };
        Self { device: found.st_dev, inode: found.st_ino, kind }
    }

    fn leads_to(&self, found: &Stat) -> bool {
        (self.device, self.inode) == (found.st_dev, found.st_ino)
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match &self.kind {
            Kind::Own(file) => write(file.as_fd(), bytes),
            Kind::Socket => send(stderr(), bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Kind::Looked if !takes_some(stderr()) => Err(Errno::AGAIN),
            Kind::Looked => write(stderr(), &bytes[..bytes.len().min(PIPE_BYTES)]),
            Kind::File => write(stderr(), bytes),
        }
    }
}

fn takes_some(file: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::OUT)], Some(&now)).is_ok_and(|ready| ready > 0)
}

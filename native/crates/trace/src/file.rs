//! Triton's file of traces, written by a thread of its own.
//!
//! Without a log frequency all traces go to one file, as they come: it is whole JSON after each write. With one, so many
//! traces make a file with an index behind its name, which is written when it is full; the last one when the settings
//! change or the server ends. A number of traces that was asked for has a file of its own, too, once all are there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use kushi_core::os_text;

use crate::document::{self, Origin};
use crate::outlet::{Finished, Outlet};
use crate::queue::Queue;

/// Traces that wait to be written.
const MOST_WAITING: usize = 16 << 10;
/// What is kept of a file that is not full; more is written before.
const MOST_KEPT_BYTES: usize = 8 << 20;

enum FileOrder {
    Write(Box<Finished>),
    /// Of these settings nothing more comes.
    Retire(u64),
}

pub struct TraceFile {
    path: String,
    origin: Origin,
    queue: Arc<Queue<FileOrder>>,
    started: OnceLock<bool>,
}

impl TraceFile {
    pub fn new(path: &str) -> Self {
        let queue = Arc::new(Queue::new(MOST_WAITING));
        Self { path: path.into(), origin: Origin::now(), queue, started: OnceLock::new() }
    }

    fn start(&self) -> bool {
        let (path, origin, queue) = (self.path.clone(), self.origin, self.queue.clone());
        let write = move || {
            Writer { path, origin, whole: None, next_index: 0, open: BTreeMap::new(), faults: 0 }.run(&queue);
        };
        let spawned = thread::Builder::new().name("kushi-trace".into()).spawn(write);
        if let Err(error) = &spawned {
            log::error!("traces are not written, no thread for them can be started: {}", os_text(error));
        }
        spawned.is_ok()
    }
}

impl Outlet for TraceFile {
    fn put(&self, trace: Finished) {
        if *self.started.get_or_init(|| self.start()) {
            self.queue.put(FileOrder::Write(Box::new(trace)), 1);
        }
    }

    fn retire(&self, setting: u64) {
        if self.started.get().is_some() {
            self.queue.put(FileOrder::Retire(setting), 0);
        }
    }

    fn close(&self, until: Instant) {
        if *self.started.get_or_init(|| false) && !self.queue.close(until) {
            log::warn!("not all traces were written to '{}' before the server ended", self.path);
        }
    }
}

/// The traces of one state of the settings that are in no file.
#[derive(Default)]
struct Open {
    text: String,
    count: u32,
    has_frequency: bool,
    is_counted: bool,
    /// Has the first of them, where they were too many to be kept.
    file: Option<Json>,
}

impl Open {
    /// Whether its traces go to the one file, as they come.
    fn streams(&self) -> bool {
        !self.has_frequency && !self.is_counted
    }
}

struct Writer {
    path: String,
    origin: Origin,
    /// That of all traces without an index.
    whole: Option<Json>,
    next_index: u32,
    open: BTreeMap<u64, Open>,
    faults: u64,
}

impl Writer {
    fn run(mut self, queue: &Queue<FileOrder>) {
        let mut told = 0;
        loop {
            let taken = queue.take(1, Duration::ZERO);
            for order in taken.all {
                match order {
                    FileOrder::Write(trace) => self.add(&trace),
                    FileOrder::Retire(setting) => self.retire(setting),
                }
            }
            self.write_on();
            if taken.dropped >= 2 * told.max(1) || (taken.dropped > told && taken.closed.is_some()) {
                log::warn!("{} traces were dropped: they came faster than they are written", taken.dropped);
                told = taken.dropped;
            }
            if taken.closed.is_some() {
                break;
            }
        }
        for setting in self.open.keys().copied().collect::<Vec<_>>() {
            self.retire(setting);
        }
        queue.done();
    }

    fn add(&mut self, trace: &Finished) {
        let open = self.open.entry(trace.setting).or_default();
        open.has_frequency = trace.log_frequency > 0;
        open.is_counted = trace.is_counted;
        if !open.text.is_empty() {
            open.text.push(',');
        }
        document::write(&mut open.text, trace, self.origin);
        open.count += 1;
        let is_full = trace.log_frequency > 0 && open.count >= trace.log_frequency;
        if is_full || trace.is_last {
            let mut open = self.open.remove(&trace.setting).unwrap_or_default();
            self.write_indexed(&mut open);
        } else if !open.streams() && open.text.len() > MOST_KEPT_BYTES {
            let mut open = self.open.remove(&trace.setting).unwrap_or_default();
            self.write_indexed(&mut open);
            self.open.insert(trace.setting, open);
        }
    }

    /// What goes to the one file: those that came together at once.
    fn write_on(&mut self) {
        let streams: Vec<u64> =
            self.open.iter().filter(|(_, open)| open.streams()).map(|(&key, _)| key).collect();
        for setting in streams {
            if let Some(open) = self.open.remove(&setting) {
                self.write_whole(&open.text);
            }
        }
    }

    fn retire(&mut self, setting: u64) {
        let Some(mut open) = self.open.remove(&setting) else { return };
        if open.has_frequency || open.file.is_some() {
            self.write_indexed(&mut open);
        } else {
            self.write_whole(&open.text);
        }
    }

    fn write_whole(&mut self, text: &str) {
        let path = self.path.clone();
        let file = match &mut self.whole {
            Some(file) => Ok(file),
            none => Json::create(&path).map(|file| none.insert(file)),
        };
        let written = file.and_then(|file| file.append(text));
        self.note(&path, written);
    }

    /// The next part of a file of its own.
    fn write_indexed(&mut self, open: &mut Open) {
        let text = std::mem::take(&mut open.text);
        if let Some(file) = &mut open.file {
            let written = file.append(&text);
            return self.note(&self.path.clone(), written);
        }
        let path = format!("{}.{}", self.path, self.next_index);
        self.next_index += 1;
        let created = Json::create(&path).and_then(|mut file| file.append(&text).map(|()| file));
        match created {
            Ok(file) => open.file = Some(file),
            Err(error) => self.note(&path, Err(error)),
        }
    }

    fn note(&mut self, path: &str, written: io::Result<()>) {
        let Err(error) = written else { return };
        self.faults += 1;
        if self.faults.is_power_of_two() {
            log::error!("cannot write traces to '{path}' (fault {}): {}", self.faults, os_text(&error));
        }
    }
}

/// A file with a list, which is whole after each write.
struct Json {
    file: File,
    is_empty: bool,
}

impl Json {
    fn create(path: &str) -> io::Result<Self> {
        File::create(path).map(|file| Self { file, is_empty: true })
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let before = if self.is_empty { "[" } else { "," };
        let joined = [before, text, "]"].concat();
        if !self.is_empty {
            self.file.seek(SeekFrom::End(-1))?;
        }
        self.file.write_all(joined.as_bytes())?;
        self.is_empty = false;
        Ok(())
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;

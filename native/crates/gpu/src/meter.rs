//! What was read last, and the thread that reads.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use log::Level;

use crate::gpus::{Gpus, Reading};
use crate::nvml::Nothing;

const LIBRARY: &str = "libnvidia-ml.so.1";
/// How much later than expected a reading may come.
const LATE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct GpuOptions {
    /// Between two readings.
    pub interval: Duration,
    /// `CUDA_VISIBLE_DEVICES`, where it is set.
    pub visible: Option<String>,
}

/// Reads from its start on, until [`stop`](Self::stop) or its end.
pub struct GpuMeter {
    newest: Arc<Mutex<Newest>>,
    too_old: Duration,
    running: Mutex<Option<Running>>,
}

struct Running {
    /// Never used: the thread ends when it is dropped.
    stop: Sender<()>,
    /// Never used: closed when the thread is at its end.
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl GpuMeter {
    pub fn start(options: GpuOptions) -> Self {
        let newest = Arc::new(Mutex::new(Newest::default()));
        let too_old = options.interval * 5 + LATE;
        let (stop, stopped) = mpsc::channel();
        let (at_end, ended) = mpsc::channel();
        let read = {
            let newest = newest.clone();
            move || {
                watch(&newest, &options, &stopped);
                drop::<Sender<()>>(at_end);
            }
        };
        let running = match thread::Builder::new().name("kushi-gpus".into()).spawn(read) {
            Ok(thread) => Some(Running { stop, ended, thread }),
            Err(error) => {
                lock(&newest).content =
                    Content::Nothing(format!("no thread for them can be started: {error}").into());
                None
            }
        };
        Self { newest, too_old, running: Mutex::new(running) }
    }

    /// What each GPU has said last; nothing where the driver has not answered for long. Waits for nothing.
    pub fn read(&self) -> Arc<[Reading]> {
        let (readings, line) = lock(&self.newest).at(Instant::now(), self.too_old);
        if let Some((level, text)) = line {
            log::log!(level, "{text}");
        }
        readings
    }

    /// Nothing is read any more. Waits so long for a call of the driver that is under way; one that hangs is left alone.
    pub fn stop(&self, patience: Duration) {
        let Some(running) = lock(&self.running).take() else { return };
        drop(running.stop);
        if running.ended.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected) {
            let _ = running.thread.join();
        }
    }
}

fn watch(newest: &Mutex<Newest>, options: &GpuOptions, stopped: &Receiver<()>) {
    let mut gpus = match Gpus::open(LIBRARY, options.visible.as_deref()) {
        Ok(gpus) => gpus,
        Err(nothing) => {
            lock(newest).content = Content::Nothing(nothing);
            return;
        }
    };
    loop {
        let readings = gpus.read().into();
        *lock(newest) = Newest { since: Instant::now(), content: Content::Read(readings), is_told: false };
        if stopped.recv_timeout(options.interval) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Newest {
    since: Instant,
    content: Content,
    /// Whether it was said that it is missing, or too old.
    is_told: bool,
}

enum Content {
    /// Empty before the first reading.
    Read(Arc<[Reading]>),
    /// And why.
    Nothing(Nothing),
}

impl Default for Newest {
    fn default() -> Self {
        Self { since: Instant::now(), content: Content::Read(Arc::default()), is_told: false }
    }
}

impl Newest {
    /// What counts at that time, and what is to be said of it in the log.
    fn at(&mut self, now: Instant, too_old: Duration) -> (Arc<[Reading]>, Option<(Level, String)>) {
        let age = now.saturating_duration_since(self.since);
        let line = match &self.content {
            Content::Read(readings) if age <= too_old => return (readings.clone(), None),
            Content::Read(_) => {
                let seconds = age.as_secs();
                let text = format!(
                    "the driver of NVIDIA has not answered for {seconds} s, the metrics have no GPUs until it does"
                );
                (Level::Warn, text)
            }
            Content::Nothing(Nothing { why, is_usual }) => {
                // Most machines have no driver.
                let level = if *is_usual { Level::Debug } else { Level::Info };
                (level, format!("the metrics have no GPUs: {why}"))
            }
        };
        let is_told = std::mem::replace(&mut self.is_told, true);
        (Arc::default(), (!is_told).then_some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOO_OLD: Duration = Duration::from_secs(15);

    fn read(since: Instant) -> Newest {
        let readings = Arc::new([Reading { uuid: "GPU-a".into(), ..Reading::default() }]);
        Newest { since, content: Content::Read(readings), is_told: false }
    }

    #[test]
    fn what_was_read_holds_until_it_is_too_old() {
        let since = Instant::now();
        let mut newest = read(since);
        assert_eq!(newest.at(since + TOO_OLD, TOO_OLD).0.len(), 1);
        assert_eq!(newest.at(since + TOO_OLD + Duration::from_nanos(1), TOO_OLD).0.len(), 0);
    }

    #[test]
    fn a_driver_that_does_not_answer_is_complained_about_once() {
        let since = Instant::now();
        let mut newest = read(since);
        let mut lines = (0..3).filter_map(|more| newest.at(since + 2 * TOO_OLD + TOO_OLD * more, TOO_OLD).1);
        let (level, text) = lines.next().expect("a line");
        assert_eq!(level, Level::Warn);
        assert!(text.contains("not answered for 30 s"), "{text}");
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn a_driver_that_never_answers_is_complained_about() {
        let mut newest = Newest::default();
        let late = newest.since + 2 * TOO_OLD;
        assert!(newest.at(late, TOO_OLD).1.is_some());
    }

    #[test]
    fn that_there_is_nothing_is_said_once_and_louder_where_there_is_a_library() {
        for (is_usual, level) in [(true, Level::Debug), (false, Level::Info)] {
            let content = Content::Nothing(Nothing { why: "no such thing".into(), is_usual });
            let mut newest = Newest { content, ..Newest::default() };
            let now = newest.since;
            let (readings, line) = newest.at(now, TOO_OLD);
            assert_eq!(readings.len(), 0);
            assert_eq!(line, Some((level, "the metrics have no GPUs: no such thing".into())));
            assert_eq!(newest.at(now + 9 * TOO_OLD, TOO_OLD).1, None);
        }
    }

    #[test]
    fn a_meter_stops_at_once_and_may_be_stopped_again() {
        let meter = GpuMeter::start(GpuOptions { interval: Duration::from_secs(1 << 20), visible: None });
        for _ in 0..2 {
            meter.stop(Duration::MAX);
        }
    }
}

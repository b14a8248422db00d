use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kushi_core::Error;
use serde_json::Value;

use crate::{
    Change, Destination, Event, Parent, Trace, TraceChange, TraceFile, TraceLevel, TraceOptions,
    TraceSetting, Traces,
};

struct Place {
    folder: PathBuf,
    traces: Traces,
}

impl Place {
    fn new(name: &str, setting: impl FnOnce(&mut TraceSetting)) -> Self {
        let folder = std::env::temp_dir().join(format!("kushi-trace-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("t").display().to_string();
        let level = TraceLevel { timestamps: true, tensors: false };
        let mut options = TraceSetting {
            level,
            rate: 1,
            count: -1,
            log_frequency: 0,
            destination: Destination::File(path.clone()),
        };
        setting(&mut options);
        let outlet = Arc::new(TraceFile::new(&path));
        Self { folder, traces: Traces::new(TraceOptions { setting: options, outlet }) }
    }

    fn begin(&self, model: &str) -> Option<Trace> {
        self.traces.begin(model, Instant::now(), || None)
    }

    /// So many requests, one after the other. Answers how many of them were traced.
    fn ask(&self, requests: usize) -> usize {
        (0..requests).filter(|_| self.begin("m").is_some()).count()
    }

    fn change(&self, change: TraceChange) -> Result<TraceSetting, Error> {
        self.traces.change("", change)
    }

    /// The ids of the traces in each file, once all are written.
    fn files(self) -> Vec<(String, Vec<u64>)> {
        self.traces.close(Instant::now() + Duration::from_secs(30));
        let mut found: Vec<_> = std::fs::read_dir(&self.folder)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let all: Vec<Value> = serde_json::from_str(&text).unwrap();
                let heads = all.iter().filter(|one| one.get("model_name").is_some());
                let name = entry.file_name().into_string().unwrap();
                (name, heads.map(|one| one["id"].as_u64().unwrap()).collect())
            })
            .collect();
        found.sort();
        std::fs::remove_dir_all(&self.folder).unwrap();
        found
    }
}

fn file(name: &str, ids: impl IntoIterator<Item = u64>) -> (String, Vec<u64>) {
    (name.into(), ids.into_iter().collect())
}

#[test]
fn all_traces_are_in_one_file() {
    let place = Place::new("one", |_| {});
    assert_eq!(place.ask(3), 3);
    assert_eq!(place.files(), [file("t", 1..=3)]);
}

#[test]
fn one_of_as_many_requests_as_the_rate_says_is_traced() {
    let place = Place::new("rate", |setting| setting.rate = 4);
    assert_eq!(place.ask(11), 2);
    assert_eq!(place.files(), [file("t", 1..=2)]);
}

#[test]
fn a_full_file_has_an_index_and_the_last_one_need_not_be_full() {
    let place = Place::new("frequency", |setting| setting.log_frequency = 2);
    assert_eq!(place.ask(5), 5);
    assert_eq!(place.files(), [file("t.0", 1..=2), file("t.1", 3..=4), file("t.2", [5])]);
}

#[test]
fn traces_that_were_counted_have_a_file_of_their_own() {
    let place = Place::new("count", |_| {});
    place.ask(2);
    let count = |count| TraceChange { count: Change::To(count), ..TraceChange::default() };
    assert_eq!(place.change(count(3)).unwrap().count, 3);
    assert_eq!(place.ask(5), 3);
    assert_eq!(place.traces.setting("").count, 0);
    let refused = place.change(count(0)).unwrap_err();
    assert_eq!(refused.to_string(), "Attempting to set invalid trace setting :");
    assert_eq!(place.files(), [file("t", 1..=2), file("t.0", 3..=5)]);
}

#[test]
fn a_count_that_is_not_reached_is_written_when_the_settings_change() {
    let place = Place::new("retired", |setting| setting.count = 9);
    place.ask(2);
    place.change(TraceChange { level: Change::To(TraceLevel::OFF), ..TraceChange::default() }).unwrap();
    assert_eq!((place.ask(2), place.traces.setting("").count), (0, 9));
    assert_eq!(place.files(), [file("t", 1..=2)]);
}

#[test]
fn each_of_many_threads_counts() {
    let place =
        Place::new("threads", |setting| (setting.rate, setting.count, setting.log_frequency) = (3, 100, 7));
    let traced: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| place.ask(150))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((traced, place.traces.setting("").count), (100, 0));
    let files = place.files();
    let mut sizes: Vec<usize> = files.iter().map(|(_, ids)| ids.len()).collect();
    sizes.sort_unstable();
    assert_eq!((sizes.len(), sizes[0], sizes[1], sizes[14]), (15, 2, 7, 7));
    let mut ids: Vec<u64> = files.into_iter().flat_map(|(_, ids)| ids).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(1..=100));
}

#[test]
fn a_model_with_settings_of_its_own_counts_for_itself() {
    let place = Place::new("model", |setting| setting.rate = 1000);
    let change = TraceChange { rate: Change::To(1), count: Change::To(1), ..TraceChange::default() };
    assert_eq!(place.traces.change("own", change).unwrap().rate, 1);
    assert!(place.begin("other").is_none());
    assert!(place.begin("own").is_some());
    assert!(place.begin("own").is_none(), "its count is used up");
    assert_eq!(place.traces.setting("own").count, 0);
    assert_eq!(place.traces.setting("").rate, 1000);
    // A change of all leaves it what is its own.
    place.change(TraceChange { rate: Change::To(2), ..TraceChange::default() }).unwrap();
    assert_eq!((place.traces.setting("own").rate, place.traces.setting("").rate), (1, 2));
    assert_eq!(place.files(), [file("t.0", [1])]);
}

#[test]
fn a_file_takes_no_parents() {
    let place = Place::new("parents", |setting| setting.rate = 1000);
    let sampled = || Some(Parent { trace_id: 1, span_id: 1, is_sampled: true, state: String::new() });
    assert!(place.traces.begin("m", Instant::now(), sampled).is_none());
    assert_eq!(place.files(), []);
}

#[test]
fn events_are_written_in_order_and_a_request_that_never_was_one_has_a_model_all_the_same() {
    let place = Place::new("events", |_| {});
    let trace = place.begin("m \"\n").unwrap();
    let now = Instant::now();
    trace.mark(Event::HttpSendStart, now + Duration::from_millis(2));
    trace.mark(Event::HttpReceiveStart, now);
    drop(trace);
    place.traces.close(Instant::now() + Duration::from_secs(30));
    let all: Vec<Value> = serde_json::from_slice(&std::fs::read(place.folder.join("t")).unwrap()).unwrap();
    assert_eq!(all[0], serde_json::json!({"id": 1, "model_name": "m \"\n", "model_version": -1}));
    let times: Vec<(&str, u64)> = all[1..]
        .iter()
        .map(|one| &one["timestamps"][0])
        .map(|time| (time["name"].as_str().unwrap(), time["ns"].as_u64().unwrap()))
        .collect();
    let [(first, began), (second, ended)] = times[..] else { panic!("{times:?}") };
    assert_eq!((first, second, ended - began), ("HTTP_RECV_START", "HTTP_SEND_START", 2_000_000));
    place.files();
}

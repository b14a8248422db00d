//! The settings of the log and of traces.

use kushi_core::{Error, ErrorKind};
use kushi_dataplane::{
    Change, LogChange, LogForm, LogSettings, Sent, TraceChange, TraceLevel, TraceOptions, TraceSetting, Verb,
    VerbAnswer,
};

use crate::site::{Site, version};

fn defaults() -> TraceSetting {
    TraceOptions::default().setting
}

fn rate(rate: Change<u32>) -> TraceChange {
    TraceChange { rate, ..TraceChange::default() }
}

fn count(count: Change<i32>) -> TraceChange {
    TraceChange { count, ..TraceChange::default() }
}

fn traces(model: &str, change: Sent<TraceChange>) -> Verb {
    Verb::TraceSetting { model: model.into(), change }
}

fn traced(site: &Site, model: &str, change: TraceChange) -> TraceSetting {
    match site.ask(traces(model, Ok(change))) {
        Ok(VerbAnswer::TraceSetting(setting)) => setting,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_of_the_log_is_answered_with_all_settings() {
    let site = Site::new();
    let log = |change| match site.ask(Verb::LogSettings(change)) {
        Ok(VerbAnswer::LogSettings { file, settings }) => (file, settings),
        other => panic!("{other:?}"),
    };
    let usual = LogSettings { verbose: 0, info: true, warning: true, error: true, form: LogForm::Triton };
    assert_eq!(log(LogChange::default()), ("/log".into(), usual));
    let change = LogChange { verbose: Some(2), info: Some(false), ..LogChange::default() };
    let changed = LogSettings { verbose: 2, info: false, ..usual };
    assert_eq!(log(change).1, changed);
    assert_eq!(log(LogChange::default()).1, changed);
}

#[test]
fn a_model_has_the_settings_of_all_where_it_has_none_of_its_own() {
    let (site, scene) = (Site::new(), version(1));
    site.serve("echo", [&scene]);
    let ask = |model| traced(&site, model, TraceChange::default());
    assert_eq!((ask(""), ask("echo")), (defaults(), defaults()));
    let of_all = TraceSetting { rate: 5, ..defaults() };
    assert_eq!(traced(&site, "", rate(Change::To(5))), of_all);
    assert_eq!(ask("echo"), of_all);
    let own = TraceSetting { count: 3, ..of_all.clone() };
    assert_eq!(traced(&site, "echo", count(Change::To(3))), own);
    assert_eq!((ask("echo"), ask("")), (own, of_all));
    assert_eq!(traced(&site, "", rate(Change::Reset)), defaults());
    assert_eq!(ask("echo"), TraceSetting { count: 3, ..defaults() });
    assert_eq!(traced(&site, "echo", count(Change::Reset)), defaults());
}

#[test]
fn traces_that_have_no_place_are_not_turned_on() {
    let site = Site::new();
    let level = Change::To(TraceLevel { timestamps: true, tensors: false });
    let text = "Attempting to set invalid trace setting :trace file name is not given";
    let on = traces("", Ok(TraceChange { level, ..TraceChange::default() }));
    site.refuses(on, ErrorKind::InvalidInput, text);
    assert_eq!(traced(&site, "", TraceChange::default()), defaults());
}

#[test]
fn a_model_that_is_not_ready_is_told_of_before_a_change_that_cannot_be_read() {
    let (site, scene) = (Site::new(), version(1));
    let unreadable = || Err(Error::invalid("unreadable"));
    site.plane.registry.announce("echo", 1);
    for model in ["other", "echo"] {
        let text = format!("Request for unknown model : {model}");
        site.refuses(traces(model, unreadable()), ErrorKind::InvalidInput, &text);
    }
    site.serve("echo", [&scene]);
    for model in ["", "echo"] {
        site.refuses(traces(model, unreadable()), ErrorKind::InvalidInput, "unreadable");
        assert_eq!(traced(&site, model, TraceChange::default()), defaults());
    }
    scene.runner.stop_admitting();
    let text = "Request for unknown model : echo";
    site.refuses(traces("echo", Ok(TraceChange::default())), ErrorKind::InvalidInput, text);
}

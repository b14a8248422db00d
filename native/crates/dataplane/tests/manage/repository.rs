//! The index of the repository, and orders to load and unload.

use std::fs;
use std::sync::mpsc;
use std::thread;

use kushi_core::{Error, ErrorKind, State};
use kushi_dataplane::{Action, DataPlaneOptions, IndexEntry, Overrides, Phase, Verb, VerbAnswer};
use kushi_testkit::PATIENCE;

use crate::site::{Folder, Site, options, version};

fn over(folders: &[&Folder]) -> Site {
    let repositories = folders.iter().map(|folder| folder.path().to_owned()).collect();
    Site::with(&DataPlaneOptions { repositories, ..options() })
}

fn index(site: &Site, ready_only: bool) -> Vec<IndexEntry> {
    match site.ask(Verb::RepositoryIndex { ready_only }) {
        Ok(VerbAnswer::Index(entries)) => entries,
        other => panic!("{other:?}"),
    }
}

fn there(name: &str) -> IndexEntry {
    IndexEntry { name: name.into(), version: None, state: None, reason: String::new() }
}

fn row(name: &str, version: u64, state: State) -> IndexEntry {
    IndexEntry { version: Some(version), state: Some(state), ..there(name) }
}

fn load(overrides: Overrides) -> Verb {
    Verb::RepositoryModelLoad { model: "echo".into(), overrides }
}

fn unload() -> Verb {
    Verb::RepositoryModelUnload { model: "echo".into(), dependents: false }
}

#[test]
fn the_index_has_what_is_there_and_what_is_known() {
    let folder = Folder::new().with_folders(&["echo", "later", ".hidden"]).with_file("a file");
    let (site, scenes) = (over(&[&folder]), [1, 2].map(version));
    assert_eq!(index(&site, false), [there("echo"), there("later")]);
    site.serve("echo", &scenes);
    site.plane.registry.announce("coming", 7);
    site.plane.registry.fail("broken", None, "why");
    let broken = IndexEntry { state: Some(State::Failed), reason: "why".into(), ..there("broken") };
    let ready = [row("echo", 1, State::Ready), row("echo", 2, State::Ready)];
    let all = [broken, row("coming", 7, State::Loading), ready[0].clone(), ready[1].clone(), there("later")];
    assert_eq!(index(&site, false), all);
    assert_eq!(index(&site, true), ready);
}

#[test]
fn what_is_unloaded_is_listed_as_long_as_it_is_there() {
    let folder = Folder::new().with_folders(&["echo"]);
    let (site, scene) = (over(&[&folder]), version(1));
    site.serve("echo", [&scene]);
    site.plane.unload("echo");
    assert_eq!(site.plane.wait_until_gone(PATIENCE), 0);
    let gone = IndexEntry { reason: "unloaded".into(), ..row("echo", 1, State::Unloaded) };
    assert_eq!(index(&site, false), [gone]);
    assert!(index(&site, true).is_empty());
    fs::remove_dir_all(folder.path()).unwrap_or_else(|error| panic!("{error}"));
    assert!(index(&site, false).is_empty());
}

#[test]
fn a_name_of_two_repositories_is_told_of() {
    let folders = [Folder::new().with_folders(&["m"]), Folder::new().with_folders(&["m"])];
    let reason = "model appears in two or more repositories".into();
    let twice = IndexEntry { state: Some(State::Failed), reason, ..there("m") };
    assert_eq!(index(&over(&[&folders[0], &folders[1]]), false), [twice]);
}

#[test]
fn a_repository_may_be_one_file() {
    let folder = Folder::new().with_file("one.onnx");
    let repositories = vec![folder.path().join("one.onnx")];
    let site = Site::with(&DataPlaneOptions { repositories, ..options() });
    assert_eq!(index(&site, false), [there("one")]);
}

#[test]
fn directories_are_read_by_whoever_runs_what_is_handed_back() {
    let folder = Folder::new().with_folders(&["echo"]);
    let site = over(&[&folder]);
    let (sender, answers) = mpsc::channel();
    let verb = Verb::RepositoryIndex { ready_only: false };
    let work = site.plane.perform(verb, Box::new(move |answer| sender.send(answer).unwrap_or_default()));
    assert!(answers.try_recv().is_err());
    work.expect("work that takes a while")();
    assert!(matches!(answers.try_recv(), Ok(Ok(VerbAnswer::Index(entries))) if entries == [there("echo")]));
}

#[test]
fn an_order_is_answered_when_it_has_been_carried_out() {
    let site = Site::new();
    let files = vec![("1/model".to_owned(), b"content".to_vec())];
    let overrides = Overrides { config: Some("{}".into()), files, versions: None };
    thread::scope(|scope| {
        scope.spawn(|| {
            let order = site.plane.orders.next(false).expect("an order");
            assert_eq!((&order.action, &*order.model), (&Action::Load(overrides.clone()), "echo"));
            order.answer(&Ok(()));
            let order = site.plane.orders.next(false).expect("another one");
            assert_eq!((&order.action, &*order.model), (&Action::Unload { dependents: false }, "echo"));
            order.answer(&Err(Error::new(ErrorKind::ModelBusy, "busy")));
        });
        assert!(matches!(site.ask(load(overrides.clone())), Ok(VerbAnswer::Done)));
        site.refuses(unload(), ErrorKind::ModelBusy, "busy");
    });
}

#[test]
fn an_order_that_waits_when_the_server_closes_hears_so() {
    let site = Site::new();
    let (sender, answers) = mpsc::channel();
    let answered = Box::new(move |answer| sender.send(answer).unwrap_or_default());
    assert!(site.plane.perform(load(Overrides::default()), answered).is_none());
    assert!(answers.try_recv().is_err());
    site.plane.advance(Phase::Exiting);
    let refusal = answers.try_recv().expect("an answer").expect_err("a refusal");
    assert_eq!((refusal.kind, &*refusal.message), (ErrorKind::ShuttingDown, "Server not ready"));
}

#[test]
fn models_are_loaded_where_that_is_allowed() {
    let fixed = Site::with(&DataPlaneOptions { explicit_control: false, ..options() });
    let text = "explicit model load / unload is not allowed if polling is enabled";
    fixed.refuses(load(Overrides::default()), ErrorKind::ControlDisabled, text);
    fixed.refuses(unload(), ErrorKind::ControlDisabled, text);
}

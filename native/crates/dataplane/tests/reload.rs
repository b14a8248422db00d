//! A reload builds the new runner beside the old one and swaps; a failed one keeps the old.

use std::sync::Arc;

use kushi_core::{ErrorKind, ModelSpec, Runner, State};
use kushi_dataplane::{AskedVersion, Registry, RoutesSpec, VersionRoutes, VersionRow};
use kushi_testkit::{PATIENCE, Scene, echo_spec};

fn serving(scene: &Scene) -> Registry {
    let registry = Registry::default();
    assert!(registry.publish("echo", vec![scene.runner.clone()]).is_empty());
    registry
}

fn version(number: u64) -> Scene {
    Scene::new(ModelSpec { version: number, ..echo_spec() })
}

fn found(registry: &Registry, version: Option<u64>) -> Result<Arc<Runner>, (ErrorKind, String)> {
    registry.find("echo", &version.into()).map_err(|error| (error.kind, error.message.into_owned()))
}

fn finds(registry: &Registry, version: Option<u64>, scene: &Scene) -> bool {
    found(registry, version).is_ok_and(|runner| Arc::ptr_eq(&runner, &scene.runner))
}

fn row(version: Option<u64>, state: State, reason: &str) -> VersionRow {
    VersionRow { model: "echo".into(), version, state, reason: reason.into() }
}

#[test]
fn requests_in_flight_finish_where_they_began() {
    let (old, new) = (version(1), version(1));
    let registry = serving(&old);
    old.plug();
    let replaced = registry.publish("echo", vec![new.runner.clone()]);
    assert!(replaced.len() == 1 && Arc::ptr_eq(&replaced[0], &old.runner));
    assert!(finds(&registry, None, &new));
    new.ask([7]);
    new.letters.answer(7);
    old.puppet.release_all();
    assert!(old.letters.answer(0).error().is_none());
    assert!(replaced[0].retire(PATIENCE));
    assert!(registry.all_ready());
}

#[test]
fn a_failed_reload_keeps_the_old_version() {
    let old = version(1);
    let registry = serving(&old);
    registry.announce("echo", 1);
    registry.fail("echo", Some(1), "the file is broken");
    registry.fail("echo", None, "the folder is broken");
    assert!(finds(&registry, None, &old));
    assert_eq!(registry.rows(), [row(Some(1), State::Ready, "")]);
}

#[test]
fn the_latest_ready_version_is_the_default() {
    let (one, two) = (version(1), version(2));
    let registry = Registry::default();
    assert!(registry.publish("echo", vec![one.runner.clone(), two.runner.clone()]).is_empty());
    assert!(finds(&registry, None, &two));
    assert!(finds(&registry, Some(1), &one));
    two.runner.stop_admitting();
    assert!(finds(&registry, None, &one));
    assert!(!registry.all_ready());
    // Where nothing else is left, the draining version itself says that it takes no more.
    one.runner.stop_admitting();
    assert!(finds(&registry, None, &two));
    assert!(finds(&registry, Some(2), &two));
    assert_eq!(two.refused(two.request(1, 1)).kind, ErrorKind::ShuttingDown);
}

#[test]
fn unknown_models_and_versions_are_named() {
    let scene = version(1);
    let registry = serving(&scene);
    let text = |model: &str, version| {
        registry.find(model, &AskedVersion::from(version)).err().map(|error| error.to_string())
    };
    assert_eq!(text("other", None).as_deref(), Some("Request for unknown model: 'other' is not found"));
    assert_eq!(
        text("echo", Some(9)).as_deref(),
        Some("Request for unknown model: 'echo' version 9 is not found")
    );
}

#[test]
fn a_version_is_loading_then_failed_then_may_load_again() {
    let registry = Registry::default();
    let steps: [&dyn Fn(); 4] = [
        &|| registry.announce("echo", 1),
        &|| registry.fail("echo", Some(1), "broken"),
        &|| registry.announce("echo", 1),
        &|| registry.fail("echo", None, "all broken"),
    ];
    let expected = [
        row(Some(1), State::Loading, ""),
        row(Some(1), State::Failed, "broken"),
        row(Some(1), State::Loading, ""),
        row(None, State::Failed, "all broken"),
    ];
    for (step, expected) in steps.into_iter().zip(expected) {
        step();
        assert_eq!(registry.rows(), [expected]);
        assert!(found(&registry, None).is_err());
        assert!(!registry.all_ready());
    }
}

#[test]
fn a_removed_model_is_remembered_as_unloaded_and_handed_over_to_be_retired() {
    let scene = version(1);
    let registry = serving(&scene);
    scene.plug();
    let removed = registry.remove("echo");
    assert_eq!(removed.len(), 1);
    assert_eq!(registry.rows(), [row(Some(1), State::Draining, "")]);
    let refused = [found(&registry, None), found(&registry, Some(1))].map(Result::err);
    let no_version = "Request for unknown model: 'echo' has no available versions";
    let not_ready = "Request for unknown model: 'echo' version 1 is not at ready state";
    assert_eq!(refused[0], Some((ErrorKind::ModelNotFound, no_version.into())));
    assert_eq!(refused[1], Some((ErrorKind::ModelUnavailable, not_ready.into())));
    scene.puppet.release_all();
    assert!(removed[0].retire(PATIENCE));
    assert_eq!(registry.rows(), [row(Some(1), State::Unloaded, "unloaded")]);
    assert!(registry.all_ready());
    assert!(registry.remove("echo").is_empty());
    assert!(registry.remove("other").is_empty());
    assert_eq!(registry.rows().len(), 1);
}

#[test]
fn a_version_that_a_reload_leaves_out_is_unloaded() {
    let (one, two) = (version(1), version(2));
    let registry = serving(&one);
    let replaced = registry.publish("echo", vec![two.runner.clone()]);
    assert!(replaced[0].retire(PATIENCE));
    let rows = [row(Some(1), State::Unloaded, "unloaded"), row(Some(2), State::Ready, "")];
    assert_eq!(registry.rows(), rows);
    assert!(registry.all_ready());
}

#[test]
fn what_a_failed_load_announced_is_withdrawn() {
    let registry = Registry::default();
    registry.announce("echo", 1);
    registry.announce("echo", 2);
    registry.fail("echo", Some(2), "broken");
    registry.withdraw("echo");
    let rows = [row(Some(1), State::Unloaded, "unloaded"), row(Some(2), State::Failed, "broken")];
    assert_eq!(registry.rows(), rows);
}

#[test]
fn a_load_that_fails_after_an_unload_is_the_reason_of_the_version() {
    let scene = version(1);
    let registry = serving(&scene);
    scene.plug();
    let removed = registry.remove("echo");
    registry.fail("echo", None, "broken");
    let rows = [row(None, State::Failed, "broken"), row(Some(1), State::Draining, "")];
    assert_eq!(registry.rows(), rows, "it finishes what it began");
    scene.puppet.release_all();
    assert!(removed[0].retire(PATIENCE));
    for reason in ["broken", "broken in another way"] {
        registry.fail("echo", None, reason);
        assert_eq!(registry.rows(), [row(Some(1), State::Failed, reason)]);
        assert!(!registry.all_ready());
    }
    assert!(registry.remove("echo").is_empty());
    assert_eq!(registry.rows(), [row(Some(1), State::Unloaded, "unloaded")]);
}

#[test]
fn a_load_that_fails_beside_a_version_that_serves_leaves_the_others_as_they_were() {
    let (one, two) = (version(1), version(2));
    let registry = serving(&one);
    assert!(registry.publish("echo", vec![two.runner.clone()])[0].retire(PATIENCE));
    registry.fail("echo", None, "broken");
    let rows = [row(Some(1), State::Unloaded, "unloaded"), row(Some(2), State::Ready, "")];
    assert_eq!(registry.rows(), rows);
}

#[test]
fn a_version_that_is_to_come_back_says_why_it_went_and_is_not_missed() {
    let one = version(1);
    let registry = serving(&one);
    registry.suspend("echo", 1, "it serves");
    assert_eq!(registry.rows(), [row(Some(1), State::Ready, "")]);
    for replaced in registry.remove("echo") {
        assert!(replaced.retire(PATIENCE));
    }
    registry.suspend("echo", 1, "it waits for another one");
    assert_eq!(registry.rows(), [row(Some(1), State::Unloaded, "it waits for another one")]);
    assert!(registry.all_ready());
    assert_eq!(
        found(&registry, Some(1)).map(drop).map_err(|(kind, _)| kind),
        Err(ErrorKind::ModelUnavailable)
    );
    registry.announce("echo", 1);
    assert_eq!(registry.rows(), [row(Some(1), State::Loading, "")]);
}

#[test]
fn a_note_is_beside_what_serves_and_makes_nothing_of_what_is_not_there() {
    let one = version(1);
    let registry = serving(&one);
    registry.note("echo", "its store does not answer");
    registry.note("other", "its store does not answer");
    assert_eq!(registry.rows(), [row(Some(1), State::Ready, "its store does not answer")]);
    assert!(registry.all_ready());
    registry.note("echo", "");
    assert_eq!(registry.rows(), [row(Some(1), State::Ready, "")]);
}

fn routes(labels: &[(&str, u64)], weights: &[(u64, f64)]) -> VersionRoutes {
    let labels = labels.iter().map(|&(label, version)| (label.to_owned(), version)).collect();
    RoutesSpec { labels, weights: weights.iter().copied().collect(), sticky: None }.into()
}

#[test]
fn a_label_is_another_name_of_a_version_until_the_model_says_otherwise() {
    let (one, two) = (version(1), version(2));
    let registry = serving(&one);
    let label = |label: &str| AskedVersion::Label(label.into());
    let finds = |asked: &str, scene: &Scene| {
        registry.find("echo", &label(asked)).is_ok_and(|runner| Arc::ptr_eq(&runner, &scene.runner))
    };
    let refused = |model: &str, asked: &str| {
        let error = registry.find(model, &label(asked)).err();
        error.map(|error| (error.kind, error.message.into_owned()))
    };
    let no_number = |asked: &str| {
        let text = format!(
            "failed to get model version from specified version string '{asked}' (details: stol), version should be \
             an integral value > 0"
        );
        Some((ErrorKind::InvalidInput, text))
    };
    assert_eq!(refused("echo", "stable"), no_number("stable"));
    assert_eq!(refused("other", "stable"), no_number("stable"));
    let labels = [("stable", 1), ("canary", 2)];
    let new = vec![two.runner.clone()];
    assert!(registry.publish_beside("echo", new, &[1], Some(routes(&labels, &[]))).is_empty());
    assert!(finds("stable", &one) && finds("canary", &two));
    let text = "model 'echo' has no version 'b': expected a number or one of its labels, 'canary', 'stable'";
    assert_eq!(refused("echo", "b"), Some((ErrorKind::ModelNotFound, text.into())));
    let labels = [("stable", 2)];
    assert!(registry.publish_beside("echo", Vec::new(), &[1, 2], Some(routes(&labels, &[]))).is_empty());
    assert!(finds("stable", &two) && !finds("canary", &two));
}

#[test]
fn weights_are_for_requests_and_not_for_what_is_asked_about_a_model() {
    let (one, two) = (version(1), version(2));
    let registry = Registry::default();
    let new = vec![one.runner.clone(), two.runner.clone()];
    assert!(registry.publish_beside("echo", new, &[], Some(routes(&[], &[(1, 1.0)]))).is_empty());
    assert!(finds(&registry, None, &two));
    let request = registry.route("echo", &AskedVersion::Any, |_| Some(1));
    assert!(request.is_ok_and(|runner| Arc::ptr_eq(&runner, &one.runner)));
    let pinned = registry.route("echo", &AskedVersion::Number(2), |_| Some(1));
    assert!(pinned.is_ok_and(|runner| Arc::ptr_eq(&runner, &two.runner)));
}

#[test]
fn a_version_that_is_kept_stays_as_it_is_beside_those_that_come_and_go() {
    let (one, two, seven) = (version(1), version(2), version(7));
    let registry = Registry::default();
    assert!(registry.publish("echo", vec![one.runner.clone(), two.runner.clone()]).is_empty());
    let replaced = registry.publish_beside("echo", vec![seven.runner.clone()], &[2], None);
    assert!(replaced.len() == 1 && Arc::ptr_eq(&replaced[0], &one.runner));
    assert!(finds(&registry, Some(2), &two) && finds(&registry, None, &seven));
    assert!(replaced[0].retire(PATIENCE));
    let unloaded = row(Some(1), State::Unloaded, "unloaded");
    assert_eq!(registry.rows(), [unloaded, row(Some(2), State::Ready, ""), row(Some(7), State::Ready, "")]);
    assert!(registry.publish_beside("echo", Vec::new(), &[2, 7], None).is_empty());
    assert!(registry.all_ready());
}

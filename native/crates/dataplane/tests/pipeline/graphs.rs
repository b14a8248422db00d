//! What an ensemble may be made of.

use std::sync::Arc;

use kushi_core::{ErrorKind, ModelSpec, Parameter, Request, Runner, RunnerOptions};
use kushi_dataplane::{RoutesSpec, StepSpec};
use kushi_testkit::{Scene, int32};

use crate::site::{Site, chain, lead, model, step, value};

fn batches(site: &Site, model: &str) -> usize {
    site.scene(model).puppet.seen().len()
}

/// One row of these values at each output.
#[track_caller]
fn gives(site: &Site, key: u64, expected: &[i32]) {
    let answer = site.letters.answer(key);
    assert_eq!(answer.error(), None);
    let outputs = answer.responses[0].outputs.iter();
    assert_eq!(outputs.map(|(_, tensor)| value(tensor.data.as_bytes())).collect::<Vec<_>>(), expected);
}

/// `left` and `right` run beside one another, and `join` with what both have made.
fn diamond() -> (Site, Arc<Runner>) {
    let mut site = Site::new([
        model("left", &["A"], &["B"]),
        model("right", &["A"], &["B"]),
        model("join", &["A", "B"], &["C", "D"]),
    ]);
    let steps = [
        step("join", &[("A", "l"), ("B", "r")], &[("C", "x"), ("D", "y")]),
        step("left", &[("A", "in")], &[("B", "l")]),
        step("right", &[("A", "other")], &[("B", "r")]),
    ];
    let ensemble = site.ensemble(model("ensemble", &["in", "other"], &["x", "y", "r"]), &steps);
    (site, ensemble)
}

#[test]
fn branches_run_beside_one_another() {
    let (site, ensemble) = diamond();
    site.scene("left").puppet.hold();
    site.scene("right").puppet.hold();
    lead(&ensemble, site.request(1, &[Some(10), Some(20)]));
    site.scene("left").puppet.await_batches(1);
    site.scene("right").puppet.await_batches(1);
    assert_eq!(batches(&site, "join"), 0);
    site.scene("right").puppet.release_all();
    site.scene("left").puppet.release_all();
    gives(&site, 1, &[10, 20, 20]);
    assert_eq!(batches(&site, "join"), 1);
}

#[test]
fn steps_that_nobody_needs_are_not_run() {
    let (site, ensemble) = diamond();
    let wanted = [2].into_iter().collect();
    lead(&ensemble, Request { wanted, ..site.request(1, &[Some(10), Some(20)]) });
    gives(&site, 1, &[20]);
    assert_eq!(["left", "right", "join"].map(|name| batches(&site, name)), [0, 1, 0]);
}

#[test]
fn an_optional_input_that_is_left_out_is_left_out_of_its_steps() {
    let optional = |mut spec: ModelSpec| {
        spec.inputs[1].optional = true;
        spec
    };
    let mut site =
        Site::new([optional(model("both", &["A", "B"], &["C", "D"])), model("one", &["A"], &["B"])]);
    let steps =
        [step("both", &[("A", "a"), ("B", "b")], &[("C", "c")]), step("one", &[("A", "c")], &[("B", "d")])];
    let ensemble = site.ensemble(optional(model("ensemble", &["a", "b"], &["d"])), &steps);
    lead(&ensemble, site.request(1, &[Some(10), None]));
    gives(&site, 1, &[10]);
    lead(&ensemble, site.request(2, &[Some(10), Some(20)]));
    gives(&site, 2, &[10]);
    let addresses =
        site.scene("both").puppet.seen().iter().map(|batch| batch.addresses.len()).collect::<Vec<_>>();
    assert_eq!(addresses, [1, 2]);
}

#[test]
fn a_step_that_needs_what_was_left_out_says_what_it_misses() {
    let mut site = Site::new([model("one", &["A"], &["B"])]);
    let mut spec = model("ensemble", &["a"], &["b"]);
    spec.inputs[0].optional = true;
    let ensemble = site.ensemble(spec, &[step("one", &[("A", "a")], &[("B", "b")])]);
    lead(&ensemble, site.request(1, &[None]));
    let error = site.error(1);
    assert_eq!(error.kind, ErrorKind::InvalidInput);
    let text = "in ensemble 'ensemble', [request id: 1] expected 1 inputs but got 0 inputs for model 'one'.";
    assert!(error.message.starts_with(text), "{error}");
}

#[test]
fn ensembles_are_steps_of_ensembles() {
    let mut site = Site::new(["a", "b"].map(|name| model(name, &["INPUT"], &["OUTPUT"])));
    site.earn_inline();
    let inner = model("inner", &["INPUT"], &["OUTPUT"]);
    let steps = [
        step("a", &[("INPUT", "INPUT")], &[("OUTPUT", "between")]),
        step("b", &[("INPUT", "between")], &[("OUTPUT", "OUTPUT")]),
    ];
    site.ensemble(inner, &steps);
    let outer = site.chained(&["b", "inner", "a", "inner"]);
    for key in 0..20 {
        site.ask(&outer, key);
    }
    for key in 0..20 {
        assert_eq!(site.value(key), key as i32);
    }
}

#[test]
fn a_step_may_name_a_version() {
    let version =
        |number| Scene::without_drivers(ModelSpec { version: number, ..model("m", &["INPUT"], &["OUTPUT"]) });
    let (one, two) = (version(1), version(2));
    let mut site = Site::new([]);
    let _ = site.plane.registry.publish("m", vec![one.runner.clone(), two.runner.clone()]);
    let tensors = (&[("INPUT", "0")], &[("OUTPUT", "1")]);
    let pinned = StepSpec { version: Some(1), ..step("m", tensors.0, tensors.1) };
    for (steps, expected) in [([pinned], [1, 0]), ([step("m", tensors.0, tensors.1)], [1, 1])] {
        let ensemble = site.ensemble(model("ensemble", &["0"], &["1"]), &steps);
        site.ask(&ensemble, 7);
        assert_eq!(site.value(7), 7);
        assert_eq!([&one, &two].map(|scene| scene.puppet.seen().len()), expected);
    }
}

#[test]
fn the_versions_of_a_step_share_its_requests_and_one_request_meets_one_version() {
    let version =
        |number| Scene::without_drivers(ModelSpec { version: number, ..model("m", &["INPUT"], &["OUTPUT"]) });
    let scenes = [1, 2].map(version);
    let mut site = Site::new([]);
    let runners = scenes.iter().map(|scene| scene.runner.clone()).collect();
    let weights = [(1, 1.0), (2, 3.0)].into();
    let routes = RoutesSpec { weights, sticky: Some("user".into()), ..RoutesSpec::default() };
    let _ = site.plane.registry.publish_beside("m", runners, &[], Some(routes.into()));
    let ensemble = site.chained(&["m", "m"]);
    let seen = || [0, 1].map(|at: usize| scenes[at].puppet.seen().len());
    for key in 0..40 {
        let before = seen();
        site.ask(&ensemble, key);
        assert_eq!(site.value(key), key as i32);
        let grown = [0, 1].map(|at| seen()[at] - before[at]);
        assert!(grown == [2, 0] || grown == [0, 2], "{grown:?}");
    }
    assert!(seen()[0].abs_diff(20) <= 4, "{:?}", seen());
    let before = seen();
    for key in 40..50 {
        let mut request = site.request(key, &[Some(1)]);
        request.parameters.push(("user".into(), Parameter::String("somebody".into())));
        lead(&ensemble, request);
        assert_eq!(site.value(key), 1);
    }
    let grown = [0, 1].map(|at| seen()[at] - before[at]);
    assert!(grown == [20, 0] || grown == [0, 20], "{grown:?}");
}

#[test]
fn a_row_comes_or_goes_where_one_of_two_models_has_no_batch_dimension() {
    let plain =
        |name: &str| ModelSpec { max_batch_size: 0, batching: None, ..model(name, &["INPUT"], &["OUTPUT"]) };
    let mut site = Site::new([plain("plain"), model("batched", &["INPUT"], &["OUTPUT"])]);
    let steps = chain(&["plain", "batched", "plain"]);
    let ensemble = site.ensemble(ModelSpec { name: "ensemble".into(), ..ends("0", "3") }, &steps);
    lead(&ensemble, site.request_of(1, [Some(int32(&[1, 2], [5, 6]))]));
    let answer = site.letters.answer(1);
    assert_eq!(answer.error(), None);
    assert_eq!(answer.responses[0].outputs[0].1.shape.as_slice(), [1, 2]);
}

#[test]
fn its_steps_see_its_tensors_reshaped() {
    let mut site = Site::new([model("echo", &["INPUT"], &["OUTPUT"])]);
    let mut spec = ends("0", "1");
    spec.inputs[0].reshape = Some(vec![-1]);
    spec.outputs[0].dims = vec![-1, 1];
    spec.outputs[0].reshape = Some(vec![-1]);
    spec.inputs[0].dims = vec![1, -1];
    let ensemble = site.ensemble(spec, &chain(&["echo"]));
    lead(&ensemble, site.request_of(1, [Some(int32(&[1, 1, 3], [5, 6, 7]))]));
    let answer = site.letters.answer(1);
    assert_eq!(answer.error(), None);
    assert_eq!(answer.responses[0].outputs[0].1.shape.as_slice(), [1, 3, 1]);
}

#[test]
fn classes_are_called_as_the_model_of_the_step_calls_them_until_another_takes_its_place() {
    let named = |label: &str| {
        let mut spec = model("named", &["INPUT"], &["OUTPUT", "MORE"]);
        spec.outputs[0].labels = vec![label.to_owned()].into();
        spec
    };
    let mut site = Site::new([named("cat")]);
    let steps = [step("named", &[("INPUT", "0")], &[("OUTPUT", "1")])];
    let inner = site.ensemble(ModelSpec { name: "inner".into(), ..ends("0", "1") }, &steps);
    let steps = [step("inner", &[("0", "0")], &[("1", "1")])];
    let outer = site.ensemble(ends("0", "1"), &steps);
    for (label, ensemble) in [("cat", &inner), ("cat", &outer), ("dog", &outer), ("bird", &inner)] {
        site.serve(Scene::without_drivers(named(label)));
        site.ask(ensemble, 1);
        let mut answer = site.letters.answer(1);
        let classes = ensemble.spec().classes([("1", 1)].into_iter()).unwrap();
        classes.choose(ensemble.spec(), &mut answer.responses[0]).unwrap();
        let text = format!("1:0:{label}");
        let best = answer.responses[0].outputs[0].1.data.as_bytes();
        assert_eq!(&best[4..], text.as_bytes());
    }
}

#[test]
fn what_an_inner_ensemble_calls_its_classes_itself_stands() {
    let mut named = model("named", &["INPUT"], &["OUTPUT"]);
    named.outputs[0].labels = vec!["cat".to_owned()].into();
    let mut site = Site::new([named]);
    let mut inner = ModelSpec { name: "inner".into(), ..ends("0", "1") };
    inner.outputs[0].labels = vec!["own".to_owned()].into();
    site.ensemble(inner, &chain(&["named"]));
    let outer = site.ensemble(ends("0", "1"), &[step("inner", &[("0", "0")], &[("1", "1")])]);
    site.ask(&outer, 1);
    let mut answer = site.letters.answer(1);
    let classes = outer.spec().classes([("1", 1)].into_iter()).unwrap();
    classes.choose(outer.spec(), &mut answer.responses[0]).unwrap();
    assert_eq!(&answer.responses[0].outputs[0].1.data.as_bytes()[4..], b"1:0:own");
}

fn ends(input: &str, output: &str) -> ModelSpec {
    model("ensemble", &[input], &[output])
}

#[test]
fn a_shape_that_does_not_fit_the_next_step_is_that_requests_error() {
    let mut narrow = model("narrow", &["INPUT"], &["OUTPUT"]);
    narrow.inputs[0].dims = vec![3];
    let mut site = Site::new([model("wide", &["INPUT"], &["OUTPUT"]), narrow]);
    let ensemble = site.chained(&["wide", "narrow"]);
    site.ask(&ensemble, 1);
    let error = site.error(1);
    let text = "in ensemble 'ensemble', [request id: 1] unexpected shape for input 'INPUT' for model 'narrow'. \
                Expected [-1,3], got [1,1].";
    assert!(error.kind == ErrorKind::InvalidInput && error.message.starts_with(text), "{error}");
    assert_eq!(batches(&site, "narrow"), 0);
}

/// `first` gives no `MORE`: a puppet has no second output to echo.
fn without_more(second: ModelSpec, inputs: &[(&str, &str)], output: &str) -> (Site, Arc<Runner>) {
    let mut site = Site::new([model("first", &["INPUT"], &["OUTPUT", "MORE"]), second]);
    let steps = [
        step("first", &[("INPUT", "a")], &[("OUTPUT", "b"), ("MORE", "more")]),
        step("second", inputs, &[("OUTPUT", "c")]),
    ];
    let ensemble = site.ensemble(ends("a", output), &steps);
    (site, ensemble)
}

#[test]
fn an_output_that_a_step_does_not_give_is_left_out_of_the_next_ones_inputs() {
    let mut second = model("second", &["INPUT", "OPTIONAL"], &["OUTPUT"]);
    second.inputs[1].optional = true;
    let (site, ensemble) = without_more(second, &[("INPUT", "b"), ("OPTIONAL", "more")], "c");
    site.ask(&ensemble, 1);
    assert_eq!(site.value(1), 1);
}

#[test]
fn an_input_that_no_step_has_given_is_that_requests_error() {
    let (site, ensemble) = without_more(model("second", &["INPUT"], &["OUTPUT"]), &[("INPUT", "more")], "c");
    site.ask(&ensemble, 1);
    let error = site.error(1);
    let text = "in ensemble 'ensemble', [request id: 1] expected 1 inputs but got 0 inputs for model 'second'. Got \
                input(s) [], but missing required input(s) ['INPUT'].";
    assert!(error.kind == ErrorKind::InvalidInput && error.message.starts_with(text), "{error}");
}

#[test]
fn an_output_that_no_step_has_given_is_that_requests_error() {
    let (site, ensemble) = without_more(model("second", &["INPUT"], &["OUTPUT"]), &[("INPUT", "b")], "more");
    site.ask(&ensemble, 1);
    let error = site.error(1);
    let text = "in ensemble 'ensemble', [request id: 1] unexpected deadlock, at least one output is not set while no \
                more ensemble steps can be made";
    assert_eq!((error.kind, &*error.message), (ErrorKind::InvalidInput, text));
}

#[test]
fn a_graph_that_leads_nowhere_is_refused() {
    let site = Site::new([model("m", &["INPUT"], &["OUTPUT"])]);
    for (steps, text) in [
        (vec![step("m", &[("INPUT", "a")], &[("OUTPUT", "b")])], "nothing makes tensor 'c'"),
        (vec![step("m", &[("INPUT", "a")], &[("OUTPUT", "c")]); 2], "an output of step 'm' is made twice"),
        (vec![step("m", &[], &[("OUTPUT", "c")])], "step 'm' has no input"),
    ] {
        let error = site.plane.start_ensemble(ends("a", "c"), &steps, RunnerOptions::default()).err();
        let error = error.unwrap_or_else(|| panic!("not refused: {text}"));
        assert_eq!(
            (error.kind, error.to_string()),
            (ErrorKind::ConfigInvalid, format!("ensemble 'ensemble': {text}"))
        );
    }
}

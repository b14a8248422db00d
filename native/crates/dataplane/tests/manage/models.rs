//! What is asked of models.

use kushi_core::{DataType, ErrorKind, ModelSpec};
use kushi_dataplane::{AskedVersion, ModelMetadata, ModelStatistics, TensorMetadata, Verb, VerbAnswer};
use kushi_testkit::{Scene, echo_spec, tensor_spec};

use crate::site::{Site, version};

fn metadata(site: &Site, version: Option<u64>) -> ModelMetadata {
    match site.ask(Verb::ModelMetadata { model: "echo".into(), version: version.into() }) {
        Ok(VerbAnswer::ModelMetadata(metadata)) => metadata,
        other => panic!("{other:?}"),
    }
}

fn statistics(site: &Site, model: &str, version: Option<u64>) -> Vec<ModelStatistics> {
    match site.ask(Verb::ModelStatistics { model: model.into(), version: version.into() }) {
        Ok(VerbAnswer::ModelStatistics(statistics)) => statistics,
        other => panic!("{other:?}"),
    }
}

#[test]
fn metadata_has_the_shapes_that_clients_send() {
    let plain = ModelSpec {
        max_batch_size: 0,
        inputs: vec![tensor_spec("A", DataType::Fp32, &[2, -1]), tensor_spec("B", DataType::Bytes, &[])],
        outputs: vec![],
        batching: None,
        ..echo_spec()
    };
    let (site, batched, plain) = (Site::new(), version(1), Scene::new(plain));
    let tensor = |name: &str, datatype, shape: &[i64]| TensorMetadata {
        name: name.into(),
        datatype,
        shape: shape.into(),
    };
    site.serve("echo", [&batched]);
    let expected = ModelMetadata {
        name: "echo".into(),
        versions: vec![1],
        platform: "puppet".into(),
        inputs: vec![tensor("INPUT", DataType::Int32, &[-1, -1])],
        outputs: vec![tensor("OUTPUT", DataType::Int32, &[-1, -1])],
    };
    assert_eq!(metadata(&site, None), expected);
    site.serve("echo", [&plain]);
    let inputs = vec![tensor("A", DataType::Fp32, &[2, -1]), tensor("B", DataType::Bytes, &[])];
    assert_eq!(metadata(&site, None), ModelMetadata { inputs, outputs: vec![], ..expected });
}

#[test]
fn the_latest_version_names_all_that_are_ready_and_another_one_itself() {
    let (site, scenes) = (Site::new(), [1, 2, 3].map(version));
    site.serve("echo", &scenes);
    scenes[1].runner.stop_admitting();
    assert_eq!(metadata(&site, None).versions, [1, 3]);
    assert_eq!(metadata(&site, Some(2)).versions, [2]);
}

#[test]
fn a_model_is_ready_or_says_why_not() {
    let (site, scene) = (Site::new(), version(2));
    let ready =
        |model: &str, version: Option<u64>| Verb::ModelReady { model: model.into(), version: version.into() };
    site.serve("echo", [&scene]);
    site.plane.registry.announce("late", 1);
    for version in [None, Some(2)] {
        assert!(matches!(site.ask(ready("echo", version)), Ok(VerbAnswer::Health(true))));
    }
    for (verb, kind, text) in [
        (ready("other", None), ErrorKind::ModelNotFound, "'other' is not found"),
        (ready("echo", Some(1)), ErrorKind::ModelNotFound, "'echo' version 1 is not found"),
        (ready("late", None), ErrorKind::ModelNotFound, "'late' has no available versions"),
        (ready("late", Some(1)), ErrorKind::ModelNotReady, "'late' version 1 is not at ready state"),
    ] {
        site.refuses(verb, kind, &format!("Request for unknown model: {text}"));
    }
}

#[test]
fn a_configuration_is_that_of_the_version() {
    let scenes = [1, 2].map(|version| {
        Scene::new(ModelSpec { version, config_json: format!("config of {version}"), ..echo_spec() })
    });
    let site = Site::new();
    site.serve("echo", &scenes);
    for (version, expected) in [(None::<u64>, "config of 2"), (Some(1), "config of 1")] {
        let verb = Verb::ModelConfig { model: "echo".into(), version: version.into() };
        let Ok(VerbAnswer::ModelConfig(config)) = site.ask(verb) else { panic!("no configuration") };
        assert_eq!(config.json, expected);
    }
}

#[test]
fn statistics_are_of_one_version_of_one_model_or_of_all() {
    let site = Site::new();
    let echoes = [1, 2].map(version);
    let other = Scene::new(ModelSpec { name: "other".into(), ..echo_spec() });
    site.serve("echo", &echoes);
    site.serve("other", [&other]);
    echoes[1].ask([7]);
    assert!(echoes[1].letters.answer(7).error().is_none());
    let counts = |model, version| -> Vec<(String, u64, u64)> {
        let rows = statistics(&site, model, version).into_iter();
        rows.map(|row| (row.name, row.version, row.counts.inference_count)).collect()
    };
    let row = |name: &str, version, count| (name.to_owned(), version, count);
    let all = [row("echo", 1, 0), row("echo", 2, 1), row("other", 1, 0)];
    assert_eq!(counts("echo", Some(2)), all[1..2]);
    assert_eq!(counts("echo", None), all[..2]);
    assert_eq!(counts("", None), all);
}

#[test]
fn there_are_no_statistics_of_what_does_not_serve() {
    let (site, scene) = (Site::new(), version(1));
    site.serve("echo", [&scene]);
    let statistics = |model: &str, version: u64| Verb::ModelStatistics {
        model: model.into(),
        version: AskedVersion::Number(version),
    };
    let text = "requested model 'other' is not available";
    site.refuses(statistics("other", 1), ErrorKind::InvalidInput, text);
    let text = "requested model version is not available for model 'echo'";
    site.refuses(statistics("echo", 9), ErrorKind::InvalidInput, text);
}

//! Whether the server lives, and is ready; what it says of itself.

use std::sync::Arc;

use kushi_core::ErrorKind;
use kushi_dataplane::{
    AskedVersion, DataPlane, DataPlaneOptions, InFlight, Overrides, Phase, Verb, VerbAnswer,
};

use crate::site::{INFLIGHT_BYTES, Site, options, version};

fn health(site: &Site, verb: Verb) -> bool {
    match site.ask(verb) {
        Ok(VerbAnswer::Health(well)) => well,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_starts_is_neither_live_nor_ready() {
    let plane = Arc::new(DataPlane::new(&options(), Box::new(InFlight::default)));
    let site = Site { plane };
    assert!(!health(&site, Verb::ServerLive) && !health(&site, Verb::ServerReady));
    site.plane.advance(Phase::Serving);
    assert!(health(&site, Verb::ServerLive) && health(&site, Verb::ServerReady));
}

#[test]
fn a_model_that_is_not_ready_counts_where_readiness_is_strict() {
    for strict_readiness in [true, false] {
        let site = Site::with(&DataPlaneOptions { strict_readiness, ..options() });
        site.plane.registry.announce("echo", 1);
        assert!(health(&site, Verb::ServerLive));
        assert_eq!(health(&site, Verb::ServerReady), !strict_readiness);
    }
}

#[test]
fn a_server_that_goes_away_says_so() {
    let (site, scene) = (Site::new(), version(1));
    site.serve("echo", [&scene]);
    site.plane.advance(Phase::Exiting);
    for verb in [Verb::ServerLive, Verb::ServerReady] {
        site.refuses(verb, ErrorKind::ShuttingDown, "Server exiting");
    }
    let text = "Server not ready";
    for model in ["echo", "other"] {
        let verb = Verb::ModelReady { model: model.into(), version: AskedVersion::Any };
        site.refuses(verb, ErrorKind::ShuttingDown, text);
    }
    site.refuses(
        Verb::ModelConfig { model: "other".into(), version: AskedVersion::Any },
        ErrorKind::ShuttingDown,
        text,
    );
    site.refuses(Verb::RepositoryIndex { ready_only: true }, ErrorKind::ShuttingDown, text);
    let load = Verb::RepositoryModelLoad { model: "m".into(), overrides: Overrides::default() };
    site.refuses(load, ErrorKind::ShuttingDown, text);
}

#[test]
fn a_server_tells_its_name_and_its_counts() {
    let site = Site::new();
    let Ok(VerbAnswer::ServerMetadata(metadata)) = site.ask(Verb::ServerMetadata) else {
        panic!("no metadata")
    };
    assert_eq!((&metadata, &*metadata.version), (&site.plane.metadata, "7.7"));
    let again = site.plane.perform(Verb::ServerMetadata, Box::new(|answer| assert!(answer.is_ok())));
    assert!(again.is_none(), "whether there are GPUs is known: nothing is left for another thread");
    let Ok(VerbAnswer::Metrics(text)) = site.ask(Verb::Metrics) else { panic!("no metrics") };
    assert!(text.contains(&format!("\nkushi_inflight_bytes {INFLIGHT_BYTES}\n")), "{text}");
}

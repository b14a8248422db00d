//! What is asked of one model: metadata, readiness, configuration, statistics.

use std::sync::Arc;

use kushi_core::{Error, ErrorKind, Runner, State};
use kushi_dataplane::{DataPlane, Phase};

use crate::manage::metadata;
use crate::manage::reply::Reply;
use crate::manage::route::{ModelRoute, VersionText};

pub(super) fn answer(
    plane: &DataPlane,
    name: &str,
    version: VersionText<'_>,
    what: ModelRoute,
) -> Result<Reply, Error> {
    let runner = match what {
        ModelRoute::Statistics => return statistics(plane, name, version),
        _ if what.is_inference() => {
            let text = format!("inference on model '{name}' is asked for where tensors travel, not here");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        _ => find(plane, name, version_number(version)?)?,
    };
    Ok(match what {
        ModelRoute::Ready if plane.phase() == Phase::Exiting => Reply::error(&not_ready()),
        ModelRoute::Ready => Reply::empty(200),
        ModelRoute::Config => Reply::json(runner.spec().config_json.clone()),
        _ => {
            let versions = match version {
                Some(_) => vec![runner.spec().version.to_string()],
                None => ready_versions(plane, name),
            };
            Reply::json(metadata::model(runner.spec(), &versions))
        }
    })
}

/// The runner that a request is for.
pub fn find(plane: &DataPlane, name: &str, version: Option<u64>) -> Result<Arc<Runner>, Error> {
    let found = plane.registry.find(name, version);
    if found.is_err() && plane.phase() == Phase::Exiting {
        // A model that is unloaded because the server closes is not an unknown one.
        return Err(not_ready());
    }
    found
}

/// A version as a client writes it.
pub fn version_number(version: VersionText<'_>) -> Result<Option<u64>, Error> {
    let Some(text) = version else { return Ok(None) };
    match text.parse::<i64>() {
        Ok(number) => Ok(Some(number.unsigned_abs())),
        Err(_) => Err(Error::invalid(format!(
            "failed to get model version from specified version string '{text}' (details: stol), version should be \
             an integral value > 0"
        ))),
    }
}

pub(super) fn not_ready() -> Error {
    Error::new(ErrorKind::ShuttingDown, "Server not ready")
}

fn ready_versions(plane: &DataPlane, name: &str) -> Vec<String> {
    let runners = plane.registry.runners();
    let of_model =
        runners.iter().filter(|runner| runner.spec().name == name && runner.state() == State::Ready);
    of_model.map(|runner| runner.spec().version.to_string()).collect()
}

fn statistics(plane: &DataPlane, name: &str, version: VersionText<'_>) -> Result<Reply, Error> {
    let number = version_number(version)?;
    let mut runners = plane.registry.runners();
    runners.retain(|runner| runner.spec().name == name);
    if runners.is_empty() {
        return Err(Error::invalid(format!("requested model '{name}' is not available")));
    }
    if let Some(number) = number {
        runners.retain(|runner| runner.spec().version == number);
        if runners.is_empty() {
            return Err(Error::invalid(format!(
                "requested model version is not available for model '{name}'"
            )));
        }
    }
    Ok(Reply::json(metadata::statistics(&runners)))
}

//! The repository: its index, and orders to load and unload.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kushi_core::{Error, ErrorKind, State, os_text};
use kushi_dataplane::Action;
use kushi_dataplane::VersionRow;
use kushi_dataplane::{DataPlane, Phase};

use crate::json::read::Value;
use crate::json::write;
use crate::manage::Begun;
use crate::manage::body::{Json, unreadable};
use crate::manage::models::not_ready;
use crate::manage::reply::Reply;
use crate::manage::route::Route;

pub(super) fn begin(plane: &Arc<DataPlane>, route: Route<'_>, body: &Bytes) -> Result<Begun, Error> {
    let (Route::Index { repository } | Route::Control { repository, .. }) = route else {
        return Ok(Begun::Done(Reply::not_found()));
    };
    if repository {
        let text = "'repository_name' specification is not supported";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let document = Json::parse(body)?;
    let Route::Control { name, action, .. } = route else {
        let ready_only = ready_only(document)?;
        check_serving(plane)?;
        let plane = plane.clone();
        return Ok(Begun::Slow(Box::new(move || index(&plane, ready_only))));
    };
    let parameters = document.and_then(|document| document.member("parameters"));
    let refused = match action {
        Action::Load => load_parameters(parameters)?,
        Action::Unload => unload_parameters(parameters)?,
    };
    check_serving(plane)?;
    if !plane.explicit_control {
        let text = "explicit model load / unload is not allowed if polling is enabled";
        return Err(Error::new(ErrorKind::ControlDisabled, text));
    }
    if let Some(parameter) = refused {
        let text = format!("load parameter '{parameter}' is not supported by this version");
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(Begun::Ordered(action, name.into_owned()))
}

fn check_serving(plane: &DataPlane) -> Result<(), Error> {
    if plane.phase() == Phase::Serving { Ok(()) } else { Err(not_ready()) }
}

/// Answers the first parameter that asks for something that does not exist here.
fn load_parameters(parameters: Option<Json<'_>>) -> Result<Option<String>, Error> {
    let Some(parameters) = parameters else { return Ok(None) };
    if parameters.value() != Value::Object {
        return Err(unreadable("attempt to get members for non-object"));
    }
    let mut refused = None;
    let mut fault = None;
    parameters.each(|name, value| {
        let text = if !matches!(value.value(), Value::String(_)) {
            "attempt to access JSON non-string as string"
        } else if name != "config" && !name.starts_with("file:") {
            "unexpected error on creating Triton parameter"
        } else {
            refused.get_or_insert_with(|| name.to_owned());
            return;
        };
        fault.get_or_insert(text);
    });
    fault.map_or(Ok(refused), |text| Err(unreadable(text)))
}

/// Models that depend on others do not exist here: `unload_dependents` changes nothing.
fn unload_parameters(parameters: Option<Json<'_>>) -> Result<Option<String>, Error> {
    match parameters.and_then(|parameters| parameters.member("unload_dependents")).map(Json::value) {
        None | Some(Value::Bool(_)) => Ok(None),
        Some(_) => {
            let text = "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean";
            Err(unreadable(text))
        }
    }
}

fn ready_only(document: Option<Json<'_>>) -> Result<bool, Error> {
    match document.and_then(|document| document.member("ready")).map(Json::value) {
        None => Ok(false),
        Some(Value::Bool(ready)) => Ok(ready),
        Some(_) => Err(Error::invalid("Invalid value for 'ready': expected a boolean")),
    }
}

/// What the core knows, and by their names alone the models that are there to be loaded.
fn index(plane: &DataPlane, ready_only: bool) -> Reply {
    let there = names(plane);
    let mut models: BTreeMap<String, Vec<VersionRow>> = BTreeMap::new();
    for row in plane.registry.rows() {
        let gone = row.state == State::Unloaded && !there.contains_key(&row.model);
        if !gone && (!ready_only || row.state == State::Ready) {
            models.entry(row.model.clone()).or_default().push(row);
        }
    }
    if !ready_only {
        for (name, repositories) in there {
            let rows = models.entry(name.clone()).or_default();
            if rows.is_empty() && repositories > 1 {
                let reason = "model appears in two or more repositories".into();
                rows.push(VersionRow { model: name, version: None, state: State::Failed, reason });
            }
        }
    }
    let mut out = vec![b'['];
    for (name, rows) in &models {
        if rows.is_empty() {
            entry(&mut out, name, None);
        }
        for row in rows {
            entry(&mut out, name, Some(row));
        }
    }
    out.push(b']');
    Reply::json(out)
}

fn entry(out: &mut Vec<u8>, name: &str, row: Option<&VersionRow>) {
    out.extend_from_slice(if out.len() > 1 { b",{\"name\":" } else { b"{\"name\":" });
    write::string(out, name.as_bytes());
    if let Some(row) = row {
        if let Some(version) = row.version {
            out.extend_from_slice(b",\"version\":\"");
            write::integer(out, version);
            out.push(b'"');
        }
        out.extend_from_slice(b",\"state\":");
        write::string(out, row.state.index_name().as_bytes());
        if !row.reason.is_empty() {
            out.extend_from_slice(b",\"reason\":");
            write::string(out, row.reason.as_bytes());
        }
    }
    out.push(b'}');
}

/// The models that lie in the repositories, and in how many of them. A repository that is gone has none: what was
/// loaded from it serves all the same.
fn names(plane: &DataPlane) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for repository in &plane.repositories {
        let found = models_in(repository).unwrap_or_else(|error| {
            let (path, error) = (repository.display(), os_text(&error));
            let text = || format!("model repository '{path}' cannot be read: {error}");
            plane.complaints.warn("repository", text);
            Vec::new()
        });
        for name in found {
            *names.entry(name).or_default() += 1;
        }
    }
    names
}

/// A repository is a directory of models, or one model file that goes by its stem.
fn models_in(repository: &Path) -> io::Result<Vec<String>> {
    if !repository.metadata()?.is_dir() {
        return Ok(repository.file_stem().map(|stem| stem.to_string_lossy().into()).into_iter().collect());
    }
    let mut names = Vec::new();
    for found in fs::read_dir(repository)? {
        let found = found?;
        let name = found.file_name().to_string_lossy().into_owned();
        // Through links: a model may be one.
        if !name.starts_with('.') && found.path().is_dir() {
            names.push(name);
        }
    }
    Ok(names)
}

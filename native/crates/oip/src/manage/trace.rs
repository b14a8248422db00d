//! The settings of traces, of all models and of single ones.
//!
//! There are no traces yet: what can be set is kept and told, and the level stays `OFF`.

use kushi_core::{Error, ErrorKind, State};
use kushi_dataplane::{DataPlane, TraceSetting};

use crate::json::read::Value;
use crate::leading_integer;
use crate::manage::body::Json;
use crate::manage::reply::Reply;

/// The settings in effect, after a change if `body` has one. `model`: empty for all.
pub(super) fn answer(plane: &DataPlane, model: &str, change: Option<&[u8]>) -> Result<Reply, Error> {
    let serves = || plane.registry.find(model, None).is_ok_and(|runner| runner.state() == State::Ready);
    if !model.is_empty() && !serves() {
        return Err(Error::invalid(format!("Request for unknown model : {model}")));
    }
    let document = change.map(Json::required).transpose()?;
    let change = |stated| document.map_or(Ok(stated), |document| changed(stated, document));
    let TraceSetting { rate, count, log_frequency } = plane.traces.change(model, change)?;
    let (rate, count, log_frequency) =
        (rate.unwrap_or(1000), count.unwrap_or(-1), log_frequency.unwrap_or(0));
    Ok(Reply::json(format!(
        "{{\"trace_level\":[\"OFF\"],\"trace_rate\":\"{rate}\",\"trace_count\":\"{count}\",\
         \"log_frequency\":\"{log_frequency}\",\"trace_file\":\"\",\"trace_mode\":\"triton\"}}"
    )))
}

/// In the order of Triton's checks; null takes a setting back.
fn changed(mut setting: TraceSetting, document: Json<'_>) -> Result<TraceSetting, Error> {
    if document.member("trace_file").is_some() {
        let text = "trace file location can not be updated through network protocol";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let wanted = document.member("trace_level").map_or(Ok(None), level)?;
    let range = (u32::MIN.into(), u32::MAX.into());
    if let Some(value) = document.member("trace_rate") {
        // Triton reads all numbers as signed ones of 32 bits.
        setting.rate = number("trace_rate", value, range)?.map(i32::cast_unsigned);
    }
    if let Some(value) = document.member("trace_count") {
        setting.count = number("trace_count", value, (-1, i32::MAX.into()))?;
        if let Some(count) = setting.count.filter(|&count| count < -1) {
            let text = format!("Unable to parse 'trace_count'. Expecting value >= -1, got:{count}");
            return Err(Error::invalid(text));
        }
    }
    if let Some(value) = document.member("log_frequency") {
        setting.log_frequency = number("log_frequency", value, range)?.map(i32::cast_unsigned);
    }
    match wanted {
        None => Ok(setting),
        Some(level) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("trace_level '{level}' is not supported by this version, expected 'OFF'"),
        )),
    }
}

/// The level that would turn traces on, if there is one.
fn level(value: Json<'_>) -> Result<Option<String>, Error> {
    if value.value() == Value::Null {
        return Ok(None);
    }
    let levels = value.elements()?;
    let mut wanted = None;
    for level in &levels {
        match &*level.text()? {
            "OFF" if levels.len() > 1 => {
                return Err(Error::invalid("Expect only one trace level 'OFF' is specified"));
            }
            level @ ("TIMESTAMPS" | "TENSORS") => wanted = Some(level.to_owned()),
            _ => {}
        }
    }
    Ok(wanted)
}

fn number(name: &str, value: Json<'_>, (least, most): (i64, i64)) -> Result<Option<i32>, Error> {
    if value.value() == Value::Null {
        return Ok(None);
    }
    let text = value.text()?;
    let Some(number) = leading_integer(&text) else {
        return Err(Error::invalid(format!("Unable to parse '{name}', got: {text}")));
    };
    i32::try_from(number).map(Some).map_err(|_| {
        Error::invalid(format!(
            "Unable to parse '{name}', value is out of range [ {least}, {most} ], got: {text}"
        ))
    })
}

//! Changes of the settings of the log and of traces. All of a change can be read, or none of it.

use kushi_core::{Error, ErrorKind};
use kushi_dataplane::{Change, LogChange, LogForm, TraceChange, TraceLevel};

use crate::document::Json;
use kushi_oip::json::read::Value;
use kushi_oip::leading_integer;

pub fn log_change(body: &[u8]) -> Result<LogChange, Error> {
    log_change_of(Json::required(body)?)
}

/// In the order of Triton's checks; null leaves a setting as it is.
pub(super) fn log_change_of(document: Json<'_>) -> Result<LogChange, Error> {
    let mut change = LogChange::default();
    if document.given("log_file").is_some() {
        let text = "log file location can not be updated through network protocol";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    for (name, switch) in [
        ("log_info", &mut change.info),
        ("log_warning", &mut change.warning),
        ("log_error", &mut change.error),
    ] {
        *switch = document.given(name).map(Json::boolean).transpose()?;
    }
    if let Some(level) = document.given("log_verbose_level") {
        // Triton takes the low 32 bits, and a negative number for none.
        change.verbose = Some((level.unsigned()? as i32).max(0).cast_unsigned());
    }
    if let Some(form) = document.given("log_format") {
        let name = form.text()?;
        let form = LogForm::named(&name).ok_or_else(|| {
            let text = format!("invalid argument for --log_format, got: {name}");
            Error::new(ErrorKind::UnknownLogFormat, text)
        })?;
        change.form = Some(form);
    }
    Ok(change)
}

pub fn trace_change(body: &[u8]) -> Result<TraceChange, Error> {
    trace_change_of(Json::required(body)?)
}

/// In the order of Triton's checks; null takes a setting back.
pub(super) fn trace_change_of(document: Json<'_>) -> Result<TraceChange, Error> {
    if document.member("trace_file").is_some() {
        let text = "trace file location can not be updated through network protocol";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let level = document.member("trace_level").map_or(Ok(Change::Keep), level)?;
    let mut change = TraceChange { level, ..TraceChange::default() };
    let range = (u32::MIN.into(), u32::MAX.into());
    let number = |name: &'static str, range| {
        document.member(name).map_or(Ok(Change::Keep), |value| number(name, value, range))
    };
    // Triton reads all numbers as signed ones of 32 bits.
    change.rate = unsigned(number("trace_rate", range)?);
    change.count = number("trace_count", (-1, i32::MAX.into()))?;
    if let Change::To(count @ ..-1) = change.count {
        let text = format!("Unable to parse 'trace_count'. Expecting value >= -1, got:{count}");
        return Err(Error::invalid(text));
    }
    change.log_frequency = unsigned(number("log_frequency", range)?);
    Ok(change)
}

/// Other words than these change nothing, as with Triton.
fn level(value: Json<'_>) -> Result<Change<TraceLevel>, Error> {
    if value.value() == Value::Null {
        return Ok(Change::Reset);
    }
    let levels = value.elements()?;
    let mut wanted = None;
    for name in &levels {
        match &*name.text()? {
            "OFF" if levels.len() > 1 => {
                return Err(Error::invalid("Expect only one trace level 'OFF' is specified"));
            }
            "OFF" => wanted = Some(TraceLevel::OFF),
            "TIMESTAMPS" => wanted.get_or_insert(TraceLevel::OFF).timestamps = true,
            "TENSORS" => wanted.get_or_insert(TraceLevel::OFF).tensors = true,
            _ => {}
        }
    }
    Ok(wanted.map_or(Change::Keep, Change::To))
}

fn number(name: &str, value: Json<'_>, (least, most): (i64, i64)) -> Result<Change<i32>, Error> {
    if value.value() == Value::Null {
        return Ok(Change::Reset);
    }
    let text = value.text()?;
    let Some(number) = leading_integer(&text) else {
        return Err(Error::invalid(format!("Unable to parse '{name}', got: {text}")));
    };
    i32::try_from(number).map(Change::To).map_err(|_| {
        Error::invalid(format!(
            "Unable to parse '{name}', value is out of range [ {least}, {most} ], got: {text}"
        ))
    })
}

fn unsigned(change: Change<i32>) -> Change<u32> {
    match change {
        Change::Keep => Change::Keep,
        Change::Reset => Change::Reset,
        Change::To(number) => Change::To(number.cast_unsigned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong<T>(read: Result<T, Error>) -> Option<(ErrorKind, String)> {
        read.err().map(|error| (error.kind, error.to_string()))
    }

    #[test]
    fn a_log_is_changed_where_something_is_said() {
        assert_eq!(log_change(br#"{"log_info":null,"log_file":null,"more":1}"#), Ok(LogChange::default()));
        let all = br#"{"log_info":true,"log_warning":false,"log_error":true,"log_verbose_level":2,
                       "log_format":"ISO8601"}"#;
        let expected = LogChange {
            verbose: Some(2),
            info: Some(true),
            warning: Some(false),
            error: Some(true),
            form: Some(LogForm::Iso),
        };
        assert_eq!(log_change(all), Ok(expected));
        for (level, verbose) in [("4294967295", 0), ("4294967297", 1)] {
            let change = log_change(format!(r#"{{"log_verbose_level":{level}}}"#).as_bytes());
            assert_eq!(change.map(|change| change.verbose), Ok(Some(verbose)));
        }
    }

    #[test]
    fn a_log_that_cannot_be_so_is_refused() {
        let bad_form = "invalid argument for --log_format, got: x";
        for (body, kind, text) in [
            (
                &br#"{"log_info":5,"log_file":""}"#[..],
                ErrorKind::Unsupported,
                "log file location can not be updated through network protocol",
            ),
            (
                b"",
                ErrorKind::UnreadableInput,
                "failed to parse the request JSON buffer: The document is empty. at 0",
            ),
            (
                br#"{"log_info":5}"#,
                ErrorKind::UnreadableInput,
                "attempt to access JSON non-boolean as boolean",
            ),
            (br#"{"log_format":"x"}"#, ErrorKind::UnknownLogFormat, bad_form),
        ] {
            assert_eq!(wrong(log_change(body)), Some((kind, text.into())));
        }
    }

    #[test]
    fn traces_are_changed_taken_back_or_left() {
        let body = br#"{"trace_rate":"7","trace_count":null,"trace_level":["OFF"]}"#;
        let level = Change::To(TraceLevel::OFF);
        let log_frequency = Change::Keep;
        let expected = TraceChange { level, rate: Change::To(7), count: Change::Reset, log_frequency };
        assert_eq!(trace_change(body), Ok(expected));
        for (levels, expected) in [
            ("null", Change::Reset),
            ("[]", Change::Keep),
            (r#"["LOUD"]"#, Change::Keep),
            (r#"["TIMESTAMPS"]"#, Change::To(TraceLevel { timestamps: true, tensors: false })),
            (r#"["TENSORS","TIMESTAMPS"]"#, Change::To(TraceLevel { timestamps: true, tensors: true })),
        ] {
            let body = format!(r#"{{"trace_level":{levels}}}"#);
            assert_eq!(trace_change(body.as_bytes()).map(|change| change.level), Ok(expected), "{levels}");
        }
        let change = trace_change(br#"{"log_frequency":"-1"}"#).map(|change| change.log_frequency);
        assert_eq!(change, Ok(Change::To(u32::MAX)));
    }

    #[test]
    fn traces_that_cannot_be_so_are_refused() {
        for (body, kind, text) in [
            (
                &br#"{"trace_file":null,"trace_rate":5}"#[..],
                ErrorKind::Unsupported,
                "trace file location can not be updated through network protocol",
            ),
            (
                br#"{"trace_level":["TIMESTAMPS"],"trace_rate":5}"#,
                ErrorKind::UnreadableInput,
                "attempt to access JSON non-string as string",
            ),
            (
                br#"{"trace_level":["OFF","OFF"]}"#,
                ErrorKind::InvalidInput,
                "Expect only one trace level 'OFF' is specified",
            ),
            (
                br#"{"trace_level":"OFF"}"#,
                ErrorKind::UnreadableInput,
                "attempt to access JSON non-array as array",
            ),
            (
                br#"{"trace_rate":"4294967296"}"#,
                ErrorKind::InvalidInput,
                "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 4294967296",
            ),
            (br#"{"trace_rate":"x"}"#, ErrorKind::InvalidInput, "Unable to parse 'trace_rate', got: x"),
            (
                br#"{"trace_count":"-2"}"#,
                ErrorKind::InvalidInput,
                "Unable to parse 'trace_count'. Expecting value >= -1, got:-2",
            ),
        ] {
            assert_eq!(wrong(trace_change(body)), Some((kind, text.into())));
        }
    }
}

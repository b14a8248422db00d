//! The settings of the log: what they are, and new ones. All of a change holds, or none of it.

use kushi_core::{Error, ErrorKind};
use kushi_dataplane::DataPlane;
use kushi_dataplane::{LogChange, LogForm, LogSettings};

use crate::json::read::Value;
use crate::json::write;
use crate::manage::body::Json;
use crate::manage::reply::Reply;

/// The settings in effect, after a change if `body` has one.
pub(super) fn answer(plane: &DataPlane, change: Option<&[u8]>) -> Result<Reply, Error> {
    let log = &plane.log;
    let settings = match change {
        Some(body) => log.change(wanted(Json::required(body)?)?),
        None => log.settings(),
    };
    let LogSettings { verbose, info, warning, error, form } = settings;
    let mut out = b"{\"log_file\":".to_vec();
    write::string(&mut out, log.file().as_bytes());
    for (name, on) in [("log_info", info), ("log_warning", warning), ("log_error", error)] {
        out.extend_from_slice(format!(",\"{name}\":{on}").as_bytes());
    }
    out.extend_from_slice(
        format!(",\"log_verbose_level\":{verbose},\"log_format\":\"{}\"}}", form.name()).as_bytes(),
    );
    Ok(Reply::json(out))
}

/// In the order of Triton's checks; null leaves a setting as it is.
fn wanted(document: Json<'_>) -> Result<LogChange, Error> {
    let mut change = LogChange::default();
    let member = |name| document.member(name).filter(|member| member.value() != Value::Null);
    if member("log_file").is_some() {
        let text = "log file location can not be updated through network protocol";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    for (name, switch) in [
        ("log_info", &mut change.info),
        ("log_warning", &mut change.warning),
        ("log_error", &mut change.error),
    ] {
        *switch = member(name).map(Json::boolean).transpose()?;
    }
    if let Some(level) = member("log_verbose_level") {
        // Triton takes the low 32 bits, and a negative number for none.
        change.verbose = Some((level.unsigned()? as i32).max(0).cast_unsigned());
    }
    if let Some(form) = member("log_format") {
        let name = form.text()?;
        let form = LogForm::named(&name).ok_or_else(|| {
            let text = format!("invalid argument for --log_format, got: {name}");
            Error::new(ErrorKind::UnknownLogFormat, text)
        })?;
        change.form = Some(form);
    }
    Ok(change)
}

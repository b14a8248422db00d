//! The settings of the log: what they are, and new ones. All of a change holds, or none of it.

use kushi_core::{Error, ErrorKind};

use crate::house::House;
use crate::json::read::Value;
use crate::json::write;
use crate::log_switch::{LogForm, LogSettings};
use crate::manage::body::Json;
use crate::manage::reply::Reply;

/// The settings in effect, after a change if `body` has one.
pub(super) fn answer(house: &House, change: Option<&[u8]>) -> Result<Reply, Error> {
    let log = &house.log;
    if let Some(body) = change {
        log.change(changed(log.settings(), Json::required(body)?)?);
    }
    let LogSettings { verbose, info, warning, error, form } = log.settings();
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
fn changed(mut settings: LogSettings, document: Json<'_>) -> Result<LogSettings, Error> {
    let member = |name| document.member(name).filter(|member| member.value() != Value::Null);
    if member("log_file").is_some() {
        let text = "log file location can not be updated through network protocol";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    for (name, switch) in [
        ("log_info", &mut settings.info),
        ("log_warning", &mut settings.warning),
        ("log_error", &mut settings.error),
    ] {
        if let Some(on) = member(name) {
            *switch = on.boolean()?;
        }
    }
    if let Some(level) = member("log_verbose_level") {
        // Triton takes the low 32 bits, and a negative number for none.
        settings.verbose = (level.unsigned()? as i32).max(0).cast_unsigned();
    }
    if let Some(form) = member("log_format") {
        let name = form.text()?;
        settings.form = LogForm::named(&name).ok_or_else(|| {
            let text = format!("invalid argument for --log_format, got: {name}");
            Error::new(ErrorKind::UnknownLogFormat, text)
        })?;
    }
    Ok(settings)
}

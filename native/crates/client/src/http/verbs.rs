//! Anything but inference: where the verbs are asked for over HTTP.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use kushi_core::{Error, ErrorKind};
use kushi_oip::json::{Scanner, Span, read, write};

use super::body::OutgoingBody;
use super::server::Server;
use super::{fault, path};
use crate::{Call, CallAnswer};

pub(super) async fn call(server: &Server, call: &Call) -> Result<CallAnswer, Error> {
    let AskedVerb { method, path, body } = asked(call)?;
    let turn = server.turn().await?;
    let has_body = !body.is_empty();
    let mut request = server.request(method, &path, OutgoingBody::new([body]))?;
    if has_body {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let reply = server.exchange(&turn, request).await;
    drop(turn);
    if matches!(&*call.verb, "RepositoryModelLoad" | "RepositoryModelUnload") {
        // The model may have other inputs now.
        server.inputs.forget();
    }
    let reply = reply?;
    let status = reply.status.as_u16();
    if reply.status.is_success() {
        return Ok(CallAnswer { status, kind: None, body: reply.body });
    }
    let refusal = fault::refusal(&server.address, &path, &reply);
    // As our own server writes it, whatever the other end has sent.
    let body = write::error(&refusal.message).into();
    Ok(CallAnswer { status, kind: Some(refusal.kind), body })
}

#[derive(Debug, PartialEq, Eq)]
struct AskedVerb {
    method: Method,
    path: String,
    body: Bytes,
}

/// Names are in the path; the rest of the arguments is the body.
fn asked(call: &Call) -> Result<AskedVerb, Error> {
    let mut arguments = Arguments::read(&call.arguments)?;
    Ok(match &*call.verb {
        "ServerLive" => get("/v2/health/live"),
        "ServerReady" => get("/v2/health/ready"),
        "ServerMetadata" => get("/v2"),
        "ModelReady" => get(arguments.model()? + "/ready"),
        "ModelMetadata" => get(arguments.model()?),
        "ModelConfig" => get(arguments.model()? + "/config"),
        "ModelStatistics" if arguments.is_empty("name")? => get("/v2/models/stats"),
        "ModelStatistics" => get(arguments.model()? + "/stats"),
        "RepositoryIndex" => post("/v2/repository/index", arguments.rest()),
        "RepositoryModelLoad" => post(arguments.repository_model()? + "/load", arguments.rest()),
        "RepositoryModelUnload" => post(arguments.repository_model()? + "/unload", arguments.rest()),
        "SystemSharedMemoryStatus" => get(arguments.region("system")? + "/status"),
        "SystemSharedMemoryRegister" => post(arguments.region("system")? + "/register", arguments.rest()),
        "SystemSharedMemoryUnregister" => post(arguments.region("system")? + "/unregister", arguments.rest()),
        "CudaSharedMemoryStatus" => get(arguments.region("cuda")? + "/status"),
        "CudaSharedMemoryRegister" => post(arguments.region("cuda")? + "/register", arguments.rest()),
        "CudaSharedMemoryUnregister" => post(arguments.region("cuda")? + "/unregister", arguments.rest()),
        "LogSettings" => settings("/v2/logging".into(), arguments.settings()),
        "TraceSetting" => settings(arguments.traces()?, arguments.settings()),
        "Metrics" => get("/metrics"),
        verb => return Err(Error::new(ErrorKind::Unsupported, format!("unknown verb '{verb}'"))),
    })
}

fn get(path: impl Into<String>) -> AskedVerb {
    AskedVerb { method: Method::GET, path: path.into(), body: Bytes::new() }
}

fn post(path: impl Into<String>, body: Bytes) -> AskedVerb {
    AskedVerb { method: Method::POST, path: path.into(), body }
}

fn settings(path: String, change: Option<Bytes>) -> AskedVerb {
    match change {
        None => get(path),
        Some(change) => post(path, change),
    }
}

/// The members of an object that have not been used yet.
struct Arguments<'a> {
    json: &'a Bytes,
    members: Vec<(String, Span)>,
}

impl<'a> Arguments<'a> {
    fn read(json: &'a Bytes) -> Result<Self, Error> {
        let mut members = Vec::new();
        if !json.is_empty() {
            let scanned = Scanner::new(json).document(|scanner| {
                if !scanner.is_object() {
                    return scanner.skip().map(drop);
                }
                scanner.object(|scanner, key| {
                    members.push((key.to_text(), scanner.skip()?));
                    Ok(())
                })
            });
            scanned
                .map_err(|fault| Error::invalid(format!("the arguments are no JSON: {}", fault.what())))?;
        }
        Ok(Self { json, members })
    }

    fn take(&mut self, name: &str) -> Option<Bytes> {
        let at = self.members.iter().position(|(known, _)| known == name)?;
        let (_, span) = self.members.remove(at);
        Some(self.json.slice(span))
    }

    /// Empty where it is not there.
    fn text(&mut self, name: &str) -> Result<String, Error> {
        match self.take(name) {
            None => Ok(String::new()),
            Some(json) => text(name, &json),
        }
    }

    fn is_empty(&self, name: &str) -> Result<bool, Error> {
        let given = self.members.iter().find(|(known, _)| known == name);
        given.map_or(Ok(true), |(_, span)| Ok(text(name, &self.json[span.clone()])?.is_empty()))
    }

    fn model(&mut self) -> Result<String, Error> {
        let (name, version) = (self.text("name")?, self.text("version")?);
        path::check_model(&name, &version)?;
        Ok(path::model(&name, &version))
    }

    fn repository_model(&mut self) -> Result<String, Error> {
        let name = self.text("model_name")?;
        path::check_model(&name, "")?;
        Ok(format!("/v2/repository/models/{}", path::segment(&name)))
    }

    /// All of them where none is named.
    fn region(&mut self, memory: &str) -> Result<String, Error> {
        let name = self.text("name")?;
        let region =
            if name.is_empty() { String::new() } else { format!("/region/{}", path::segment(&name)) };
        Ok(format!("/v2/{memory}sharedmemory{region}"))
    }

    /// Of all models where none is named.
    fn traces(&mut self) -> Result<String, Error> {
        let name = self.text("model_name")?;
        let model = if name.is_empty() { "/v2".into() } else { path::model(&name, "") };
        Ok(model + "/trace/setting")
    }

    /// A change, if there is one.
    fn settings(&mut self) -> Option<Bytes> {
        self.take("settings").filter(|settings| settings != "null")
    }

    /// What has not been used.
    fn rest(&self) -> Bytes {
        let mut out = vec![b'{'];
        for (name, span) in &self.members {
            if out.len() > 1 {
                out.push(b',');
            }
            write::string(&mut out, name.as_bytes());
            out.push(b':');
            out.extend_from_slice(&self.json[span.clone()]);
        }
        out.push(b'}');
        out.into()
    }
}

fn text(name: &str, json: &[u8]) -> Result<String, Error> {
    match read::value(json) {
        read::Value::String(raw) => Ok(read::text(raw).into_owned()),
        _ => Err(Error::invalid(format!("the argument '{name}' is no text"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(verb: &str, arguments: &str) -> Result<String, String> {
        let call = Call { verb: verb.into(), arguments: arguments.to_owned().into(), patience: None };
        let asked = asked(&call).map_err(|error| error.to_string())?;
        let body = String::from_utf8_lossy(&asked.body);
        Ok(format!("{} {} {body}", asked.method, asked.path).trim_end().to_owned())
    }

    #[test]
    fn a_verb_is_one_request() {
        for (verb, arguments, request) in [
            ("ServerLive", "", "GET /v2/health/live"),
            ("ServerReady", "{}", "GET /v2/health/ready"),
            ("ServerMetadata", "", "GET /v2"),
            ("Metrics", "", "GET /metrics"),
            ("ModelReady", r#"{"name":"m"}"#, "GET /v2/models/m/ready"),
            ("ModelMetadata", r#"{"name":"m","version":""}"#, "GET /v2/models/m"),
            (
                "ModelMetadata",
                r#"{"version":"1","name":"a/b c?#é%"}"#,
                "GET /v2/models/a%2Fb%20c%3F%23%C3%A9%25/versions/1",
            ),
            ("ModelConfig", r#"{"name":"m","version":"3"}"#, "GET /v2/models/m/versions/3/config"),
            ("ModelStatistics", r#"{"name":"","version":""}"#, "GET /v2/models/stats"),
            ("ModelStatistics", "", "GET /v2/models/stats"),
            ("ModelStatistics", r#"{"name":"m","version":"2"}"#, "GET /v2/models/m/versions/2/stats"),
            ("RepositoryIndex", "", "POST /v2/repository/index {}"),
            ("RepositoryIndex", r#"{"ready": true}"#, r#"POST /v2/repository/index {"ready":true}"#),
            ("RepositoryModelLoad", r#"{"model_name":"a b"}"#, "POST /v2/repository/models/a%20b/load {}"),
            (
                "RepositoryModelUnload",
                r#"{"model_name":"m","parameters":{"unload_dependents":true}}"#,
                r#"POST /v2/repository/models/m/unload {"parameters":{"unload_dependents":true}}"#,
            ),
            ("SystemSharedMemoryStatus", "", "GET /v2/systemsharedmemory/status"),
            ("CudaSharedMemoryStatus", r#"{"name":"r"}"#, "GET /v2/cudasharedmemory/region/r/status"),
            (
                "SystemSharedMemoryRegister",
                r#"{"name":"r","key":"/k","offset":0,"byte_size":8}"#,
                r#"POST /v2/systemsharedmemory/region/r/register {"key":"/k","offset":0,"byte_size":8}"#,
            ),
            (
                "CudaSharedMemoryRegister",
                r#"{"name":"r","device_id":0}"#,
                r#"POST /v2/cudasharedmemory/region/r/register {"device_id":0}"#,
            ),
            (
                "SystemSharedMemoryUnregister",
                r#"{"name":"a/b"}"#,
                "POST /v2/systemsharedmemory/region/a%2Fb/unregister {}",
            ),
            ("CudaSharedMemoryUnregister", "", "POST /v2/cudasharedmemory/unregister {}"),
            ("LogSettings", "", "GET /v2/logging"),
            ("LogSettings", r#"{"settings":{}}"#, "POST /v2/logging {}"),
            ("TraceSetting", r#"{"model_name":"","settings":null}"#, "GET /v2/trace/setting"),
            ("TraceSetting", r#"{"model_name":"a b"}"#, "GET /v2/models/a%20b/trace/setting"),
            (
                "TraceSetting",
                r#"{"model_name":"m","settings":{"trace_rate":null}}"#,
                r#"POST /v2/models/m/trace/setting {"trace_rate":null}"#,
            ),
        ] {
            assert_eq!(asks(verb, arguments).as_deref(), Ok(request), "{verb} {arguments}");
        }
    }

    #[test]
    fn what_has_no_path_is_not_asked() {
        for (verb, arguments, text) in [
            ("ModelInfer", "", "unknown verb 'ModelInfer'"),
            ("ModelReady", "", "Request for unknown model: '' is not found"),
            ("RepositoryModelLoad", "{}", "Request for unknown model: '' is not found"),
            ("ModelReady", r#"{"name":5}"#, "the argument 'name' is no text"),
            ("ModelStatistics", r#"{"name":[]}"#, "the argument 'name' is no text"),
            ("ServerLive", "?", "the arguments are no JSON: invalid value at byte 0"),
        ] {
            assert_eq!(asks(verb, arguments), Err(text.to_owned()), "{verb} {arguments}");
        }
        assert!(asks("ModelConfig", r#"{"name":"m","version":"1/x"}"#).is_err());
    }
}

//! Server reflection: clients without the protocol's files ask for what it is made of, as `grpcurl` does.
//!
//! The two versions of the service differ in name alone.

use bytes::Bytes;
use prost::{Message, Oneof};

use crate::answer::{self, Outlet, Stream};
use crate::closing::closing;
use crate::description::Description;
use crate::management;
use crate::message::Messages;
use crate::status::{INVALID_ARGUMENT, NOT_FOUND, Status, UNIMPLEMENTED};

impl Description {
    fn file(&self, name: &str) -> Answered {
        let file = self.files.get(name);
        let file = file.ok_or_else(|| Status::new(NOT_FOUND, format!("there is no file {name}")))?;
        Ok(ReflectionAnswer::Files(Files { descriptors: vec![file.clone()] }))
    }

    fn symbol(&self, symbol: &str) -> Answered {
        // A field or a method is found by what it belongs to.
        let file = self.symbols.get(symbol).or_else(|| self.symbols.get(symbol.rsplit_once('.')?.0));
        let file = file.ok_or_else(|| Status::new(NOT_FOUND, format!("there is no {symbol}")))?;
        self.file(file)
    }

    fn services(&self) -> ReflectionAnswer {
        let services = self.services.iter().map(|name| Service { name: name.clone() });
        ReflectionAnswer::Services(Services { services: services.collect() })
    }
}

type Answered = Result<ReflectionAnswer, Status>;

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(oneof = "ReflectionQuestion", tags = "3, 4, 5, 6, 7")]
    asked: Option<ReflectionQuestion>,
}

#[derive(Clone, PartialEq, Oneof)]
enum ReflectionQuestion {
    #[prost(string, tag = "3")]
    File(String),
    #[prost(string, tag = "4")]
    Symbol(String),
    #[prost(bytes = "bytes", tag = "5")]
    Extension(Bytes),
    #[prost(string, tag = "6")]
    ExtensionNumbers(String),
    #[prost(string, tag = "7")]
    Services(String),
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(string, tag = "1")]
    valid_host: String,
    /// The request as it came.
    #[prost(message, tag = "2")]
    request: Option<Request>,
    #[prost(oneof = "ReflectionAnswer", tags = "4, 5, 6, 7")]
    choice: Option<ReflectionAnswer>,
}

#[derive(Clone, PartialEq, Oneof)]
enum ReflectionAnswer {
    #[prost(message, tag = "4")]
    Files(Files),
    #[prost(message, tag = "5")]
    ExtensionNumbers(ExtensionNumbers),
    #[prost(message, tag = "6")]
    Services(Services),
    #[prost(message, tag = "7")]
    Failure(ErrorResponse),
}

#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    descriptors: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct ExtensionNumbers {
    #[prost(string, tag = "1")]
    base_type: String,
    #[prost(int32, repeated, tag = "2")]
    numbers: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Services {
    #[prost(message, repeated, tag = "1")]
    services: Vec<Service>,
}

#[derive(Clone, PartialEq, Message)]
struct Service {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorResponse {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    text: String,
}

/// Answers one question after the other.
pub(crate) async fn serve(mut messages: Messages<'_>, outlet: Outlet<'_>) -> Result<(), h2::Error> {
    let context = outlet.context;
    let entered = context.io.connections.enter();
    let mut stream: Stream<'_> = outlet.open()?;
    loop {
        let message = tokio::select! {
            biased;
            over = stream.over() => return stream.end(&over?),
            () = closing(&entered) => return stream.end(&answer::closed()),
            message = messages.next() => message,
        };
        let (message, mut answering) = match message {
            Ok(Some(message)) => message,
            Ok(None) => return stream.end(&Status::ok()),
            Err(status) => return stream.end(&status),
        };
        let request = match Request::decode(message) {
            Ok(request) => request,
            Err(error) => return stream.end(&Status::new(INVALID_ARGUMENT, error.to_string())),
        };
        let response = answered(context.grpc.description.get(), request);
        let message = management::encoded(&response);
        drop(response);
        let bytes = message.iter().map(Bytes::len).sum();
        answering.owe_one_of_many(&context.small_requests, bytes);
        stream.send(message).await?;
    }
}

fn answered(description: Option<&Description>, request: Request) -> Response {
    let choice = match (description, &request.asked) {
        (None, _) => Err(Status::new(UNIMPLEMENTED, "the protocol is not described here")),
        (Some(description), Some(ReflectionQuestion::File(name))) => description.file(name),
        (Some(description), Some(ReflectionQuestion::Symbol(symbol))) => description.symbol(symbol),
        (Some(description), Some(ReflectionQuestion::Services(_))) => Ok(description.services()),
        (Some(description), Some(ReflectionQuestion::ExtensionNumbers(name)))
            if description.symbols.contains_key(name) =>
        {
            Ok(ReflectionAnswer::ExtensionNumbers(ExtensionNumbers {
                base_type: name.clone(),
                numbers: vec![],
            }))
        }
        (Some(_), Some(ReflectionQuestion::ExtensionNumbers(name))) => {
            Err(Status::new(NOT_FOUND, format!("there is no {name}")))
        }
        (Some(_), Some(ReflectionQuestion::Extension(_))) => {
            Err(Status::new(NOT_FOUND, "there are no extensions"))
        }
        (Some(_), None) => Err(Status::new(INVALID_ARGUMENT, "the request asks for nothing")),
    };
    let choice = choice.unwrap_or_else(|status| {
        let (code, text) = status.into_parts();
        ReflectionAnswer::Failure(ErrorResponse { code, text })
    });
    Response { valid_host: request.host.clone(), request: Some(request), choice: Some(choice) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(asked: ReflectionQuestion) -> ReflectionAnswer {
        let symbols = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let files = [
            ("a.proto".to_owned(), b"A".to_vec(), symbols(&["p.A", "p.Service"])),
            ("b.proto".to_owned(), b"B".to_vec(), symbols(&["p.B"])),
        ];
        let description = Description::new(files, vec!["p.Service".into()]);
        let request = Request { host: "h".into(), asked: Some(asked) };
        let response = answered(Some(&description), request.clone());
        assert_eq!((response.valid_host, response.request), ("h".to_owned(), Some(request)));
        response.choice.unwrap()
    }

    fn file(descriptor: &'static [u8]) -> ReflectionAnswer {
        ReflectionAnswer::Files(Files { descriptors: vec![Bytes::from_static(descriptor)] })
    }

    #[test]
    fn files_are_found_by_name_and_by_what_they_define() {
        assert_eq!(ask(ReflectionQuestion::File("b.proto".into())), file(b"B"));
        assert_eq!(ask(ReflectionQuestion::Symbol("p.A".into())), file(b"A"));
        assert_eq!(ask(ReflectionQuestion::Symbol("p.Service.Method".into())), file(b"A"));
        let services = Services { services: vec![Service { name: "p.Service".into() }] };
        assert_eq!(ask(ReflectionQuestion::Services("*".into())), ReflectionAnswer::Services(services));
    }

    #[test]
    fn what_is_not_there_is_an_error_of_its_question() {
        for asked in [
            ReflectionQuestion::File("c.proto".into()),
            ReflectionQuestion::Symbol("p.C".into()),
            ReflectionQuestion::Symbol("p".into()),
            ReflectionQuestion::Extension(Bytes::new()),
            ReflectionQuestion::ExtensionNumbers("p.C".into()),
        ] {
            let ReflectionAnswer::Failure(failure) = ask(asked.clone()) else {
                panic!("{asked:?} was found")
            };
            assert_eq!(failure.code, i32::from(NOT_FOUND));
        }
    }
}

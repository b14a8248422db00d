//! What a server hears.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kushi_client::{Draft, InferCall, RemoteClient, RemoteOptions, WantedOutput};
use kushi_core::{DataType, ErrorKind};

use crate::scripted::{Act, Scripted, ask, good_answer, infer, json_answer, small_call, tensor};

const METADATA: &str = r#"{"name":"m","inputs":[{"name":"A"},{"name":"B"}],"outputs":[]}"#;

fn by_position(count: usize) -> InferCall {
    let mut call = small_call();
    let draft = Draft { name: None, tensor: tensor(DataType::Int8, &[1], vec![1]) };
    call.inputs = std::iter::repeat_n(draft, count).collect();
    call
}

fn body_text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

#[test]
fn a_request_is_json_and_bytes_with_its_headers() {
    let server = Scripted::always(good_answer());
    let mut call = small_call();
    call.version = "2".into();
    call.model = "a b".into();
    call.patience = Some(Duration::from_secs(20));
    infer(&server.client(), call).unwrap();
    let heard = server.heard().pop().unwrap();
    let json = r#"{"parameters":{"binary_data_output":true},"inputs":[{"name":"A","shape":[1],"datatype":"INT8","parameters":{"binary_data_size":1}}]}"#;
    assert_eq!(body_text(&heard.body), format!("{json}\x03"));
    assert_eq!((heard.method.as_str(), heard.path.as_str()), ("POST", "/v2/models/a%20b/versions/2/infer"));
    assert_eq!(heard.headers["inference-header-content-length"], json.len().to_string());
    assert_eq!(heard.headers["content-type"], "application/octet-stream");
    assert_eq!(heard.headers["host"], server.url["http://".len()..]);
    let timeout_us: u64 = heard.headers["kushi-timeout-us"].parse().unwrap();
    assert!((1..=20_000_000).contains(&timeout_us), "{timeout_us}");
}

#[test]
fn a_server_that_answers_values_for_classes_has_no_such_extension() {
    let server = Scripted::always(good_answer());
    let mut call = small_call();
    call.outputs = vec![WantedOutput { name: "O".into(), classes: 2 }];
    let refused = infer(&server.client(), call).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unsupported);
    assert_eq!(
        refused.message,
        format!(
            "cannot ask {} for the classes of output 'O': the server has no extension 'classification'",
            server.url
        )
    );
    let heard = body_text(&server.heard().pop().unwrap().body);
    assert!(
        heard.contains(r#"{"name":"O","parameters":{"binary_data":true,"classification":2}}"#),
        "{heard}"
    );
}

#[test]
fn the_extensions_are_asked_for_once() {
    let server = Scripted::always(good_answer());
    let client = server.client();
    for _ in 0..3 {
        infer(&client, small_call()).unwrap();
    }
    assert_eq!(server.paths().iter().filter(|path| *path == "/v2").count(), 1);
}

#[test]
fn calls_that_start_together_ask_once() {
    let server = Scripted::always(good_answer());
    let client = server.client();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| infer(&client, small_call()).unwrap());
        }
    });
    assert_eq!(server.paths().iter().filter(|path| *path == "/v2").count(), 1);
}

#[test]
fn positions_become_names_that_are_asked_for_once() {
    let server = Scripted::binary(|heard| {
        Act::Answer(if heard.method == "GET" { json_answer(200, METADATA) } else { good_answer() })
    });
    let client = server.client();
    for _ in 0..2 {
        infer(&client, by_position(2)).unwrap();
    }
    assert_eq!(server.paths(), ["/v2", "/v2/models/m", "/v2/models/m/infer", "/v2/models/m/infer"]);
    assert!(body_text(&server.heard()[3].body).contains(r#"{"name":"B","#));
    let refused = infer(&client, by_position(3)).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidInput);
    assert_eq!(
        refused.message,
        "[request id: <id_unknown>] expected 2 inputs but got 3 inputs for model 'm'"
    );
}

#[test]
fn names_are_asked_for_again_when_the_model_may_have_changed() {
    static REFUSES: AtomicBool = AtomicBool::new(true);
    let server = Scripted::binary(|heard| {
        Act::Answer(match heard.method.as_str() {
            "GET" => json_answer(200, METADATA),
            _ if heard.path.ends_with("/load") => json_answer(200, ""),
            _ if REFUSES.swap(false, Ordering::Relaxed) => {
                json_answer(400, r#"{"error":"unexpected inference input 'A'"}"#)
            }
            _ => good_answer(),
        })
    });
    let client = server.client();
    let asked = || server.paths().iter().filter(|path| *path == "/v2/models/m").count();
    assert_eq!(infer(&client, by_position(1)).unwrap_err().message, "unexpected inference input 'A'");
    infer(&client, by_position(1)).unwrap();
    assert_eq!(asked(), 2);
    assert_eq!(ask(&client, "RepositoryModelLoad", r#"{"model_name":"m"}"#).unwrap().status, 200);
    infer(&client, by_position(1)).unwrap();
    assert_eq!(asked(), 3);
}

#[test]
fn what_has_no_path_is_refused_before_it_is_sent() {
    let server = Scripted::always(good_answer());
    let client = server.client();
    let mut call = small_call();
    call.version = "1/infer?".into();
    assert_eq!(infer(&client, call).unwrap_err().kind, ErrorKind::InvalidInput);
    let mut call = small_call();
    call.model.clear();
    let refused = infer(&client, call).unwrap_err();
    assert_eq!(refused.message, "Request for unknown model: '' is not found");
    assert_eq!(ask(&client, "ModelInfer", "").unwrap_err().kind, ErrorKind::Unsupported);
    assert_eq!(ask(&client, "ModelReady", "").unwrap_err().kind, ErrorKind::ModelNotFound);
    assert_eq!(server.paths(), Vec::<String>::new());
}

#[test]
fn verbs_are_asked_by_their_routes() {
    let server = Scripted::serve(|heard| {
        Act::Answer(match heard.path.as_str() {
            "/v2/health/ready" => json_answer(200, ""),
            "/v2/models/m/ready" => json_answer(400, ""),
            _ => json_answer(404, r#"{"error":"Not Found"}"#),
        })
    });
    let client = server.client();
    let ready = ask(&client, "ServerReady", "").unwrap();
    assert_eq!((ready.status, ready.kind, &ready.body[..]), (200, None, &b""[..]));
    let not_ready = ask(&client, "ModelReady", r#"{"name":"m"}"#).unwrap();
    assert_eq!((not_ready.status, not_ready.kind), (400, Some(ErrorKind::InvalidInput)));
    assert_eq!(
        body_text(&not_ready.body),
        format!(r#"{{"error":"{} answered with the status 400 Bad Request and no text"}}"#, server.url)
    );
    let unknown = ask(&client, "RepositoryIndex", r#"{"ready":true}"#).unwrap();
    assert_eq!((unknown.status, unknown.kind), (404, Some(ErrorKind::Unsupported)));
    let text = "does not know this route of the protocol: Not Found; give the client the address of the server, without /v2";
    assert_eq!(body_text(&unknown.body), format!(r#"{{"error":"{} {text}"}}"#, server.url));
    let heard = server.heard().pop().unwrap();
    assert_eq!((heard.method.as_str(), body_text(&heard.body).as_str()), ("POST", r#"{"ready":true}"#));
    assert_eq!(heard.headers["content-type"], "application/json");
}

#[test]
fn a_path_in_the_url_comes_before_every_route() {
    let server = Scripted::always(good_answer());
    let client = RemoteClient::new(&format!("{}/serving/x/", server.url), RemoteOptions::default()).unwrap();
    assert_eq!(ask(&client, "ServerLive", "").unwrap().status, 200);
    assert_eq!(server.paths(), ["/serving/x/v2/health/live"]);
}

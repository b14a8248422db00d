//! What a request is answered with, by its route.

use std::rc::Rc;
use std::sync::Arc;

use hyper::Method;
use hyper::http::request::Parts;
use kushi_core::{Error, ErrorKind};
use kushi_dataplane::{DataPlane, Verb, VerbAnswer, metrics, unanswered};
use kushi_net::{Activity, Guest, Owner, Stage, answered};
use kushi_verbs as verbs;

use crate::answer::{self, HttpAnswer};
use crate::body::{self, Plan, RequestBody};
use crate::health::HealthQuestion;
use crate::limits::LONG_JSON;
use crate::path;
use crate::refusal::Refusal;
use crate::route::{Control, InferenceRoute, Management, NoRoute, Route};
use crate::{HttpContext, generate, infer, playground, texts, verb};

pub(crate) fn answer_metrics(context: &HttpContext, head: &Parts) -> HttpAnswer {
    if head.uri.path() != "/metrics" {
        answer::no_route(&NoRoute::NotFound)
    } else if head.method == Method::GET {
        answer::text(metrics::render(&context.http.plane))
    } else {
        answer::no_route(&NoRoute::WrongMethod("GET"))
    }
}

pub(crate) async fn answer(
    context: &HttpContext,
    activity: &Rc<Activity>,
    guest: &Guest,
    head: &Parts,
    body: &mut RequestBody,
) -> Result<HttpAnswer, Refusal> {
    if let Some(file) = playground::find(head.uri.path()).filter(|_| context.http.playground) {
        return match head.method {
            _ if guest.over_limit => Err(Refusal::Final(full(guest))),
            Method::GET | Method::HEAD => Ok(playground::answer(file)),
            _ => Ok(answer::no_route(&NoRoute::WrongMethod("GET, HEAD"))),
        };
    }
    let admit = |category| context.http.restrictions.check(category, &head.headers);
    let has_labels = |model: &str| context.http.plane.registry.has_labels(model);
    match path::find(head.method.as_str(), head.uri.path(), has_labels, admit) {
        Ok(route) if guest.over_limit && !route.tells_of_health() => Err(Refusal::Final(full(guest))),
        Ok(Route::Inference { model, version, kind: InferenceRoute::Infer }) => {
            infer::infer(context, activity, (&model, version), &head.headers, body).await
        }
        Ok(Route::Inference { model, version, kind }) => {
            let streams = kind == InferenceRoute::GenerateStream;
            generate::generate(context, activity, (&model, version), streams, &head.headers, body).await
        }
        Ok(Route::Texts(route)) => {
            // most connections ask for something else
            Box::pin(texts::answer(context, activity, route, &head.headers, body)).await
        }
        Ok(Route::Listing(name)) => Ok(texts::list(context, name.as_deref())),
        Ok(Route::Management(route)) => management(context, activity, route, body).await,
        Err(reason) => Ok(answer::no_route(&reason)),
    }
}

async fn management(
    context: &HttpContext,
    activity: &Activity,
    route: Management<'_>,
    body: &mut RequestBody,
) -> Result<HttpAnswer, Refusal> {
    let plane = &context.http.plane;
    if !route.takes_body() {
        let asked = HealthQuestion::by(&route);
        return Ok(verb::answer(perform(plane, verb::verb(route, &[])).await, asked.as_ref()));
    }
    let most = context.http.limits.max_input_bytes;
    let (most, refusal): (_, fn(_, _) -> _) = match route {
        Management::Control { action: Control::Load, .. } => (most, infer::body_too_large),
        _ => (verbs::MOST_BYTES.min(most), too_large),
    };
    let plan = Plan { most, json_length: None, refusal, owner: Owner::SERVER };
    let body::Received { bytes: body, mut answering } = body::read(body, &plan, context, activity).await?;
    activity.enter(Stage::Work);
    answering.prepared();
    let verb = match route {
        Management::Control { model, action: Control::Load, repository: false } if body.len() > LONG_JSON => {
            let (model, bytes) = (model.into_owned(), body.len());
            let read = move |_: &_| verbs::overrides(&body);
            let overrides = Box::pin(context.io.net.pool.run(Owner::SERVER, bytes, read)).await?;
            overrides.map(|overrides| Verb::RepositoryModelLoad { model, overrides })
        }
        route => verb::verb(route, &body),
    };
    let mut answer = verb::answer(perform(plane, verb).await, None);
    answer.body_mut().until_written(answering);
    Ok(answer)
}

async fn perform(plane: &Arc<DataPlane>, verb: Result<Verb, Error>) -> Result<VerbAnswer, Error> {
    let verb = verb?;
    answered(|on_answer| plane.perform(verb, on_answer)).await.unwrap_or_else(|| Err(unanswered()))
}

fn too_large(bytes: usize, most: usize) -> Error {
    Error::invalid(format!(
        "a request of {bytes} bytes exceeds the {most} bytes that one may have that is no inference"
    ))
}

fn full(guest: &Guest) -> Error {
    let text = format!("{} connections are open (--http-max-connections)", guest.most());
    Error::new(ErrorKind::Overloaded, text)
}

//! What the HTTP doors serve, and what a request is answered with.

use std::rc::Rc;
use std::sync::Arc;

use hyper::Method;
use hyper::http::request::Parts;
use kushi_core::{Error, ErrorKind};
use kushi_dataplane::{Action, Answer as Answered, DataPlane, DoorKind, Verb, metrics, unanswered};
use kushi_net::{
    Activity, Door, Guest, Inside, IoContext, Owner, Serving, Socket, Stage, Tls, TlsFiles, answered,
};
use kushi_oip::{Forwarding, Restricted, Restriction, Restrictions, management as verbs};

use crate::answer::{self, Answer};
use crate::body::{self, Plan, RequestBody};
use crate::health::Asked;
use crate::refusal::Refusal;
use crate::route::{self, InferenceRoute, Management, NoRoute, Route};
use crate::{HttpLimits, connection, generate, infer, verb};

pub struct HttpOptions {
    pub limits: HttpLimits,
    /// A regular expression: headers with such names become parameters of their requests.
    pub header_forward_pattern: Option<String>,
    /// Which routes ask for a token.
    pub restrictions: Vec<Restriction>,
    /// For what listens on TCP; `None`: plain.
    pub tls: Option<TlsFiles>,
}

const INSIDE: Inside = Inside { name: "http", protocol: b"http/1.1" };

/// What the HTTP doors of a server share.
pub struct Http {
    pub(crate) plane: Arc<DataPlane>,
    pub(crate) limits: HttpLimits,
    /// Which headers become parameters.
    pub(crate) forwarding: Option<Forwarding>,
    pub(crate) restrictions: Restrictions,
    /// Of connections over TCP; those on this host are plain.
    pub(crate) tls: Option<Arc<Tls>>,
}

/// What a request is served with: the doors' own, and the io thread that it came to.
pub(crate) struct HttpContext {
    pub http: Arc<Http>,
    pub io: Rc<IoContext>,
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Inference,
    Metrics,
}

struct HttpDoor {
    http: Arc<Http>,
    purpose: Purpose,
    tls: bool,
}

impl Http {
    pub fn new(plane: &Arc<DataPlane>, options: &HttpOptions) -> Result<Arc<Self>, Error> {
        let tls = |files| Tls::new(files, INSIDE).map(Arc::new);
        let pattern = options.header_forward_pattern.as_deref();
        Ok(Arc::new(Self {
            plane: plane.clone(),
            limits: options.limits.clone(),
            forwarding: pattern.map(Forwarding::new).transpose()?,
            restrictions: Restrictions::new(Restricted::Api, &options.restrictions)?,
            tls: options.tls.as_ref().map(tls).transpose()?,
        }))
    }

    /// To be looked at when its files change.
    pub fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// For all requests of the protocol.
    pub fn door(self: &Arc<Self>) -> Arc<dyn Door> {
        Arc::new(HttpDoor { http: self.clone(), purpose: Purpose::Inference, tls: true })
    }

    /// For the metrics alone, plain unless `tls` asks for what the other door speaks.
    pub fn metrics_door(self: &Arc<Self>, tls: bool) -> Arc<dyn Door> {
        Arc::new(HttpDoor { http: self.clone(), purpose: Purpose::Metrics, tls })
    }
}

impl Door for HttpDoor {
    fn serve<'a>(&'a self, io: &'a Rc<IoContext>, socket: Socket, guest: &'a Guest) -> Serving<'a> {
        let context = HttpContext { http: self.http.clone(), io: io.clone() };
        let kind = match self.purpose {
            Purpose::Inference => DoorKind::Http,
            Purpose::Metrics => DoorKind::Metrics,
        };
        Box::pin(async move {
            let _open = self.http.plane.traffic.connection(kind);
            connection::serve(&context, socket, self.purpose, self.tls, guest).await;
        })
    }

    fn answers_when_full(&self) -> bool {
        true
    }
}

pub(crate) fn answer_metrics(context: &HttpContext, head: &Parts) -> Answer {
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
) -> Result<Answer, Refusal> {
    let admit = |category| context.http.restrictions.check(category, &head.headers);
    match route::find(head.method.as_str(), head.uri.path(), admit) {
        Ok(route) if guest.over_limit && !route.tells_of_health() => Err(Refusal::Final(full(guest))),
        Ok(Route::Inference { model, version, kind: InferenceRoute::Infer }) => {
            infer::infer(context, activity, (&model, version), &head.headers, body).await
        }
        Ok(Route::Inference { model, version, kind }) => {
            let streams = kind == InferenceRoute::GenerateStream;
            generate::generate(context, activity, (&model, version), streams, &head.headers, body).await
        }
        Ok(Route::Management(route)) => management(context, activity, route, body).await,
        Err(reason) => Ok(answer::no_route(&reason)),
    }
}

async fn management(
    context: &HttpContext,
    activity: &Activity,
    route: Management<'_>,
    body: &mut RequestBody,
) -> Result<Answer, Refusal> {
    let plane = &context.http.plane;
    if !route.takes_body() {
        let asked = Asked::by(&route);
        return Ok(verb::answer(perform(plane, verb::verb(route, &[])).await, asked.as_ref()));
    }
    let most = match route {
        Management::Control { action: Action::Load, .. } => verbs::MOST_BYTES_TO_LOAD,
        _ => verbs::MOST_BYTES,
    };
    let most = most.min(context.http.limits.max_input_bytes);
    let plan = Plan { most, json_length: None, refusal: too_large, owner: Owner::SERVER };
    let body::Received { bytes: body, mut answering } = body::read(body, &plan, context, activity).await?;
    activity.enter(Stage::Work);
    answering.prepared();
    let mut answer = verb::answer(perform(plane, verb::verb(route, &body)).await, None);
    answer.body_mut().until_written(answering);
    Ok(answer)
}

async fn perform(plane: &Arc<DataPlane>, verb: Result<Verb, Error>) -> Result<Answered, Error> {
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

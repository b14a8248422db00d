//! Texts in, vectors and scores out: the routes that clients of OpenAI, Cohere, vLLM and text-embeddings-inference know.
//!
//! A body is read into an [`Asked`] ([`ask`]), whose texts become requests to the model ([`model`]): one, or several where
//! it takes no more at once. What comes back is joined ([`numbers`]) and written as the route has it ([`write`]). Models
//! are asked like any others: nothing here knows what is behind them, but for what a model tells of its texts itself.

mod ask;
mod failure;
mod given;
mod model;
mod numbers;
mod tokens;
mod write;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::HeaderMap;
use kushi_core::{AskedVersion, Context, Error, ErrorKind, ModelSpec, Request, Texts};
use kushi_dataplane::{Begun, Event, Inference, RouteKey, Trace};
use kushi_net::{Activity, Answering, OnlyAnswer, Owner, Reservation, Stage, Waiting};

use crate::answer::{self, HttpAnswer};
use crate::body::{self, Plan, RequestBody};
use crate::infer_headers::InferHeaders;
use crate::limits::{LONG_ANSWER, LONG_JSON, json_too_large};
use crate::refusal::Refusal;
use crate::route::TextRoute;
use crate::{HttpContext, generate, infer, load_report};

use ask::Asked;
use model::{Kind, Manner};
use numbers::Numbers;

/// Fails before the request has been received; afterwards an error is an answer like any other.
pub(crate) async fn answer(
    context: &HttpContext,
    activity: &Activity,
    route: TextRoute,
    headers: &HeaderMap,
    body: &mut RequestBody,
) -> Result<HttpAnswer, Refusal> {
    let arrived = Instant::now();
    let asked = InferHeaders::read(headers);
    let most = context.http.limits.max_input_bytes;
    let plan = Plan { most, json_length: None, refusal: json_too_large, owner: Owner::SERVER };
    let begun = infer::timeout(asked.timeout)
        .and_then(|timeout| generate::check_encoding(asked.content_encoding).map(|()| timeout));
    let received = match begun {
        Ok(timeout) => body::read(body, &plan, context, activity).await.map(|received| (received, timeout)),
        Err(error) => Err(error.into()),
    };
    let (body::Received { bytes, mut answering }, timeout) = match received {
        Ok(received) => received,
        Err(Refusal::Answer(error)) => return Ok(failure::answer(&error)),
        Err(refusal) => return Err(refusal),
    };
    activity.enter(Stage::Work);
    let deadline = timeout.and_then(|timeout| arrived.checked_add(timeout));
    let mut received = Received { context, headers, seen: &asked, arrived, deadline, trace: None };
    let answered = received.answer(route, bytes, &mut answering).await;
    answering.prepared();
    let mut answer = match answered {
        Ok(answer) => answer,
        Err(error) => {
            if let Some(trace) = &received.trace {
                trace.fail(&error);
            }
            failure::answer(&error)
        }
    };
    answering.owe_in_all(answer.body().left());
    load_report::tell(&mut answer, asked.load_format, &context.http.plane);
    answer.body_mut().until_written(answering);
    if let Some(trace) = received.trace {
        trace.mark(Event::HttpSendStart, Instant::now());
        answer.body_mut().set_trace(trace);
    }
    Ok(answer)
}

/// A request that is here, and what it says beside its body.
struct Received<'a> {
    context: &'a HttpContext,
    headers: &'a HeaderMap,
    seen: &'a InferHeaders<'a>,
    arrived: Instant,
    deadline: Option<Instant>,
    trace: Option<Trace>,
}

/// A part of what is asked, on its way.
struct Part {
    waiting: Waiting,
    spec: Arc<ModelSpec>,
    manner: Manner,
    rows: usize,
}

impl Received<'_> {
    async fn answer(
        &mut self,
        route: TextRoute,
        body: Bytes,
        answering: &mut Answering,
    ) -> Result<HttpAnswer, Error> {
        if route == TextRoute::Tokenize {
            return self.tokenize(body).await;
        }
        let length = body.len();
        let asked = self.aside(length, LONG_JSON, move || ask::read(route, &body)).await??;
        answering.cover(length.saturating_add(asked.bytes()))?;
        let decoding = asked.bytes_to_decode();
        let name = model::choose(&self.context.http.plane, asked.model.as_deref(), asked.form.kind())?;
        let first = self.inference(&name, AskedVersion::Any)?;
        let texts = first.texts().cloned();
        let (known, of_model) = (texts.clone(), name.clone());
        let for_model = move || asked.for_model(&of_model, known.as_deref());
        let asked = self.aside(decoding, LONG_JSON, for_model).await??;
        asked.check_size(self.context.http.limits.max_input_bytes)?;
        answering.cover(asked.bytes_of_requests())?;
        let tag = || self.seen.trace.read();
        self.trace = self.context.http.plane.traces.begin(&name, self.arrived, tag);
        if let Some(trace) = &self.trace {
            trace.mark(Event::HttpReceiveStart, self.arrived);
            trace.mark(Event::HttpReceiveEnd, Instant::now());
        }
        let parts = self.begin(first, &name, &asked)?;
        answering.prepared();
        let (numbers, held) = self.end(parts).await?;
        if let Some(trace) = &self.trace {
            trace.mark(Event::ResponseComplete, Instant::now());
        }
        let bytes = numbers.bytes() + asked.bytes_said_again();
        let budget = self.context.io.net.budget.clone();
        let write = move || {
            // Others may have been written meanwhile.
            budget.check_owed(held.iter().map(Reservation::bytes).sum())?;
            Ok(write::answer(&name, &asked, &numbers))
        };
        Ok(answer::long_json(self.aside(bytes, LONG_ANSWER, write).await??))
    }

    /// All of them, to one version of the model.
    fn begin(&self, first: Inference, name: &str, asked: &Asked) -> Result<Vec<Part>, Error> {
        let count = asked.count();
        let mut next = Some(first);
        let (mut parts, mut begin) = (Vec::new(), 0);
        let mut version = AskedVersion::Any;
        while begin < count || parts.is_empty() {
            let inference = match next.take() {
                Some(inference) => inference,
                None => self.inference(name, version.clone())?,
            };
            let part = self.begin_part(inference, asked, begin)?;
            version = Some(part.spec.version).into();
            begin += part.rows;
            parts.push(part);
        }
        Ok(parts)
    }

    fn begin_part(&self, inference: Inference, asked: &Asked, begin: usize) -> Result<Part, Error> {
        let inherited: Context = self.trace.as_ref().map(Trace::context).unwrap_or_default();
        let registry = &self.context.http.plane.registry;
        let queued = inference.begin(registry, &*self.context.io, |attempt| {
            let spec = attempt.spec;
            spec.check_unary()?;
            let manner = Manner::of(spec, asked)?;
            let rows = (asked.count() - begin).min(model::most_rows(spec));
            let bound = manner.bind(spec, asked, begin..begin + rows)?;
            let request = Request {
                parameters: asked.parameters.clone(),
                deadline: self.deadline,
                context: inherited.clone(),
                ..Request::new(bound, self.arrived, attempt.reply)
            };
            Ok::<_, Error>((Box::new(request), (manner, rows)))
        })?;
        let Begun { waiting, spec, beside: (manner, rows) } = queued;
        Ok(Part { waiting, spec, manner, rows })
    }

    /// With what counts them.
    async fn end(&self, parts: Vec<Part>) -> Result<(Numbers, Vec<Reservation>), Error> {
        let (mut numbers, mut held) = (Numbers::default(), Vec::new());
        for mut part in parts {
            let OnlyAnswer { response, end, reservation } = part.waiting.only_answer(&part.spec.name).await?;
            drop(end);
            numbers.add(&part.spec, &part.manner, part.rows, response)?;
            held.extend(reservation);
        }
        Ok((numbers, held))
    }

    fn inference(&self, name: &str, version: AskedVersion) -> Result<Inference, Error> {
        let header = |name: &str| Some(RouteKey::of(self.headers.get(name)?.as_bytes()));
        self.context.http.plane.inference(name, version, header)
    }

    async fn tokenize(&self, body: Bytes) -> Result<HttpAnswer, Error> {
        let bytes = body.len();
        let asked = self.aside(bytes, LONG_JSON, move || tokens::read(&body)).await??;
        let plane = &self.context.http.plane;
        let name = model::choose(plane, asked.model.as_deref(), Kind::Any)?;
        let inference = self.inference(&name, AskedVersion::Any)?;
        let texts: Arc<dyn Texts> = inference.texts().cloned().ok_or_else(|| {
            let text = format!("model '{name}' has no tokenizer of its own");
            Error::new(ErrorKind::InvalidInput, text)
        })?;
        // It takes longer than its bytes tell.
        let written = self.aside(bytes, 0, move || tokens::answer(&asked, &*texts)).await??;
        Ok(answer::long_json(written))
    }

    /// What takes longer than others on this io thread may wait is done on another thread.
    async fn aside<T: Send + 'static>(
        &self,
        bytes: usize,
        at_once_below: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        if bytes < at_once_below {
            return Ok(work());
        }
        Box::pin(self.context.io.net.pool.run(Owner::SERVER, bytes, move |_: &_| work())).await
    }
}

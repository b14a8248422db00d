//! Texts in, vectors, scores and texts out: the routes that clients of OpenAI, Cohere, vLLM and text-embeddings-inference know.
//!
//! A body is read ([`bodies`]) into an [`Asked`]. Its texts become requests to a version of the model ([`model`]): one, or several
//! where it takes no more at once. What comes back is joined ([`numbers`]) and written as the route has it ([`write`]). Models
//! are asked like any others: nothing here knows what is behind them, but for what a model tells of its texts itself.

mod ask;
mod bodies;
mod failure;
mod given;
mod listing;
mod model;
mod numbers;
mod tokens;
mod write;
mod writing;

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::HeaderMap;
use kushi_core::{AskedVersion, Context, Error, ErrorKind, ModelSpec, Parameter, Request, Texts};
use kushi_dataplane::{Event, KeptVersion, RouteKey, Trace};
use kushi_net::{Activity, Answering, OnlyAnswer, Owner, Reservation, Stage, Waiting};

use crate::answer::{self, HttpAnswer};
use crate::body::{self, Plan, RequestBody};
use crate::infer_headers::InferHeaders;
use crate::limits::{LARGE_BODY, LONG_ANSWER, LONG_JSON, json_too_large};
use crate::refusal::Refusal;
use crate::route::TextRoute;
use crate::{HttpContext, generate, infer, load_report};

use ask::Asked;
use model::Manner;
use numbers::Numbers;
use writing::Style;

/// Longer bodies are read aside: many short texts cost more than their bytes tell.
const LONG_BODY: usize = 32 << 10;
/// So many parts of a request are on their way at a time, for each instance and in any case.
const PARTS_OF_AN_INSTANCE: usize = 2;
const FEWEST_PARTS: usize = 4;

/// The models that serve, or the one of this name.
pub(crate) fn list(context: &HttpContext, name: Option<&str>) -> HttpAnswer {
    listing::answer(&context.http.plane, name)
}

/// Fails before the request has been received; afterwards an error is an answer like any other.
pub(crate) async fn answer(
    context: &HttpContext,
    activity: &Rc<Activity>,
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
    let mut received = Received { context, activity, headers, seen: &asked, arrived, deadline, trace: None };
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
    activity: &'a Rc<Activity>,
    headers: &'a HeaderMap,
    seen: &'a InferHeaders<'a>,
    arrived: Instant,
    deadline: Option<Instant>,
    trace: Option<Trace>,
}

/// No more than have a place where nobody else asks.
fn most_parts(spec: &ModelSpec) -> usize {
    let most = FEWEST_PARTS.max(spec.instances * PARTS_OF_AN_INSTANCE);
    match spec.queue.levels[spec.queue.level(0)].max_requests {
        0 => most,
        bound => most.min(bound),
    }
}

/// Where work is done that takes longer than others on this io thread may wait.
#[derive(Clone, Copy)]
struct Aside {
    owner: Owner,
    /// How much it is, as if so many bytes were read.
    work_bytes: usize,
    /// Less is done at once, on this thread.
    inline_below: usize,
}

impl Received<'_> {
    async fn answer(
        &mut self,
        route: TextRoute,
        body: Bytes,
        answering: &mut Answering,
    ) -> Result<HttpAnswer, Error> {
        match route {
            TextRoute::Tokenize => return self.tokenize(body, answering).await,
            // there are more connections that ask for something else, and each holds what this one needs
            TextRoute::ChatCompletions => return Box::pin(self.write(Style::Chat, body, answering)).await,
            TextRoute::Completions => return Box::pin(self.write(Style::Completion, body, answering)).await,
            _ => {}
        }
        let length = body.len();
        let reading = Aside { owner: Owner::SERVER, work_bytes: length, inline_below: LONG_BODY };
        let asked = self.aside(reading, move || bodies::read(route, &body)).await??;
        answering.cover(length.saturating_add(asked.bytes()))?;
        let name =
            model::choose(&self.context.http.plane, asked.model.as_deref(), Some(asked.form.answer()))?;
        let tag = || self.seen.trace.read();
        self.trace = self.context.http.plane.traces.begin(&name, self.arrived, tag);
        if let Some(trace) = &self.trace {
            trace.mark(Event::HttpReceiveStart, self.arrived);
            trace.mark(Event::HttpReceiveEnd, Instant::now());
        }
        let inherited = self.trace.as_ref().map(Trace::context).unwrap_or_default();
        let kept = self.keep(&name, &inherited)?;
        answering.prepared();
        let spec = kept.spec();
        spec.check_unary()?;
        asked.check_model(&name, kept.texts().map(|texts| &**texts))?;
        let owner = Owner::model(spec);
        let manner = Arc::new(Manner::of(spec, &asked)?);
        let most = self.context.http.limits.max_input_bytes;
        let fitting = Aside { owner, work_bytes: asked.bytes_to_decode(), inline_below: LONG_JSON };
        let (named, texts, width) = (name.clone(), kept.texts().cloned(), manner.width);
        let fit = move || asked.for_model(&named, texts.as_deref(), width, most);
        let mut asked = self.aside(fitting, fit).await??;
        asked.parameters.extend(self.forwarded()?);
        let asked = Arc::new(asked);
        answering.cover(asked.bytes_of_requests())?;
        let (numbers, held) = self.ask(&kept, &asked, &manner).await?;
        if let Some(trace) = &self.trace {
            trace.mark(Event::ResponseComplete, Instant::now());
        }
        let writing = Aside { owner, work_bytes: write::bytes(&asked, &numbers), inline_below: LONG_ANSWER };
        self.written(writing, held, answering, move || write::answer(&name, &asked, &numbers)).await
    }

    /// What `write` writes. `held`: what counts the answers of models of which it is made.
    async fn written(
        &self,
        how: Aside,
        held: Vec<Reservation>,
        answering: &mut Answering,
        write: impl FnOnce() -> Result<Vec<u8>, Error> + Send + 'static,
    ) -> Result<HttpAnswer, Error> {
        let budget = self.context.io.net.budget.clone();
        let work = move || {
            // Others may have been written meanwhile.
            budget.check_owed(held.iter().map(Reservation::bytes).sum())?;
            write().map(|text| (text, held))
        };
        let (text, held) = self.aside(how, work).await??;
        answering.owe_in_all(text.len());
        drop(held);
        Ok(answer::long_json(text))
    }

    /// Asks for all of it, a few parts at a time. With what counts the answers.
    async fn ask(
        &self,
        kept: &KeptVersion,
        asked: &Arc<Asked>,
        manner: &Arc<Manner>,
    ) -> Result<(Numbers, Vec<Reservation>), Error> {
        let spec = kept.spec();
        let (count, most_rows) = (asked.count(), model::most_rows(spec));
        let most = most_parts(spec);
        let (mut numbers, mut held) = (Numbers::default(), Vec::new());
        let mut parts = VecDeque::new();
        let mut begin = 0;
        loop {
            while begin < count && parts.len() < most {
                let rows = (count - begin).min(most_rows);
                match self.begin(kept, asked, manner, begin..begin + rows).await {
                    Ok(waiting) => parts.push_back((waiting, rows)),
                    // There is a place for it once an earlier one has ended.
                    Err(error) if error.kind == ErrorKind::Overloaded && !parts.is_empty() => break,
                    Err(error) => return Err(error),
                }
                begin += rows;
            }
            let Some((mut waiting, rows)) = parts.pop_front() else {
                asked.check_numbers(spec, &numbers)?;
                return Ok((numbers, held));
            };
            let OnlyAnswer { response, end, reservation } = waiting.only_answer(&spec.name).await?;
            if asked.bytes_to_copy(rows) >= LARGE_BODY {
                self.context.io.net.pool.drop_there(end.request.inputs);
            }
            numbers.add(spec, manner, rows, response)?;
            held.extend(reservation);
        }
    }

    async fn begin(
        &self,
        kept: &KeptVersion,
        asked: &Arc<Asked>,
        manner: &Arc<Manner>,
        places: Range<usize>,
    ) -> Result<Waiting, Error> {
        let spec = kept.spec();
        let is_one_of_many = places.len() < asked.count();
        let binding = Aside {
            owner: Owner::model(spec),
            work_bytes: asked.bytes_to_copy(places.len()),
            inline_below: LONG_JSON,
        };
        // A later part has not waited since the first one came.
        let arrived = if places.start == 0 { self.arrived } else { Instant::now() };
        let (model, texts, way) = (spec.clone(), asked.clone(), manner.clone());
        let bound = self.aside(binding, move || way.bind(&model, &texts, places)).await??;
        let waiting = kept.begin(&*self.context.io, |reply| Request {
            parameters: asked.parameters.clone(),
            deadline: self.deadline,
            ..Request::new(bound, arrived, reply)
        })?;
        if is_one_of_many {
            waiting.count_all();
        }
        Ok(waiting)
    }

    fn forwarded(&self) -> Result<Vec<(String, Parameter)>, Error> {
        match &self.context.http.forwarding {
            Some(forwarding) => forwarding.parameters(self.headers),
            None => Ok(Vec::new()),
        }
    }

    /// A version of the model, which stays for all that is asked of it.
    fn keep(&self, name: &str, own: &Context) -> Result<KeptVersion, Error> {
        let plane = &self.context.http.plane;
        let header = |name: &str| Some(RouteKey::of(self.headers.get(name)?.as_bytes()));
        plane.inference(name, AskedVersion::Any, header)?.keep(&plane.registry, own)
    }

    async fn tokenize(&self, body: Bytes, answering: &mut Answering) -> Result<HttpAnswer, Error> {
        let reading = Aside { owner: Owner::SERVER, work_bytes: body.len(), inline_below: LONG_BODY };
        let asked = self.aside(reading, move || tokens::read(&body)).await??;
        let name = model::choose(&self.context.http.plane, asked.model.as_deref(), None)?;
        let kept = self.keep(&name, &Context::default())?;
        answering.prepared();
        let texts: Arc<dyn Texts> = kept.texts().cloned().ok_or_else(|| {
            let text = format!("model '{name}' has no tokenizer of its own");
            Error::new(ErrorKind::InvalidInput, text)
        })?;
        let bytes = asked.bytes_of_answer();
        answering.cover(bytes)?;
        // It takes longer than its bytes tell.
        let tokenising = Aside { owner: Owner::model(kept.spec()), work_bytes: bytes, inline_below: 0 };
        let written = self.aside(tokenising, move || tokens::answer(&asked, &*texts)).await??;
        Ok(answer::long_json(written))
    }

    async fn aside<T: Send + 'static>(
        &self,
        how: Aside,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Error::expired());
        }
        if how.work_bytes < how.inline_below {
            return Ok(work());
        }
        let working = Box::pin(self.context.io.net.pool.run(how.owner, how.work_bytes, move |_: &_| work()));
        let Some(deadline) = self.deadline else { return working.await };
        tokio::time::timeout_at(deadline.into(), working).await.map_err(|_| Error::expired())?
    }
}

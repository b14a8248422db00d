//! Plain JSON in, plain JSON out: Triton's extension "generate", answered once or as a stream of events.
//!
//! A stream takes any number of responses. Its status is that of the first one; an error ends it as an
//! event. A client that goes away takes its request with it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use kushi_core::{Bound, Context, Error, ModelSpec, Parameter, Request, Response};
use kushi_dataplane::{Attempt, Begun, Event, Inference, Trace};
use kushi_net::{Activity, Answering, Net, OnlyAnswer, Owner, Reservation, Stage, Waiting};
use kushi_oip::tensor_json;

use crate::answer::{self, HttpAnswer};
use crate::body::{self, Plan, RequestBody};
use crate::events::{EventSource, Events, event};
use crate::generate_json::{self, GenerateBody};
use crate::infer_headers::InferHeaders;
use crate::limits::{HttpLimits, LONG_ANSWER, LONG_JSON, json_too_large};
use crate::refusal::Refusal;
use crate::{HttpContext, events, infer, load_report};

/// Fails before the request has been received; afterwards an error is an answer like any other.
pub(crate) async fn generate(
    context: &HttpContext,
    activity: &Rc<Activity>,
    (model, version): (&str, &str),
    streams: bool,
    headers: &HeaderMap,
    body: &mut RequestBody,
) -> Result<HttpAnswer, Refusal> {
    let inference = infer::inference(context, model, version, headers)?;
    let arrived = Instant::now();
    let asked = InferHeaders::read(headers);
    let trace = context.http.plane.traces.begin(model, arrived, || asked.trace.read());
    let deadline = infer::timeout(asked.timeout)?.and_then(|timeout| arrived.checked_add(timeout));
    check_encoding(asked.content_encoding)?;
    let owner = Owner::model(inference.spec());
    let most = context.http.limits.max_input_bytes;
    let plan = Plan { most, json_length: None, refusal: json_too_large, owner };
    let body::Received { bytes: body, mut answering } = body::read(body, &plan, context, activity).await?;
    activity.enter(Stage::Work);
    if let Some(trace) = &trace {
        trace.mark(Event::HttpReceiveStart, arrived);
        trace.mark(Event::HttpReceiveEnd, Instant::now());
    }
    let inherited = trace.as_ref().map(Trace::context).unwrap_or_default();
    let submitted = Received { body, arrived, deadline, inherited }.submit(context, inference).await;
    answering.prepared();
    let answer = match submitted {
        Err(error) => failed(trace.as_ref(), &error),
        Ok(generation) if streams => events::stream(generation, context, activity).await,
        Ok(generation) => {
            let answer = generation.only_answer(context, &mut answering, asked.tells_timings).await;
            answer.unwrap_or_else(|error| failed(trace.as_ref(), &error))
        }
    };
    let mut answer = answer;
    if let Some(trace) = trace {
        trace.mark(Event::HttpSendStart, Instant::now());
        answer.body_mut().set_trace(trace);
    }
    load_report::tell(&mut answer, asked.load_format, &context.http.plane);
    answer.body_mut().until_written(answering);
    Ok(answer)
}

fn failed(trace: Option<&Trace>, error: &Error) -> HttpAnswer {
    if let Some(trace) = trace {
        trace.fail(error);
    }
    answer::error(error)
}

pub(crate) fn check_encoding(content_encoding: Option<&HeaderValue>) -> Result<(), Error> {
    match content_encoding {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(Error::invalid("Unsupported content-encoding, only 'identity' is supported."))
        }
        _ => Ok(()),
    }
}

struct Received {
    body: Bytes,
    arrived: Instant,
    deadline: Option<Instant>,
    /// Of its trace, if it has one.
    inherited: Context,
}

/// All that a request says, found out before it is queued.
struct Prepared {
    id: String,
    parameters: Vec<(String, Parameter)>,
    bound: Bound,
}

impl Received {
    async fn submit(&self, context: &HttpContext, inference: Inference) -> Result<Generation, Error> {
        let begun = inference.begin_later(&context.http.plane.registry, &*context.io, async |attempt| {
            let Attempt { spec, reply, .. } = attempt;
            let Prepared { id, parameters, bound } = if self.body.len() < LONG_JSON {
                prepare(&self.body, spec, &context.http.limits)?
            } else {
                let (http, spec, body) = (context.http.clone(), spec.clone(), self.body.clone());
                let (owner, bytes) = (Owner::model(&spec), body.len());
                let work = move |_: &_| prepare(&body, &spec, &http.limits);
                Box::pin(context.io.net.pool.run(owner, bytes, work)).await??
            };
            let request = Box::new(Request {
                id: id.clone(),
                parameters,
                deadline: self.deadline,
                context: self.inherited.clone(),
                ..Request::new(bound, self.arrived, reply)
            });
            Ok::<_, Error>((request, id))
        });
        let Begun { waiting, spec, beside: id } = begun.await?;
        Ok(Generation { waiting, spec, id })
    }
}

fn prepare(body: &[u8], spec: &ModelSpec, limits: &HttpLimits) -> Result<Prepared, Error> {
    let GenerateBody { id, parameters, inputs } = generate_json::read(body, spec, limits)?;
    let bound = spec.bind(&id, inputs, &[])?;
    // Whatever it leaves out, nothing that can be written is left.
    let unwritable = spec.outputs.iter().map(|output| tensor_json::check_writable(output.datatype));
    if let Some(Err(error)) = unwritable.reduce(Result::or) {
        return Err(error);
    }
    Ok(Prepared { id, parameters, bound })
}

/// A request on its way.
struct Generation {
    waiting: Waiting,
    spec: Arc<ModelSpec>,
    id: String,
}

impl Generation {
    async fn only_answer(
        mut self,
        context: &HttpContext,
        answering: &mut Answering,
        tell_timings: bool,
    ) -> Result<HttpAnswer, Error> {
        let text = |_| {
            "generate expects model to produce exactly 1 response, use generate stream for model that generates \
             various number of responses"
                .into()
        };
        let OnlyAnswer { response, end, reservation } = self.waiting.only_answer_or(text).await?;
        let timings = end.timings;
        // In the place of the body, which goes with the request.
        drop(end);
        answering.reservation = reservation;
        let reservation = answering.reservation.as_ref();
        let text = self.write(response, reservation, &context.io.net, generate_json::write).await?;
        let mut answer = answer::long_json(text);
        if tell_timings {
            answer::tell_timings(&mut answer, &timings);
        }
        Ok(answer)
    }

    /// The text of a response, unless others hold too much for it.
    async fn write(
        &self,
        response: Response,
        reservation: Option<&Reservation>,
        net: &Net,
        write: impl FnOnce(&mut Vec<u8>, &ModelSpec, &str, &Response) + Send + 'static,
    ) -> Result<Vec<u8>, Error> {
        for (_, tensor) in &response.outputs {
            tensor_json::check_writable(tensor.datatype)?;
        }
        let own = reservation.map_or(0, Reservation::bytes);
        let bytes = response.outputs.iter().map(|(_, tensor)| tensor.data.len()).sum::<usize>();
        let (spec, id, budget) = (self.spec.clone(), self.id.clone(), net.budget.clone());
        let work = move || {
            budget.check_owed(own)?;
            let mut text = Vec::new();
            write(&mut text, &spec, &id, &response);
            Ok(text)
        };
        if bytes < LONG_ANSWER {
            return work();
        }
        Box::pin(net.pool.run(Owner::model(&self.spec), bytes, move |_: &_| work())).await?
    }
}

impl EventSource for Generation {
    async fn next(&mut self, net: &Net) -> Events {
        let mut events = Events::default();
        match self.waiting.next().await {
            Err(error) => fail(&mut events, error),
            Ok((mail, reservation)) => {
                if let Some(response) = mail.response {
                    let write = |text: &mut Vec<u8>, spec: &_, id: &_, response: &_| {
                        event(text, |text| generate_json::write(text, spec, id, response));
                    };
                    match self.write(response, reservation.as_ref(), net, write).await {
                        Ok(text) => (events.text, events.reservation) = (text, reservation),
                        // What comes behind it would come as little.
                        Err(error) => {
                            fail(&mut events, error);
                            return events;
                        }
                    }
                }
                if let Some(end) = mail.end {
                    events.ended = true;
                    let first = events.text.is_empty();
                    if let Err(error) = end.result {
                        fail(&mut events, error);
                        if !first {
                            events.error = None;
                        }
                    }
                }
            }
        }
        events
    }

    fn has_more_now(&self) -> bool {
        self.waiting.has_small_mail(LONG_ANSWER)
    }

    fn failure(&self, error: &Error) -> HttpAnswer {
        answer::error(error)
    }

    fn fails_by_events(&self) -> bool {
        true
    }
}

fn fail(events: &mut Events, error: Error) {
    event(&mut events.text, |text| generate_json::write_error(text, &error));
    events.error.get_or_insert(error);
    events.ended = true;
}

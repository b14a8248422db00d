//! One inference request over HTTP, from its head to its answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use kushi_core::{End, Error, ErrorKind};
use kushi_dataplane::{AskedVersion, Attempt, Begun, Event, Inference, RouteKey, Trace};
use kushi_net::{Activity, Answering, OnlyAnswer, Owner, Reservation, Stage};

use crate::answer::{self, HttpAnswer};
use crate::body::{self, Plan, RequestBody};
use crate::header_names::TIMEOUT;
use crate::infer_headers::InferHeaders;
use crate::json_length::JsonLength;
use crate::limits::{LARGE_BODY, LONG_ANSWER, READ_BUFFER_BYTES, json_too_large};
use crate::prepare::{Frame, prepare};
use crate::refusal::Refusal;
use crate::response;
use crate::{HttpContext, coding, load_report};

/// Fails before the request has been received; afterwards an error is an answer like any other.
pub(crate) async fn infer(
    context: &HttpContext,
    activity: &Activity,
    (model, version): (&str, &str),
    headers: &HeaderMap,
    body: &mut RequestBody,
) -> Result<HttpAnswer, Refusal> {
    let inference = inference(context, model, version, headers)?;
    if inference.spec().decoupled {
        let text = "HTTP end point doesn't support models with decoupled transaction policy";
        return Err(Error::new(ErrorKind::Unsupported, text).into());
    }
    let owner = Owner::model(inference.spec());
    let arrived = Instant::now();
    let asked = InferHeaders::read(headers);
    let trace = context.http.plane.traces.begin(model, arrived, || asked.trace.read());
    let deadline = timeout(asked.timeout)?.and_then(|timeout| arrived.checked_add(timeout));
    let compressed = coding::is_compressed(asked.content_encoding)?;
    let most = context.http.limits.max_input_bytes;
    let json_length = JsonLength::read(asked.json_length, body.length(), compressed)?;
    let announced = json_length.announced();
    let refusal = match announced {
        Some(length) if length > most => return Err(json_too_large(length, most).into()),
        _ if compressed => body_too_large,
        Some(0) => raw_too_large,
        Some(_) => body_too_large,
        None => json_too_large,
    };
    let forwarded = match &context.http.forwarding {
        Some(forwarding) => forwarding.parameters(headers)?,
        None => Vec::new(),
    };
    if let Some(length) = body.length().and_then(|length| usize::try_from(length).ok())
        && length > READ_BUFFER_BYTES
        && length <= most
    {
        let bytes = least_bytes(length, announced, compressed);
        if let Err(error) = inference.announce(arrived, bytes) {
            let mut answer = answer::error(&error.of_request(""));
            load_report::tell(&mut answer, asked.load_format, &context.http.plane);
            return Ok(answer);
        }
    }
    let plan = Plan { most, json_length: announced, refusal, owner };
    let body::Received { bytes: body, mut answering } = body::read(body, &plan, context, activity).await?;
    activity.enter(Stage::Work);
    if let Some(trace) = &trace {
        trace.mark(Event::HttpReceiveStart, arrived);
        trace.mark(Event::HttpReceiveEnd, Instant::now());
    }
    let tell_timings = asked.tells_timings;
    let inherited = trace.as_ref().map(Trace::context).unwrap_or_default();
    let frame = Frame { forwarded, arrived, deadline, inherited };
    let received = Received { body, compressed, json_length, frame, tell_timings };
    let mut answer = match received.run(context, &mut answering, inference, trace.as_ref()).await {
        Ok(answer) => {
            answering.owe_in_all(answer.body().left());
            match asked.accepted_coding {
                Some(coding) if coding::is_worth_while(&answer) => {
                    Box::pin(coding::coded(answer, coding, &context.io.net, owner)).await
                }
                _ => answer,
            }
        }
        Err(error) => {
            if let Some(trace) = &trace {
                trace.fail(&error);
            }
            answer::error(&error)
        }
    };
    answering.prepared();
    load_report::tell(&mut answer, asked.load_format, &context.http.plane);
    answer.body_mut().until_written(answering);
    if let Some(trace) = trace {
        trace.mark(Event::HttpSendStart, Instant::now());
        answer.body_mut().set_trace(trace);
    }
    Ok(answer)
}

pub(crate) fn inference(
    context: &HttpContext,
    model: &str,
    version: &str,
    headers: &HeaderMap,
) -> Result<Inference, Error> {
    let header = |name: &str| Some(RouteKey::of(headers.get(name)?.as_bytes()));
    context.http.plane.inference(model, AskedVersion::read(version)?, header)
}

/// What the tensors of a body hold at least: whatever follows its JSON is theirs.
fn least_bytes(body_length: usize, json_length: Option<usize>, compressed: bool) -> usize {
    match json_length {
        Some(json_length) if !compressed => body_length.saturating_sub(json_length),
        _ => 0,
    }
}

struct Received {
    body: Bytes,
    compressed: bool,
    json_length: JsonLength,
    frame: Frame,
    tell_timings: bool,
}

impl Received {
    async fn run(
        mut self,
        context: &HttpContext,
        answering: &mut Answering,
        inference: Inference,
        trace: Option<&Trace>,
    ) -> Result<HttpAnswer, Error> {
        if self.compressed {
            answering.prepare();
            let reserved = answering.take_reservation();
            let (body, reserved) =
                Box::pin(coding::decompressed(self.body, reserved, context, Owner::model(inference.spec())))
                    .await?;
            (self.body, answering.reservation) = (body, Some(reserved));
        }
        let json_length = self.json_length.within(self.body.len())?;
        let body = (&self.body, json_length);
        let begun = inference.begin_later(&context.http.plane.registry, &*context.io, async |attempt| {
            let Attempt { spec, reply, .. } = attempt;
            prepare(context, spec, body, self.frame.clone(), reply, answering).await
        });
        let Begun { mut waiting, spec, beside: (format, _held) } = begun.await?;
        answering.prepared();
        let large = self.body.len() >= LARGE_BODY;
        if large {
            context.io.net.pool.drop_there(self.body);
        } else {
            drop(self.body);
        }
        let OnlyAnswer { response, end, reservation } = waiting.only_answer(&spec.name).await?;
        if let Some(trace) = trace {
            trace.mark(Event::ResponseComplete, Instant::now());
        }
        let End { timings, mut request, .. } = end;
        // The writer needs what the request says, not its tensors.
        let inputs = std::mem::take(&mut request.inputs);
        if large {
            context.io.net.pool.drop_there(inputs);
        } else {
            drop(inputs);
        }
        // In the place of the body, which has gone.
        answering.reservation = reservation;
        let own = answering.reservation.as_ref().map_or(0, Reservation::bytes);
        context.io.net.budget.check_owed(own)?;
        let text_bytes = format.text_bytes(&response, &request.classes);
        let aside_bytes = format.aside_bytes(&response);
        let mut answer = if text_bytes < LONG_ANSWER && aside_bytes == 0 {
            response::write(&spec, &request, response, &format)?
        } else {
            let (spec, budget) = (spec.clone(), context.io.net.budget.clone());
            let owner = Owner::model(&spec);
            let work = move |_: &_| {
                // Others may have been written meanwhile.
                budget.check_owed(own)?;
                response::write(&spec, &request, response, &format)
            };
            Box::pin(context.io.net.pool.run(owner, text_bytes + aside_bytes, work)).await??
        };
        if self.tell_timings {
            answer::tell_timings(&mut answer, &timings);
        }
        Ok(answer)
    }
}

pub(crate) fn timeout(value: Option<&HeaderValue>) -> Result<Option<Duration>, Error> {
    let Some(value) = value else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    match text.trim().parse() {
        Ok(us) if us > 0 => Ok(Some(Duration::from_micros(us))),
        _ => Err(Error::invalid(format!(
            "Unable to parse {TIMEOUT}, expected microseconds above 0, got: {text}"
        ))),
    }
}

fn raw_too_large(bytes: usize, max: usize) -> Error {
    Error::invalid(format!(
        "Raw input has a byte_size ({bytes} bytes) that exceeds the maximum allowed value of {max} bytes. Use \
         --http-max-input-size to increase the limit."
    ))
}

pub(crate) fn body_too_large(bytes: usize, max: usize) -> Error {
    Error::invalid(format!(
        "request body of {bytes} bytes exceeds the maximum allowed input size of {max} bytes. Use \
         --http-max-input-size to increase the limit."
    ))
}

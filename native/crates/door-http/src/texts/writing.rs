//! Texts in, texts out: chats and completions, as clients of OpenAI know them.
//!
//! A body is read ([`body`]) into an [`Asked`]. Each of its prompts becomes a request to the model ([`binding`]), with the inputs
//! of Triton's vLLM backend. What comes back ([`piece`]) is written as the route has it ([`shape`]): at once, or as it comes
//! ([`flow`]).

mod binding;
mod body;
mod flow;
mod form;
mod members;
mod piece;
mod shape;

use std::time::Instant;

use bytes::Bytes;
use kushi_core::{Error, Request, Response, TextAnswer};
use kushi_dataplane::{Event, KeptVersion, Trace};
use kushi_net::{Answering, OnlyAnswer, Owner, Waiting};

use super::ask::called;
use super::{Aside, LONG_BODY, Received, model};
use crate::answer::HttpAnswer;
use crate::events;
use crate::limits::{LONG_ANSWER, LONG_JSON};

use binding::Binding;
use body::Asked;
pub(crate) use body::Style;
use flow::Flow;
use piece::Piece;
use shape::Shape;

impl Received<'_> {
    pub(super) async fn write(
        &mut self,
        style: Style,
        body: Bytes,
        answering: &mut Answering,
    ) -> Result<HttpAnswer, Error> {
        let length = body.len();
        let reading = Aside { owner: Owner::SERVER, work_bytes: length, inline_below: LONG_BODY };
        let asked = self.aside(reading, move || body::read(style, &body)).await??;
        answering.cover(length.saturating_add(asked.bytes()))?;
        let plane = &self.context.http.plane;
        let name = model::choose(plane, asked.model.as_deref(), Some(TextAnswer::Texts))?;
        self.trace = plane.traces.begin(&name, self.arrived, || self.seen.trace.read());
        if let Some(trace) = &self.trace {
            trace.mark(Event::HttpReceiveStart, self.arrived);
            trace.mark(Event::HttpReceiveEnd, Instant::now());
        }
        let inherited = self.trace.as_ref().map(Trace::context).unwrap_or_default();
        let kept = self.keep(&name, &inherited)?;
        answering.prepared();
        if let Some(texts) = kept.texts()
            && texts.facts().answer != TextAnswer::Texts
        {
            let given = called(texts.facts().answer);
            let text = format!("model '{name}' gives {given}, expected one that writes texts");
            return Err(Error::invalid(text));
        }
        let binding = Binding::of(kept.spec(), &asked)?;
        let shape = Shape::new(&asked, &name);
        let streams = asked.streams;
        let requests = self.begin_each(&kept, binding, asked).await?;
        if streams {
            let flow = Flow::new(kept.spec().clone(), requests, shape);
            return Ok(events::stream(flow, self.context, self.activity).await);
        }
        let mut responses = Vec::with_capacity(requests.len());
        let mut held = Vec::new();
        for mut waiting in requests {
            let OnlyAnswer { response, reservation, .. } = waiting.only_answer(&name).await?;
            responses.push(response);
            held.extend(reservation);
        }
        if let Some(trace) = &self.trace {
            trace.mark(Event::ResponseComplete, Instant::now());
        }
        let work_bytes = responses.iter().map(Response::byte_size).sum();
        let writing = Aside { owner: Owner::model(kept.spec()), work_bytes, inline_below: LONG_ANSWER };
        let spec = kept.spec().clone();
        let write = move || {
            let pieces = responses.iter().map(|response| Piece::read(&spec, response));
            Ok(shape.whole(&pieces.collect::<Result<Vec<_>, _>>()?))
        };
        self.written(writing, held, answering, write).await
    }

    /// One request for each prompt: all of them, or none.
    async fn begin_each(
        &self,
        kept: &KeptVersion,
        binding: Binding,
        asked: Asked,
    ) -> Result<Vec<Waiting>, Error> {
        let parameters = [binding::parameters(&asked), self.forwarded()?].concat();
        let (spec, count) = (kept.spec().clone(), asked.prompts.len());
        let work_bytes = asked.bytes();
        let copying = Aside { owner: Owner::model(&spec), work_bytes, inline_below: LONG_JSON };
        let bind = move || {
            let bound = asked.prompts.iter().map(|prompt| binding.bind(&spec, &asked, prompt));
            bound.collect::<Result<Vec<_>, _>>()
        };
        let begin = |bound| {
            let waiting = kept.begin(&*self.context.io, |reply| Request {
                parameters: parameters.clone(),
                deadline: self.deadline,
                ..Request::new(bound, self.arrived, reply)
            })?;
            if count > 1 {
                waiting.count_all();
            }
            Ok(waiting)
        };
        self.aside(copying, bind).await??.into_iter().map(begin).collect()
    }
}

//! Texts in, texts out: chats and completions, as clients of OpenAI know them.
//!
//! A body is read ([`body`]) into an [`Asked`]. Each of its prompts becomes a request to the model ([`binding`]), with the inputs
//! of Triton's vLLM backend. What comes back ([`piece`]) is written as the route has it ([`shape`]): at once, or as it comes
//! ([`flow`]).

mod binding;
mod body;
mod flow;
mod members;
mod piece;
mod shape;

use std::time::Instant;

use bytes::Bytes;
use kushi_core::{Error, Request, TextAnswer};
use kushi_dataplane::{Event, KeptVersion, Trace};
use kushi_net::{Answering, OnlyAnswer, Owner, Reservation, Waiting};

use super::ask::called;
use super::{Aside, LONG_BODY, Received, model};
use crate::answer::{self, HttpAnswer};
use crate::events;
use crate::limits::LONG_ANSWER;

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
        let requests = self.begin_each(&kept, &binding, &asked)?;
        if asked.streams {
            let flow = Flow::new(kept.spec().clone(), requests, shape, self.deadline);
            return Ok(events::stream(flow, self.context, self.activity).await);
        }
        let mut pieces = Vec::with_capacity(requests.len());
        let mut held = Vec::new();
        for mut waiting in requests {
            let OnlyAnswer { response, reservation, .. } = waiting.only_answer(&name).await?;
            pieces.push(Piece::read(kept.spec(), &response)?);
            held.extend(reservation);
        }
        if let Some(trace) = &self.trace {
            trace.mark(Event::ResponseComplete, Instant::now());
        }
        let work_bytes = pieces.iter().map(Piece::bytes).sum();
        let writing = Aside { owner: Owner::model(kept.spec()), work_bytes, inline_below: LONG_ANSWER };
        let budget = self.context.io.net.budget.clone();
        let write = move || {
            budget.check_owed(held.iter().map(Reservation::bytes).sum())?;
            Ok::<_, Error>((shape.whole(&pieces), held))
        };
        let (text, held) = self.aside(writing, write).await??;
        answering.owe_in_all(text.len());
        drop(held);
        Ok(answer::long_json(text))
    }

    /// One request for each prompt: all of them, or none.
    fn begin_each(
        &self,
        kept: &KeptVersion,
        binding: &Binding,
        asked: &Asked,
    ) -> Result<Vec<Waiting>, Error> {
        let forwarded = self.forwarded()?;
        let begin = |prompt: &String| {
            let bound = binding.bind(kept.spec(), asked, prompt)?;
            let parameters = [binding::parameters(asked), forwarded.clone()].concat();
            let waiting = kept.begin(&*self.context.io, |reply| Request {
                parameters,
                deadline: self.deadline,
                ..Request::new(bound, self.arrived, reply)
            })?;
            if asked.prompts.len() > 1 {
                waiting.count_all();
            }
            Ok(waiting)
        };
        asked.prompts.iter().map(begin).collect()
    }
}

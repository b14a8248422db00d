//! Two threads of a model: one makes prompts tokens, which may take long, the other one has all that goes on.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ThreadId;

use kushi_core::{Afterwards, Batch, Error, ErrorKind, Runner, SlotToken, os_text};

use crate::mail::{AnswerMail, News};
use crate::model::Model;
use crate::run::{Prepared, Run};
use crate::tokens::place_of;

/// A template may make values of any depth, and what is deep takes much of it to be dropped.
const STACK_BYTES: usize = 64 << 20;

pub(crate) enum Event {
    Begin(Box<Prepared>),
    News(News),
    /// All that goes on ends.
    Stop,
    /// The same, and nothing follows.
    Close,
}

/// The ways to both threads. That of prompts goes when its way does, the other one by [`Event::Close`].
pub(crate) struct Threads {
    pub prompts: Sender<(SlotToken, Batch)>,
    pub news: Sender<Event>,
    ids: [ThreadId; 2],
}

impl Threads {
    pub(crate) fn start(model: &Arc<Model>, tokens: Arc<Runner>) -> Result<Self, Error> {
        let (prompts, arrived) = channel();
        let (news, heard) = channel();
        let (model_of_prompts, to_answers) = (model.clone(), news.clone());
        let of_prompts =
            spawn(&model.name, "prompts", move || prepare(&model_of_prompts, &arrived, &to_answers))?;
        let answers = Answers {
            model: model.clone(),
            tokens,
            news: news.clone(),
            runs: HashMap::new(),
            next: 0,
            stopped: false,
        };
        let of_answers = spawn(&model.name, "answers", move || answers.run(&heard))?;
        Ok(Self { prompts, news, ids: [of_prompts, of_answers] })
    }

    /// Whether the caller is one of the two.
    pub(crate) fn is_one_of_them(&self) -> bool {
        self.ids.contains(&std::thread::current().id())
    }
}

fn spawn(model: &str, what: &str, work: impl FnOnce() + Send + 'static) -> Result<ThreadId, Error> {
    let thread = std::thread::Builder::new().name(format!("{model}_{what}")).stack_size(STACK_BYTES);
    let started = thread.spawn(work).map(|started| started.thread().id());
    started.map_err(|error| {
        let text = format!("cannot start a thread of a generative model: {}", os_text(&error));
        Error::new(ErrorKind::Internal, text)
    })
}

fn prepare(model: &Model, arrived: &Receiver<(SlotToken, Batch)>, answers: &Sender<Event>) {
    while let Ok((slot, batch)) = arrived.recv() {
        // what it was about is dropped where it panics, and ends by that
        let prepared = catch_unwind(AssertUnwindSafe(|| Prepared::new(model, slot, batch)));
        match prepared {
            Ok(Some(prepared)) => drop(answers.send(Event::Begin(Box::new(prepared)))),
            Ok(None) => {}
            Err(_) => log::error!("a prompt of model '{}' ended in a panic", model.name),
        }
    }
}

struct Answers {
    model: Arc<Model>,
    tokens: Arc<Runner>,
    news: Sender<Event>,
    runs: HashMap<u64, Run>,
    next: u64,
    /// Nothing begins any more.
    stopped: bool,
}

impl Answers {
    fn run(mut self, heard: &Receiver<Event>) {
        while let Ok(first) = heard.recv() {
            let _afterwards = Afterwards::open();
            let mut looked_at = Vec::new();
            let mut event = Some(first);
            while let Some(next) = event {
                if matches!(next, Event::Close) {
                    return self.stop();
                }
                self.take(next, &mut looked_at);
                event = heard.try_recv().ok();
            }
            looked_at.sort_unstable();
            looked_at.dedup();
            for key in looked_at {
                self.go_on(key);
            }
        }
    }

    fn take(&mut self, event: Event, looked_at: &mut Vec<u64>) {
        match event {
            Event::Begin(prepared) if self.stopped => prepared.batch.fail(&self.stopping()),
            Event::Begin(prepared) => {
                let key = self.next;
                self.next += 1;
                let mail = self.mail();
                let begun = || Run::begin(&self.model, &self.tokens, *prepared, mail, key);
                if let Some(Some(run)) = self.guarded(begun) {
                    self.runs.insert(key, run);
                    looked_at.push(key);
                }
            }
            Event::News(News::Mail(mail)) => {
                for mail in mail {
                    let (key, number) = place_of(mail.key);
                    let Some(mut run) = self.runs.remove(&key) else { continue };
                    if self.guarded(|| run.take(&self.model.face.tokenizer, number, mail)).is_some() {
                        self.runs.insert(key, run);
                        looked_at.push(key);
                    }
                }
            }
            Event::News(News::Look(key)) => looked_at.push(key),
            Event::Stop | Event::Close => self.stop(),
        }
    }

    fn go_on(&mut self, key: u64) {
        let Some(mut run) = self.runs.remove(&key) else { return };
        let wake = || self.mail().wake(key);
        if self.guarded(|| run.go_on(&self.model, wake)) == Some(true) {
            self.runs.insert(key, run);
        }
    }

    fn stop(&mut self) {
        self.stopped = true;
        let error = self.stopping();
        for run in std::mem::take(&mut self.runs).into_values() {
            self.guarded(|| run.stop(&error));
        }
    }

    /// Where news of its runs go.
    fn mail(&self) -> AnswerMail {
        let news = self.news.clone();
        AnswerMail::new(move |one| drop(news.send(Event::News(one))))
    }

    fn stopping(&self) -> Error {
        Error::new(ErrorKind::ShuttingDown, format!("model '{}' is being stopped", self.model.name))
    }

    /// `None` where it panics: what it was about is dropped, and ends by that.
    fn guarded<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(act)).ok();
        if done.is_none() {
            log::error!("an answer of model '{}' ended in a panic", self.model.name);
        }
        done
    }
}

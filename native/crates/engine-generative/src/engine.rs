//! A generative model, as a runner executes it: each of its slots has one request, from its beginning to its end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use kushi_core::{
    Batch, Capability, Engine, Error, ErrorKind, ModelSpec, OnReady, Readiness, Runner, Slot, SlotToken,
    Texts, WatchingThread,
};

use crate::face::Face;
use crate::model::{GenerativeOptions, Model};
use crate::threads::{Event, Threads};

pub struct GenerativeEngine {
    face: Arc<Face>,
    threads: Threads,
    tokens: Arc<Runner>,
}

impl GenerativeEngine {
    /// `tokens`: what runs the engine of tokens, under [`token_spec`](crate::token_spec). `tokenizer`: the content of a
    /// `tokenizer.json`.
    pub fn new(
        spec: &ModelSpec,
        tokens: Arc<Runner>,
        tokenizer: &[u8],
        options: GenerativeOptions,
    ) -> Result<Self, Error> {
        let model = Arc::new(Model::new(spec, tokenizer, options)?);
        Ok(Self { face: model.face.clone(), threads: Threads::start(&model, tokens.clone())?, tokens })
    }
}

impl Engine for GenerativeEngine {
    fn capability(&self) -> Capability {
        Capability { concurrent: true, inline: false, keeps_slots: true }
    }

    fn readiness(&self) -> Option<Arc<dyn Readiness>> {
        Some(Arc::new(OfTokens(Arc::downgrade(&self.tokens))))
    }

    fn texts(&self) -> Option<Arc<dyn Texts>> {
        Some(self.face.clone())
    }

    /// Never called: the slot is kept until the answer has its end.
    fn execute(&self, _slot: &mut Slot, batch: Batch) {
        batch.fail(&Error::new(ErrorKind::Internal, "a generative model keeps its slots"));
    }

    fn begin(&self, slot: SlotToken, batch: Batch) {
        // Where the thread has gone, both come to their end by being dropped.
        let _ = self.threads.prompts.send((slot, batch));
    }

    /// What goes on ends by [`Self::stop_unanswered`].
    fn stop_run(&self, _slot: usize) -> bool {
        true
    }

    fn stop_unanswered(&self) {
        let _ = self.threads.news.send(Event::Stop);
    }

    fn begin_to_leave(&self) {
        self.tokens.stop_admitting();
    }
}

impl Drop for GenerativeEngine {
    fn drop(&mut self) {
        let _ = self.threads.news.send(Event::Close);
        let tokens = self.tokens.clone();
        let retire = move || {
            tokens.retire(Duration::ZERO);
        };
        // It waits, which an io thread must not, and the thread of the answers may be what it waits for.
        if WatchingThread::number() > 0 || self.threads.is_one_of_them() {
            drop(std::thread::Builder::new().name("kushi-retire".into()).spawn(retire));
        } else {
            retire();
        }
    }
}

struct OfTokens(Weak<Runner>);

impl Readiness for OfTokens {
    fn is_ready(&self) -> bool {
        self.0.upgrade().is_some_and(|tokens| tokens.is_ready())
    }

    fn ask(&self, on_answer: OnReady) {
        match self.0.upgrade() {
            Some(tokens) => tokens.ask_ready(on_answer),
            None => on_answer(false),
        }
    }
}

//! The odd second tenant: an engine that keeps its slots.

use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};

use kushi_core::{Batch, Capability, DataType, Engine, ModelSpec, Slot, SlotToken};

use super::{Model, Subject};
use crate::lock;

/// The same subject on engines that keep their slots: a thread behind each executes the batches, answers
/// them and gives the slots back.
pub struct Aside<S>(pub S);

impl<S: Subject> Subject for Aside<S> {
    fn engine(&self, model: Model, spec: &ModelSpec) -> Arc<dyn Engine> {
        Arc::new(Keeping::new(self.0.engine(model, spec)))
    }

    fn takes(&self, datatype: DataType) -> bool {
        self.0.takes(datatype)
    }

    fn has_optional_inputs(&self) -> bool {
        self.0.has_optional_inputs()
    }
}

struct Keeping {
    engine: Arc<dyn Engine>,
    /// `None` once there is nobody to execute them.
    batches: Mutex<Option<mpsc::Sender<(SlotToken, Batch)>>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeping {
    fn new(engine: Arc<dyn Engine>) -> Self {
        let (sender, batches) = mpsc::channel::<(SlotToken, Batch)>();
        let behind = engine.clone();
        let thread = thread::spawn(move || {
            for (mut slot, batch) in batches {
                behind.execute(&mut slot, batch);
            }
        });
        Self { engine, batches: Mutex::new(Some(sender)), thread: Some(thread) }
    }
}

impl Engine for Keeping {
    fn capability(&self) -> Capability {
        Capability { inline: false, keeps_slots: true, ..self.engine.capability() }
    }

    fn execute(&self, _slot: &mut Slot, _batch: Batch) {
        unreachable!("it keeps its slots")
    }

    fn begin(&self, slot: SlotToken, batch: Batch) {
        if let Some(batches) = &*lock(&self.batches) {
            // What cannot be sent is dropped, which answers it and gives the slot back.
            let _ = batches.send((slot, batch));
        }
    }

    fn end_run(&self, slot: usize) -> bool {
        self.engine.end_run(slot)
    }

    fn stop_run(&self, slot: usize) -> bool {
        self.engine.stop_run(slot)
    }

    fn revoke_end(&self, slot: usize) {
        self.engine.revoke_end(slot);
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        lock(&self.batches).take();
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok(), "the engine behind panicked");
        }
    }
}

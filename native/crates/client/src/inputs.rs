//! The names of models' inputs, for callers that give tensors by their position: asked for once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Models whose inputs are remembered; beyond it all are asked for again.
const MAX_MODELS: usize = 1024;
/// Of one model: bounds what a hostile server makes the client remember.
pub(crate) const MAX_INPUTS: usize = 1024;

/// In the model's order.
pub(crate) type InputNames = Rc<[String]>;

/// Of a model's versions, as callers name them.
#[derive(Default)]
pub(crate) struct KnownInputs(RefCell<HashMap<(String, String), InputNames>>);

impl KnownInputs {
    pub(crate) fn get(&self, model: &str, version: &str) -> Option<InputNames> {
        self.0.borrow().get(&(model.to_owned(), version.to_owned())).cloned()
    }

    pub(crate) fn learn(&self, model: &str, version: &str, names: Vec<String>) -> InputNames {
        let names: InputNames = names.into();
        let mut known = self.0.borrow_mut();
        if known.len() >= MAX_MODELS {
            known.clear();
        }
        known.insert((model.to_owned(), version.to_owned()), names.clone());
        names
    }

    /// A model may have other inputs by now.
    pub(crate) fn forget(&self) {
        self.0.borrow_mut().clear();
    }
}

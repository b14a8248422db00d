//! Models of texts: a network that takes tokens is served as one that takes texts.
//!
//! The engine has room for a few batches ([`waiting`]) behind the runner's queue: requests are taken apart into texts, texts
//! become tokens ([`row`]), and rows of like length share a batch ([`pool`]), whatever requests they are of. A request is answered
//! when the last of its texts is ([`job`]). What the network gives for the tokens of a row becomes its answer in
//! [`pooling`].

mod engine;
mod face;
mod job;
mod model;
mod pool;
mod pooling;
mod row;
mod waiting;

pub use engine::TextEngine;
pub use model::{TextModel, TextOptions};
pub use pooling::{Activation, Pooling};

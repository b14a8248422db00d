//! Ensembles: models that are made of others.
//!
//! An ensemble is a version like any other: a runner, whose engine is an [`Ensemble`]. Its graph ([`Graph`]) is fixed;
//! which models stand behind the steps is found again after each reload ([`plan`]). A request is a [`run`], which begins
//! each step as soon as its inputs are there. Answers of steps come to the ensemble's mailbox, which only collects; what
//! follows from them is done by the thread that brought them, afterwards, or by the one beside ([`beside`]).

mod beside;
mod branches;
mod engine;
mod graph;
mod plan;
mod run;
mod scheduler;

pub(crate) use beside::Beside;
pub(crate) use engine::Ensemble;
pub(crate) use graph::Graph;
pub use graph::StepSpec;
pub(crate) use scheduler::AllAtOnce;

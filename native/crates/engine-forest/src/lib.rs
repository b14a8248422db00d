//! Executes forests of decision trees, as XGBoost, LightGBM, scikit-learn and cuML make them.
//!
//! A [`Forest`] is read from a checkpoint of Treelite, into which all these formats can be turned. It is laid out anew:
//! the two children of a node lie side by side, every question is "is it less than", and a leaf leads to itself. So a
//! step down a tree is the same few instructions wherever it is, and several rows, or several trees for one row, go down
//! at the same time. A [`ForestEngine`] executes batches of the core with it.
#![forbid(unsafe_code)]

mod answer;
mod checkpoint;
mod contributions;
mod engine;
mod finish;
mod forest;
mod layout;
mod model;
mod predict;
mod reader;
mod walk;

pub use answer::Answer;
pub use engine::ForestEngine;
pub use forest::{Forest, Task};
pub use model::{ForestModel, ForestOptions};

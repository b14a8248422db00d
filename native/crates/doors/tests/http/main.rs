//! A whole server on a puppet engine, asked over real sockets.

mod answers;
mod bodies;
mod ending;
mod generate;
#[path = "../parts/log.rs"]
mod log;
mod placement;
mod site;

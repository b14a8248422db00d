//! A whole server on a puppet engine, asked over real sockets.

mod answers;
mod bodies;
mod chunks;
mod ending;
mod framing;
mod generate;
#[path = "../parts/options.rs"]
mod options;
mod placement;
mod site;
mod waiting;

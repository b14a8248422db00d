//! A whole server on a puppet engine, asked over its local door by a client that sends any bytes.

mod answers;
mod client;
mod ending;
mod hostile;
mod log;
#[path = "../parts/options.rs"]
mod options;
mod site;
mod slots;

//! A whole server on a puppet engine, asked over real sockets.

mod answers;
mod ending;
mod placement;
mod site;

//! Exchanges over real sockets with servers that do exactly what a test tells them.

mod answers;
mod asking;
mod driver;
mod properties;
mod server;

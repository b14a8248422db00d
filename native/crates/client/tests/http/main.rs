//! The HTTP client against servers that do exactly what a test tells them.

mod answers;
mod asking;
mod connections;
mod errors;
mod hostile;
mod scripted;

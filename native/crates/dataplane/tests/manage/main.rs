//! What can be asked about a data plane and changed in it, without any door.

mod health;
mod models;
mod regions;
mod repository;
mod settings;
mod site;

//! The core with puppet engines: what a model's clients see of queues, batches and instances.

mod affinity;
mod arranged_batches;
mod batching;
mod binding;
mod bounded_queue;
mod cancellation;
mod children;
mod classes;
mod credit;
mod deadlines;
mod drain;
mod endless_runs;
mod errors;
mod failed_batches;
mod instances;
mod late_slots;
mod leases;
mod memory;
mod ordering;
mod priorities;
mod properties;
mod replies;
mod slot_tokens;
mod statistics;
mod unanswered;

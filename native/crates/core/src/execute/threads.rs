//! Instance threads, and clock threads: they sleep until a slot of their model has work, and drive it.

use std::num::NonZeroU64;
use std::sync::Arc;

use rustix::thread::CpuSet;

use crate::base::sync::thread::{Builder, JoinHandle};
use crate::execute::runner::Runner;
use crate::{Error, ErrorKind, Step, os_text};

/// How far below io threads the scheduler of the operating system ranks the calling thread from now on.
const NICENESS: i32 = 10;

/// Lets io threads go first: the answer to a short request should not wait for a long model.
pub fn lower_priority() {
    if let Err(error) = rustix::process::nice(NICENESS) {
        log::debug!("instance threads run at the priority of io threads: {error}");
    }
}

/// That of one instance.
pub(crate) fn spawn(runner: &Arc<Runner>, index: usize) -> Result<JoinHandle<()>, Error> {
    spawn_one(runner, index, format!("{}_{index}", runner.spec().name))
}

/// The only thread of a model whose engines keep their slots: it minds delays and timeouts, and leads
/// where a lease was dropped.
pub(crate) fn spawn_clock(runner: &Arc<Runner>) -> Result<JoinHandle<()>, Error> {
    spawn_one(runner, 0, format!("{}_clock", runner.spec().name))
}

fn spawn_one(of: &Arc<Runner>, index: usize, name: String) -> Result<JoinHandle<()>, Error> {
    let runner = of.clone();
    let work = move || {
        (runner.thread_start)();
        if !runner.keeps_slots
            && let Some(cores) = runner.spec().cores.get(index)
        {
            stay_on(cores);
        }
        drive(&runner, index);
    };
    of.handover.enlist(index);
    Builder::new().name(name).spawn(work).map_err(|error| {
        of.handover.dismiss(index);
        Error::new(ErrorKind::Internal, format!("cannot start an instance thread: {}", os_text(&error)))
    })
}

/// Wakes from a batching delay when it ends, not up to 50 µs later as Linux would have it.
fn wake_precisely() {
    // Refused where the kernel lacks it; then the delay is as coarse as there.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Keeps the calling thread, and those that it starts, on these cores, which were found usable when the model was read.
pub fn stay_on(cores: &[usize]) {
    let mut set = CpuSet::new();
    cores.iter().filter(|&&core| core < CpuSet::MAX_CPU).for_each(|&core| set.set(core));
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        log::warn!("an instance thread cannot be kept on its cores {cores:?}: {}", os_text(&error.into()));
    }
}

fn drive(runner: &Arc<Runner>, index: usize) {
    wake_precisely();
    while let Some(mut lease) = runner.wait(index) {
        while let Step::Again(next) = lease.run() {
            match runner.pass_on(next) {
                Some(next) => lease = next,
                None => break,
            }
        }
    }
}

//! A server that does not come into being for want of file descriptors. In a process of its own: the limit
//! is the process's.

use std::fs;

use kushi_server::Server;
use kushi_testkit::until;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::options::options;

#[path = "parts/options.rs"]
mod options;

fn io_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("kushi-io") || name.starts_with("kushi-accept")).count()
}

#[test]
fn io_threads_end_when_one_of_them_cannot_begin() {
    let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let usual = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(open + 40), ..usual }).unwrap();
    let error = Server::start(&options(64)).map(drop).unwrap_err();
    setrlimit(Resource::Nofile, usual).unwrap();
    assert!(error.message.starts_with("cannot start an io thread: Too many open files"), "{error}");
    until("no threads that are left behind", || io_threads() == 0);
}

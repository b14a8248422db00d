//! The process of a worker, or the thread of one in this process: how it is started, and how it ended.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::CpuSet;

use crate::output::PrintedOutput;

/// Held while a process begins: libraries of the program may have something to do around a fork (`pthread_atfork`), and
/// not all stand two at a time. That of grpcio ends the program.
static FORKING: Mutex<()> = Mutex::new(());

/// The numbers of processes that nobody has waited for yet: they are nobody else's.
static IN_TABLE: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Kills all workers with what they have started: this process ends without having ended them one by one.
pub fn kill_all() {
    let numbers = IN_TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    for group in numbers.iter().filter_map(|&number| rustix::process::Pid::from_raw(number.cast_signed())) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// How a worker is started.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The interpreter and its arguments; the number of the socket comes behind them.
    pub command: Vec<String>,
    /// Beside those of the server.
    pub environment: Vec<(String, String)>,
    pub directory: PathBuf,
    /// In the log, and in errors.
    pub name: String,
    /// Those that the process is kept on, with all that it starts; empty: any will do.
    #[serde(default)]
    pub cores: Vec<usize>,
    /// Where there is one, it is started instead of a process.
    #[serde(skip)]
    pub thread: Option<InProcess>,
}

/// Starts a worker on a thread of this process. It gets the socket, and what it closes when it ends.
#[derive(Clone)]
pub struct InProcess(pub Arc<dyn Fn(OwnedFd, OwnedFd) -> io::Result<()> + Send + Sync>);

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InProcess")
    }
}

pub(crate) struct Process {
    /// `None`: it is a thread of this process, which nobody can end.
    child: Option<Child>,
    /// Nobody has asked how it ended, so its number, which is that of its group as well, is nobody else's.
    is_in_table: bool,
    /// Readable once it has ended, also where a child of its own keeps the socket open.
    pub(crate) ended: OwnedFd,
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) output: PrintedOutput,
}

impl Process {
    /// It ends with the thread that has started it.
    pub(crate) fn start(launch: &Launch) -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let (output, writer) = io::pipe()?;
        if let Some(InProcess(start)) = &launch.thread {
            // Nothing is printed here.
            drop(writer);
            let (ended, ending) = io::pipe()?;
            start(theirs, ending.into())?;
            let output = PrintedOutput::new(output, launch.name.clone())?;
            let (ended, socket) = (ended.into(), Arc::new(ours));
            return Ok(Self { child: None, is_in_table: false, ended, socket, output });
        }
        let (program, arguments) = launch.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        // Where it is gone, what was kept of it runs on elsewhere.
        if launch.directory.is_dir() {
            command.current_dir(&launch.directory);
        }
        command
            .args(arguments)
            .arg(theirs.as_raw_fd().to_string())
            .envs(launch.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0);
        let (socket, parent) = (theirs.as_raw_fd(), std::process::id());
        let cores = (!launch.cores.is_empty()).then(|| set_of(&launch.cores));
        // SAFETY: between fork and exec only system calls are made, which allocate nothing.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid().cast_unsigned() != parent {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                if let Some(cores) = &cores {
                    rustix::thread::sched_setaffinity(None, cores)?;
                }
                // Without the mark that would close it.
                if libc::fcntl(socket, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let output = PrintedOutput::new(output, launch.name.clone())?;
        let mut child = {
            let _alone = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
            command.spawn()?
        };
        let ended = pidfd(&child).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        IN_TABLE.lock().unwrap_or_else(PoisonError::into_inner).insert(child.id());
        Ok(Self { child: Some(child), is_in_table: true, ended, socket: Arc::new(ours), output })
    }

    /// Of this process.
    pub(crate) fn is_thread(&self) -> bool {
        self.child.is_none()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().map_or_else(std::process::id, Child::id)
    }

    /// With the processes that it has started, but for those that have left its group.
    ///
    /// A thread ends when it reads: where it hangs it is left behind.
    pub(crate) fn kill(&mut self) {
        let Some(child) = &mut self.child else {
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
            return;
        };
        if !self.is_in_table {
            return;
        }
        // Each may have ended by itself, and the process may have left its group.
        let _ = child.kill();
        if let Some(group) = number_of(child) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }

    /// Waits for its end; one that does not come is brought about. What it has started ends with it.
    pub(crate) fn end(mut self, patience: Duration, was_ready: bool) -> Ended {
        wait_for(&self.ended, patience);
        let status = self.reap();
        self.output.read_rest();
        Ended { status, tail: self.output.tail(was_ready) }
    }

    /// None is left behind as a zombie.
    fn reap(&mut self) -> Option<ExitStatus> {
        self.kill();
        self.is_in_table = false;
        IN_TABLE.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id());
        self.child.as_mut().and_then(|child| child.wait().ok())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_in_table {
            self.reap();
        }
    }
}

fn set_of(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().filter(|&&core| core < CpuSet::MAX_CPU).for_each(|&core| set.set(core));
    set
}

fn number_of(child: &Child) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(child.id().cast_signed())
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    let number = number_of(child).ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty())?)
}

/// Returns when the process has ended, or after `patience`.
fn wait_for(ended: &OwnedFd, patience: Duration) {
    let until = Instant::now() + patience;
    loop {
        let patience = timespec(until.saturating_duration_since(Instant::now()));
        let mut descriptors = [rustix::event::PollFd::new(ended, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut descriptors, Some(&patience)) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

pub(crate) fn timespec(time: Duration) -> rustix::event::Timespec {
    rustix::event::Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) }
}

/// How a process ended.
pub(crate) struct Ended {
    status: Option<ExitStatus>,
    tail: String,
}

impl Ended {
    pub(crate) fn description(&self) -> String {
        let how = match self.status {
            None => "it ended".into(),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("it exited with code {code}"),
                (None, Some(signal)) => format!("it was killed by signal {signal} ({})", signal_name(signal)),
                (None, None) => status.to_string(),
            },
        };
        if self.tail.is_empty() { how } else { format!("{how}; the last it printed:\n{}", self.tail) }
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => "SIGABRT: it aborted",
        libc::SIGBUS => "SIGBUS: a bus error",
        libc::SIGFPE => "SIGFPE: an arithmetic error",
        libc::SIGILL => "SIGILL: an illegal instruction",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV: a segmentation fault",
        libc::SIGTERM => "SIGTERM",
        _ => "a signal",
    }
}

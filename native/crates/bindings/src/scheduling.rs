//! Threads that compute for long let threads that answer go first.
//!
//! Niceness says who gets more of a busy processor. It does not say how soon: Linux lets a running
//! thread finish its slice. So instance threads ask for long slices, which others with shorter ones
//! may interrupt at once. What it is worth: `python -m benchmarks.interference`.

use kushi_core::lower_priority;

/// The longest slice that the kernel grants.
const SLICE_NS: u64 = 100_000_000;

/// For the calling thread, and for threads that it starts.
pub(crate) fn give_way() {
    lower_priority();
    if let Err(error) = lengthen_slice() {
        log::debug!("instance threads run with slices of the usual length: {error}");
    }
}

/// Kernels before 6.12 take the wish and ignore it.
fn lengthen_slice() -> std::io::Result<()> {
    // SAFETY: all fields are plain numbers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the kernel writes at most `size` bytes of the attributes of the calling thread.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if read < 0 {
        return Err(std::io::Error::last_os_error());
    }
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the kernel reads the attributes, whose size they carry.
    let written = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if written < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

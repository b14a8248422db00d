//! What this process takes of memory beside what it uses.

use std::thread;

/// Gives back what the allocator keeps, on a thread of its own: it looks at all that is free, which takes a while.
pub(crate) fn give_memory_back() {
    let begun = thread::Builder::new().name("kushi-memory".to_owned()).spawn(|| {
        #[cfg(target_env = "gnu")]
        // SAFETY: it may be called at any time, by any thread.
        unsafe {
            libc::malloc_trim(0);
        }
    });
    if let Err(error) = begun {
        log::debug!("memory stays with the allocator: no thread began: {error}");
    }
}

//! Whether a server that says nothing is at work, or waits for a processor or a disk: its silence says nothing then.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use kushi_shm::peer;

/// False also where nothing can be seen: in another namespace of processes, or where both ends are of one process.
pub(super) fn is_at_work(stream: &UnixStream) -> bool {
    let process = peer(stream).map_or(0, |peer| peer.process.unsigned_abs());
    process != 0
        && process != std::process::id()
        && any_thread_runs(Path::new(&format!("/proc/{process}/task")))
}

fn any_thread_runs(threads: &Path) -> bool {
    let Ok(entries) = fs::read_dir(threads) else { return false };
    entries.flatten().any(|thread| fs::read(thread.path().join("stat")).is_ok_and(|stat| runs(&stat)))
}

/// R: it uses a processor or waits for one; D: it waits for a disk. The name before it may be anything.
fn runs(stat: &[u8]) -> bool {
    let behind_name = stat.iter().rposition(|&byte| byte == b')').map_or(stat, |end| &stat[end + 1..]);
    matches!(behind_name.trim_ascii_start().first(), Some(b'R' | b'D'))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_state_of_a_thread_stands_behind_its_name() {
        assert!(runs(b"7 (kushi-io-0) R 1 7 7 0"));
        assert!(runs(b"7 (odd) S (name) D 1 7 7 0"));
        assert!(!runs(b"7 (odd) R (name) S 1 7 7 0"));
        assert!(!runs(b"7 (frozen) T 1 7 7 0"));
        assert!(!runs(b""));
    }

    #[test]
    fn nothing_is_seen_of_threads_of_the_same_process() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        assert!(any_thread_runs(Path::new("/proc/self/task")));
        assert!(!is_at_work(&one));
    }
}

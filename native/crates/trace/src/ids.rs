//! Ids of traces and spans: random, never zero, and cheap.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::rand::{GetRandomFlags, getrandom};

/// The step of splitmix64, whose outputs are a permutation of its counts.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

static SEED: OnceLock<[u64; 2]> = OnceLock::new();
static COUNT: AtomicU64 = AtomicU64::new(0);

pub fn new_span_id() -> u64 {
    loop {
        let id = mixed(seed()[0].wrapping_add(next().wrapping_mul(STEP)));
        if id != 0 {
            return id;
        }
    }
}

pub fn new_trace_id() -> u128 {
    let high = mixed(seed()[1].wrapping_add(next().wrapping_mul(STEP)));
    u128::from(high) << 64 | u128::from(new_span_id())
}

fn next() -> u64 {
    COUNT.fetch_add(1, Ordering::Relaxed)
}

fn seed() -> &'static [u64; 2] {
    SEED.get_or_init(|| {
        let mut bytes = [0; 16];
        if getrandom(&mut bytes, GetRandomFlags::empty()).is_err() {
            // Told apart from other processes, if not unguessable: nothing secret hangs on it.
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let now = now.unwrap_or_default().as_nanos();
            bytes = (now ^ u128::from(std::process::id()) << 96).to_le_bytes();
        }
        let (low, high) = bytes.split_at(8);
        [low, high].map(|half| half.iter().fold(0, |seed, &byte| seed << 8 | u64::from(byte)))
    })
}

fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_ids_are_the_same() {
        let spans: HashSet<u64> = (0..10_000).map(|_| new_span_id()).collect();
        let traces: HashSet<u128> = (0..10_000).map(|_| new_trace_id()).collect();
        assert_eq!((spans.len(), traces.len()), (10_000, 10_000));
        assert!(!spans.contains(&0));
    }
}

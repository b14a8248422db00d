//! Which models ask which: a call that closes a ring is refused, since the instance that makes it may be the one that is
//! waited for.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kushi_core::{Error, ErrorKind};

/// What was seen so far: models that ask, and whom.
#[derive(Default)]
pub struct CallCycles {
    known: Mutex<HashMap<String, BTreeSet<String>>>,
}

impl CallCycles {
    /// Before `caller` asks another model. Fails where that one asks `caller`, perhaps through others.
    pub fn enter(&self, caller: &str, asked: &str) -> Result<(), Error> {
        let mut known = self.known();
        if known.get(caller).is_some_and(|others| others.contains(asked)) {
            return Ok(());
        }
        if let Some(way) = way(&known, asked, caller) {
            let ring = std::iter::once(caller).chain(way).collect::<Vec<_>>().join("' → '");
            let text = format!("model '{caller}' cannot ask '{asked}': that would be a ring: '{ring}'");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        known.entry(caller.into()).or_default().insert(asked.into());
        Ok(())
    }

    /// Another version may ask others.
    pub fn forget(&self, caller: &str) {
        self.known().remove(caller);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, BTreeSet<String>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From one model to another, both included.
fn way<'a>(known: &'a HashMap<String, BTreeSet<String>>, from: &'a str, to: &'a str) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::from([from]);
    let mut ways = vec![vec![from]];
    while let Some(way) = ways.pop() {
        let last = *way.last()?;
        if last == to {
            return Some(way);
        }
        for next in known.get(last).into_iter().flatten() {
            if seen.insert(next) {
                ways.push(way.iter().copied().chain([next.as_str()]).collect());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_closes_a_ring_is_refused_by_name() {
        let cycles = CallCycles::default();
        for (caller, callee) in [("a", "b"), ("b", "c"), ("a", "c"), ("a", "b")] {
            cycles.enter(caller, callee).unwrap();
        }
        let text = |caller, callee| cycles.enter(caller, callee).unwrap_err().to_string();
        assert_eq!(text("c", "a"), "model 'c' cannot ask 'a': that would be a ring: 'c' → 'a' → 'c'");
        assert_eq!(text("c", "b"), "model 'c' cannot ask 'b': that would be a ring: 'c' → 'b' → 'c'");
        assert!(text("d", "d").ends_with("'d' → 'd'"));
        // What was refused is not remembered.
        cycles.enter("d", "a").unwrap();
    }

    #[test]
    fn another_version_may_ask_others() {
        let cycles = CallCycles::default();
        cycles.enter("a", "b").unwrap();
        cycles.forget("a");
        cycles.enter("b", "a").unwrap();
        assert!(cycles.enter("a", "b").is_err());
    }
}

//! Whether an engine can execute just now, as far as can be seen, and as its model says.

use std::sync::Arc;

use crate::base::sync::{Mutex, lock};

/// Hears an answer, once, on any thread. It must not wait.
pub type OnReady = Box<dyn FnOnce(bool) + Send>;

/// Asked from any thread, without waiting.
pub trait Readiness: Send + Sync {
    fn is_ready(&self) -> bool;

    /// The same and what the model says of itself, which may come later.
    fn ask(&self, on_answer: OnReady) {
        on_answer(self.is_ready());
    }
}

struct Open {
    left: usize,
    on_answer: Option<OnReady>,
}

/// Asks each of them. The first answer that is `decisive` is that of all; where there is none it is the other.
pub fn ask_each<T>(
    asked: impl ExactSizeIterator<Item = T>,
    ask: impl Fn(T, OnReady),
    decisive: bool,
    on_answer: OnReady,
) {
    let left = asked.len();
    if left == 0 {
        on_answer(!decisive);
        return;
    }
    let open = Arc::new(Mutex::new(Open { left, on_answer: Some(on_answer) }));
    for one in asked {
        let open = open.clone();
        let hear = move |ready: bool| {
            let mut open = lock(&open);
            open.left -= 1;
            let decided = ready == decisive || open.left == 0;
            let on_answer = if decided { open.on_answer.take() } else { None };
            drop(open);
            if let Some(on_answer) = on_answer {
                on_answer(ready);
            }
        };
        ask(one, Box::new(hear));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn answer_of(said: &[bool], decisive: bool) -> Vec<bool> {
        let (sender, receiver) = mpsc::channel();
        let on_answer = Box::new(move |ready| sender.send(ready).unwrap());
        ask_each(said.iter(), |&ready, on_answer| on_answer(ready), decisive, on_answer);
        receiver.iter().collect()
    }

    #[test]
    fn there_is_one_answer_for_all() {
        for (said, any, all) in [
            (&[true, false, true][..], true, false),
            (&[false, false], false, false),
            (&[true, true], true, true),
            (&[false, true], true, false),
            (&[], false, true),
        ] {
            assert_eq!((answer_of(said, true), answer_of(said, false)), (vec![any], vec![all]), "{said:?}");
        }
    }
}

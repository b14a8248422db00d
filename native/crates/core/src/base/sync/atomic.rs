//! Loom's atomics, with the order that `SeqCst` gives: loom itself takes it for `AcqRel`, and would report interleavings
//! that cannot happen. A fence stands between two accesses of a thread that are both `SeqCst`.

use std::cell::Cell;

use loom::sync::atomic as loom_atomic;
pub(crate) use loom_atomic::Ordering;

loom::thread_local! {
    static FOLLOWS_ANOTHER: Cell<bool> = Cell::new(false);
}

fn order(ordering: Ordering) -> Ordering {
    if ordering == Ordering::SeqCst && FOLLOWS_ANOTHER.with(|follows| follows.replace(true)) {
        loom_atomic::fence(Ordering::SeqCst);
    }
    ordering
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(loom_atomic::$name);

        impl $name {
            pub(crate) fn load(&self, ordering: Ordering) -> $value {
                self.0.load(order(ordering))
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU8, u8);
atomic!(AtomicUsize, usize);

impl AtomicBool {
    pub(crate) fn store(&self, value: bool, ordering: Ordering) {
        self.0.store(value, order(ordering));
    }
}

impl AtomicU8 {
    pub(crate) fn new(value: u8) -> Self {
        Self(loom_atomic::AtomicU8::new(value))
    }

    pub(crate) fn compare_exchange(&self, old: u8, new: u8, set: Ordering, get: Ordering) -> Result<u8, u8> {
        self.0.compare_exchange(old, new, order(set), get)
    }

    pub(crate) fn fetch_update(
        &self,
        set: Ordering,
        get: Ordering,
        next: impl FnMut(u8) -> Option<u8>,
    ) -> Result<u8, u8> {
        self.0.fetch_update(order(set), get, next)
    }
}

impl AtomicUsize {
    pub(crate) fn compare_exchange(
        &self,
        old: usize,
        new: usize,
        set: Ordering,
        get: Ordering,
    ) -> Result<usize, usize> {
        self.0.compare_exchange(old, new, order(set), get)
    }

    pub(crate) fn fetch_add(&self, more: usize, ordering: Ordering) -> usize {
        self.0.fetch_add(more, order(ordering))
    }

    pub(crate) fn fetch_sub(&self, less: usize, ordering: Ordering) -> usize {
        self.0.fetch_sub(less, order(ordering))
    }
}

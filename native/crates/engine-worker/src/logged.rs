//! What a model writes by its logger.

use std::time::Instant;

use bytes::Bytes;

use crate::lines::{Allowance, LINE_BYTES, warn_left_out};
use crate::parts::{TEXT_BYTES, text_of};

pub(crate) struct Logged {
    name: String,
    allowance: Allowance,
}

impl Logged {
    pub(crate) fn new(name: String) -> Self {
        Self { name, allowance: Allowance::new(Instant::now()) }
    }

    pub(crate) fn write(&mut self, level: u32, text: &Bytes) {
        let level = match level {
            0 => log::Level::Error,
            1 => log::Level::Warn,
            2 => log::Level::Info,
            _ => log::Level::Debug,
        };
        self.report(Instant::now());
        for line in text_of(text, TEXT_BYTES).lines().flat_map(|line| line.as_bytes().chunks(LINE_BYTES)) {
            if self.allowance.admits() {
                log::log!(level, "{}: {}", self.name, String::from_utf8_lossy(line).trim_end());
            }
        }
    }

    /// Says how many lines were left out, once the second is over. To be called now and then.
    pub(crate) fn report(&mut self, now: Instant) {
        warn_left_out(&self.name, self.allowance.renew(now));
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        warn_left_out(&self.name, self.allowance.end());
    }
}

//! A request that takes one response, and no other number.

use crate::{End, Error, ErrorKind};

/// What has come before the end. `T` is a response, with whatever its asker keeps beside it.
#[derive(Debug)]
pub struct OnlyResponse<T> {
    last: Option<T>,
    count: usize,
}

impl<T> Default for OnlyResponse<T> {
    fn default() -> Self {
        Self { last: None, count: 0 }
    }
}

impl<T> OnlyResponse<T> {
    /// Answers the one that came before, which is of no use any more: it is dropped where no lock is held.
    pub fn put(&mut self, response: T) -> Option<T> {
        self.count += 1;
        self.last.replace(response)
    }

    /// The response, when the request ended well with exactly one. Takes the result out of `end`.
    pub fn close(self, model: &str, end: &mut End) -> Result<T, Error> {
        self.close_or(end, |count| format!("model '{model}' gave {count} responses, expected exactly 1"))
    }

    /// The same with another text about their number.
    pub fn close_or(self, end: &mut End, text: impl FnOnce(usize) -> String) -> Result<T, Error> {
        std::mem::replace(&mut end.result, Ok(()))?;
        let count = self.count;
        self.last.filter(|_| count == 1).ok_or_else(|| Error::new(ErrorKind::EngineFailed, text(count)))
    }
}

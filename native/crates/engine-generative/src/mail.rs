//! Where the engine of tokens answers.

use std::sync::Arc;

use kushi_core::{Mail, Mailbox};

/// Has a run looked at again.
pub(crate) type Wake = Box<dyn FnOnce() + Send>;

/// What a run hears of.
pub(crate) enum News {
    Mail(Vec<Mail>),
    /// There may be room for more, or nobody waits any more.
    Look(u64),
}

/// It only collects.
#[derive(Clone)]
pub(crate) struct AnswerMail(Arc<dyn Fn(News) + Send + Sync>);

impl AnswerMail {
    pub(crate) fn new(tell: impl Fn(News) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(crate) fn wake(&self, key: u64) -> Wake {
        let tell = self.0.clone();
        Box::new(move || tell(News::Look(key)))
    }
}

impl Mailbox for AnswerMail {
    fn deliver(&self, mail: Vec<Mail>) {
        self.0(News::Mail(mail));
    }
}

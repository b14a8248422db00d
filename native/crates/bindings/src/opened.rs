//! What the classes of model files have in common.

use std::thread;

use kushi_core::{Error, ErrorKind, TensorInfo, os_text};

use crate::scheduling::give_way;

/// name, data type, dimensions; none of these where the file does not say how many there are
pub(crate) type Described = (String, &'static str, Option<Vec<i64>>);

pub(crate) fn describe(tensor: &TensorInfo) -> Described {
    (tensor.name.clone(), tensor.datatype.name(), tensor.shape.clone())
}

/// On a thread of its own at low priority: threads that it starts are as it is, in priority and name.
pub(crate) fn aside<T: Send>(name: &str, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let internal = |text: String| Error::new(ErrorKind::Internal, text);
    thread::scope(|scope| {
        let work = || {
            give_way();
            work()
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
        let thread =
            thread.map_err(|error| internal(format!("cannot start a thread: {}", os_text(&error))))?;
        thread.join().map_err(|_| internal(format!("thread {name} panicked")))?
    })
}

//! An infer request: what one instance runs, again and again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::api::{Api, InferRequest};
use crate::status::OpenVinoFailure;
use crate::tensor::{InputTensor, RawTensor};

pub(crate) struct Request {
    api: &'static Api,
    pointer: *mut InferRequest,
    /// Held while it is run and until its outputs were read.
    running: Mutex<()>,
    /// Whether runs shall end.
    ended: AtomicBool,
}

// SAFETY: a request is not bound to a thread.
unsafe impl Send for Request {}
// SAFETY: one thread at a time runs it and reads its outputs, under the lock; OpenVINO lets another one cancel a run.
unsafe impl Sync for Request {}

/// A request after a run, whose outputs stand until it is dropped.
pub(crate) struct Ran<'a> {
    request: &'a Request,
    _running: MutexGuard<'a, ()>,
}

impl Request {
    /// # Safety
    /// The pointer is a request that nobody else has.
    pub(crate) unsafe fn from_raw(api: &'static Api, pointer: *mut InferRequest) -> Self {
        Self { api, pointer, running: Mutex::new(()), ended: AtomicBool::new(false) }
    }

    /// Runs the network once. There is a tensor for each of its inputs, in its order.
    pub(crate) fn run(&self, inputs: &[InputTensor<'_, '_>]) -> Result<Ran<'_>, OpenVinoFailure> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let api = self.api;
        for (index, input) in inputs.iter().enumerate() {
            // SAFETY: request and tensor live; the request keeps the tensor until the next one takes its place, and
            // looks at it only in a run, before which all are replaced.
            api.check(unsafe {
                (api.ov_infer_request_set_input_tensor_by_index)(self.pointer, index, input.as_ptr())
            })?;
        }
        if self.ended.load(Ordering::Acquire) {
            return Err(OpenVinoFailure::new("the run was ended"));
        }
        // Not `ov_infer_request_infer`: on the calling thread it loses the error of a run that fails, and the outputs of
        // the run before stand. With NUM_STREAMS=0 this runs on the calling thread, too.
        // SAFETY: the request lives and is run by nobody else, and the memory of its inputs lives until the run ended.
        api.check(unsafe { (api.ov_infer_request_start_async)(self.pointer) })?;
        // SAFETY: as above.
        api.check(unsafe { (api.ov_infer_request_wait)(self.pointer) })?;
        Ok(Ran { request: self, _running: running })
    }

    /// Ends the run that goes on before its next operator, and those to come. One that begins in the very moment may
    /// go to its end.
    pub(crate) fn end_runs(&self) -> Result<(), OpenVinoFailure> {
        self.ended.store(true, Ordering::Release);
        // SAFETY: the request lives, and may be cancelled while it is run.
        self.api.check(unsafe { (self.api.ov_infer_request_cancel)(self.pointer) })
    }

    pub(crate) fn allow_runs(&self) {
        self.ended.store(false, Ordering::Release);
    }
}

impl Ran<'_> {
    pub(crate) fn output(&self, index: usize) -> Result<RawTensor<'_>, OpenVinoFailure> {
        let (api, pointer) = (self.request.api, self.request.pointer);
        // SAFETY: the request lives and is not run; an index beyond the last output is refused with a status.
        RawTensor::make(api, |tensor| unsafe {
            (api.ov_infer_request_get_output_tensor_by_index)(pointer, index, tensor)
        })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: the request is owned here and not used again.
        unsafe { (self.api.ov_infer_request_free)(self.pointer) }
    }
}

//! CUDA's driver in this process: GPUs by their numbers, and memory of other processes that is opened on them.
//!
//! A GPU is used through its primary context, which all of a process share. It is current to a thread only while a
//! function here runs, so any thread may call. Copies go through a stream of our own on each GPU: on the one that the
//! context has, they would wait for all that models compute there.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_uint};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::CudaHandle;
use super::api::{Address, Api, NON_BLOCKING, RawContext, RawHandle, RawStream, Status};

const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();

pub(super) struct Driver {
    api: Api,
    gpus: c_int,
    /// By the numbers of their GPUs. They are kept: making one takes long.
    contexts: Mutex<BTreeMap<c_int, Context>>,
}

#[derive(Clone, Copy)]
struct Context {
    raw: *mut RawContext,
    /// For copies.
    stream: *mut RawStream,
}

// SAFETY: a context and its streams are not bound to a thread: any may use them.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What the driver says, by its name there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CudaFailure(pub(super) String);

#[derive(Clone, Copy)]
pub(super) struct Gpu {
    driver: &'static Driver,
    context: Context,
}

/// Memory of another process, open on a GPU until it is closed or dropped.
pub(super) struct Opened {
    gpu: Gpu,
    address: Address,
    is_closed: AtomicBool,
}

impl Driver {
    /// The first call opens it, which takes its time. Why there is none: the reason of that call.
    pub(super) fn get() -> Result<&'static Self, &'static str> {
        DRIVER.get_or_init(Self::open).as_ref().map_err(String::as_str)
    }

    /// Whether there is one, if that is known by now. Waits for nothing.
    pub(super) fn is_known() -> Option<bool> {
        DRIVER.get().map(Result::is_ok)
    }

    fn open() -> Result<Self, String> {
        let api = Api::open()?;
        let mut driver = Self { api, gpus: 0, contexts: Mutex::default() };
        let api = &driver.api;
        let mut gpus = 0;
        // SAFETY: the first function of the driver that is called; the second one writes a number.
        let counted = unsafe {
            driver.check((api.cuInit)(0)).and_then(|()| driver.check((api.cuDeviceGetCount)(&raw mut gpus)))
        };
        counted.map_err(|CudaFailure(text)| text)?;
        if gpus == 0 {
            return Err("the driver shows no GPU".into());
        }
        driver.gpus = gpus;
        Ok(driver)
    }

    pub(super) fn gpus(&self) -> u64 {
        self.gpus as u64
    }

    /// `number` is that of a GPU.
    pub(super) fn gpu(&'static self, number: u64) -> Result<Gpu, CudaFailure> {
        let number = c_int::try_from(number).unwrap_or(c_int::MAX);
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&context) = contexts.get(&number) {
            return Ok(Gpu { driver: self, context });
        }
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: each writes what its pointer points to; the device is one that the driver has named.
        unsafe {
            self.check((self.api.cuDeviceGet)(&raw mut device, number))?;
            self.check((self.api.cuDevicePrimaryCtxRetain)(&raw mut context, device))?;
        }
        let mut stream = null_mut();
        // SAFETY: the context is retained for good; a stream is written.
        self.within(context, |api| unsafe { (api.cuStreamCreate)(&raw mut stream, NON_BLOCKING) })?;
        let context = Context { raw: context, stream };
        contexts.insert(number, context);
        Ok(Gpu { driver: self, context })
    }

    /// Runs `call` with the context current to this thread.
    fn within(&self, context: *mut RawContext, call: impl FnOnce(&Api) -> Status) -> Result<(), CudaFailure> {
        // SAFETY: the context is retained for good.
        self.check(unsafe { (self.api.cuCtxPushCurrent_v2)(context) })?;
        let status = call(&self.api);
        let mut popped = null_mut();
        // SAFETY: the context that has been pushed above; which one that was is written.
        unsafe { (self.api.cuCtxPopCurrent_v2)(&raw mut popped) };
        self.check(status)
    }

    fn check(&self, status: Status) -> Result<(), CudaFailure> {
        if status == 0 {
            return Ok(());
        }
        let mut name = null();
        // SAFETY: writes a pointer to a text of the driver's, which stays, or null.
        let name = unsafe {
            (self.api.cuGetErrorName)(status, &raw mut name);
            (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        };
        Err(CudaFailure(name.unwrap_or_else(|| format!("CUDA error {status}"))))
    }
}

impl Gpu {
    /// Runs `call` with the context of the GPU current to this thread.
    fn call(self, call: impl FnOnce(&Api) -> Status) -> Result<(), CudaFailure> {
        self.driver.within(self.context.raw, call)
    }

    /// Runs `copy` on the stream of the GPU, and waits for it.
    fn copy(self, copy: impl FnOnce(&Api, *mut RawStream) -> Status) -> Result<(), CudaFailure> {
        let stream = self.context.stream;
        self.call(|api| {
            let copied = copy(api, stream);
            // Even after a failure: nothing may be written to the host any more when this returns.
            // SAFETY: the stream is of this context.
            let waited = unsafe { (api.cuStreamSynchronize)(stream) };
            if copied == 0 { waited } else { copied }
        })
    }

    pub(super) fn open(self, handle: &CudaHandle) -> Result<Opened, CudaFailure> {
        let mut address = 0;
        // SAFETY: the handle is any 64 bytes: the driver looks whether it knows them. It writes an address.
        self.call(|api| unsafe {
            (api.cuIpcOpenMemHandle_v2)(&raw mut address, RawHandle(*handle), LAZY_ENABLE_PEER_ACCESS)
        })?;
        Ok(Opened { gpu: self, address, is_closed: AtomicBool::new(false) })
    }
}

impl Opened {
    /// How much of its allocation there is from here on.
    pub(super) fn byte_size(&self) -> Result<u64, CudaFailure> {
        let (mut start, mut byte_size) = (0, 0);
        // SAFETY: the address is open; start and length of its allocation are written.
        self.gpu.call(|api| unsafe {
            (api.cuMemGetAddressRange_v2)(&raw mut start, &raw mut byte_size, self.address)
        })?;
        Ok((byte_size as u64).saturating_sub(self.address.saturating_sub(start)))
    }

    /// Fills `into` with what lies from `offset` on; blocks until it is there.
    pub(super) fn read(&self, offset: u64, into: &mut [MaybeUninit<u8>]) -> Result<(), CudaFailure> {
        // SAFETY: writes as many bytes as `into` has. A wrong address on the GPU is an error of the driver's.
        self.gpu.copy(|api, stream| unsafe {
            (api.cuMemcpyDtoHAsync_v2)(into.as_mut_ptr().cast(), self.address + offset, into.len(), stream)
        })
    }

    /// Writes `bytes` from `offset` on; blocks until they are there.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), CudaFailure> {
        // SAFETY: reads as many bytes as `bytes` has. A wrong address on the GPU is an error of the driver's.
        self.gpu.copy(|api, stream| unsafe {
            (api.cuMemcpyHtoDAsync_v2)(self.address + offset, bytes.as_ptr().cast(), bytes.len(), stream)
        })
    }

    /// Once nobody reads or writes it any more. Blocks, perhaps for as long as the GPU computes.
    pub(super) fn close(&self) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            // Nobody can do anything about a failure.
            // SAFETY: opened once for this value, and closed once. Whoever uses the address afterwards gets an error.
            let _ = self.gpu.call(|api| unsafe { (api.cuIpcCloseMemHandle)(self.address) });
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_is_not_there_is_told_the_same_each_time() {
        if let Err(why) = Driver::get() {
            assert!(why.starts_with("libcuda.so.1: ") || why.starts_with("CUDA_ERROR_"), "{why}");
            assert_eq!(Driver::get().err(), Some(why));
            assert_eq!(Driver::is_known(), Some(false));
        }
    }
}

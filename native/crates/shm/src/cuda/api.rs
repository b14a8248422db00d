//! The functions of CUDA's driver that are called here, under their names and signatures there.
//!
//! `libcuda.so.1` comes with the driver of a GPU, so it is opened by its name, when somebody first asks for it.

use std::error::Error;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;

use libloading::Library;

use super::HANDLE_BYTES;

const LIBRARY: &str = "libcuda.so.1";

/// Of a stream that does not wait for the one which every context has.
pub(super) const NON_BLOCKING: c_uint = 1;

/// 0, or what went wrong.
pub(super) type Status = c_int;
pub(super) type Device = c_int;
/// On a GPU.
pub(super) type Address = u64;

/// A context of the driver's, of which only pointers are known.
#[repr(C)]
pub(super) struct RawContext {
    _private: [u8; 0],
}

/// Passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawHandle(pub(super) [u8; HANDLE_BYTES]);

/// A stream of the driver's, of which only pointers are known.
#[repr(C)]
pub(super) struct RawStream {
    _private: [u8; 0],
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*);)*) => {
        #[allow(non_snake_case, reason = "the driver's names")]
        pub(super) struct Api {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> Status,)*
            /// What the pointers point into. Never unloaded: the driver may have threads in it.
            _library: ManuallyDrop<Library>,
        }

        impl Api {
            #[allow(non_snake_case, reason = "the driver's names")]
            fn of(library: ManuallyDrop<Library>) -> Result<Self, libloading::Error> {
                // SAFETY: these are the signatures in the driver's header, which keeps a function of a name as it is.
                unsafe {
                    $(let $name = *library.get(concat!(stringify!($name), "\0").as_bytes())?;)*
                    Ok(Self { $($name,)* _library: library })
                }
            }
        }
    };
}

functions! {
    cuInit: fn(c_uint);
    cuDeviceGetCount: fn(*mut c_int);
    cuDeviceGet: fn(*mut Device, c_int);
    cuDevicePrimaryCtxRetain: fn(*mut *mut RawContext, Device);
    cuCtxPushCurrent_v2: fn(*mut RawContext);
    cuCtxPopCurrent_v2: fn(*mut *mut RawContext);
    cuIpcOpenMemHandle_v2: fn(*mut Address, RawHandle, c_uint);
    cuIpcCloseMemHandle: fn(Address);
    cuMemGetAddressRange_v2: fn(*mut Address, *mut usize, Address);
    cuStreamCreate: fn(*mut *mut RawStream, c_uint);
    cuMemcpyDtoHAsync_v2: fn(*mut c_void, Address, usize, *mut RawStream);
    cuMemcpyHtoDAsync_v2: fn(Address, *const c_void, usize, *mut RawStream);
    cuStreamSynchronize: fn(*mut RawStream);
    cuGetErrorName: fn(Status, *mut *const c_char);
}

impl Api {
    pub(super) fn open() -> Result<Self, String> {
        // SAFETY: NVIDIA's driver, which every program with CUDA opens.
        let library = unsafe { Library::new(LIBRARY) };
        library.map(ManuallyDrop::new).and_then(Self::of).map_err(|error| {
            // the error itself says no reason
            error.source().map_or_else(|| error.to_string(), ToString::to_string)
        })
    }
}

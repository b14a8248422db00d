//! A library of providers as ONNX Runtime registers them: its one provider offers itself for every CPU, and
//! refuses each session that takes it.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use ort::sys::{
    OrtApi, OrtApiBase, OrtEpDevice, OrtErrorCode, OrtHardwareDevice, OrtHardwareDeviceType,
    OrtKeyValuePairs, OrtLogger, OrtSessionOptions, OrtStatusPtr,
};

/// The version of the C API whose `OrtEpFactory` this is: what came later is not asked of it.
const FACTORY_VERSION: u32 = 23;

/// The version of the functions that this library calls.
const API_VERSION: u32 = 22;

static API: OnceLock<&'static OrtApi> = OnceLock::new();

#[repr(C)]
pub struct Factory {
    version: u32,
    name: unsafe extern "system" fn(*const Factory) -> *const c_char,
    vendor: unsafe extern "system" fn(*const Factory) -> *const c_char,
    devices: unsafe extern "system" fn(
        *mut Factory,
        *const *const OrtHardwareDevice,
        usize,
        *mut *mut OrtEpDevice,
        usize,
        *mut usize,
    ) -> OrtStatusPtr,
    create: unsafe extern "system" fn(
        *mut Factory,
        *const *const OrtHardwareDevice,
        *const *const OrtKeyValuePairs,
        usize,
        *const OrtSessionOptions,
        *const OrtLogger,
        *mut *mut c_void,
    ) -> OrtStatusPtr,
    release: unsafe extern "system" fn(*mut Factory, *mut c_void),
    vendor_id: unsafe extern "system" fn(*const Factory) -> u32,
    library_version: unsafe extern "system" fn(*const Factory) -> *const c_char,
    /// Compatibility of compiled models, and an allocator and its end: there are none.
    optional: [usize; 3],
    transfer: unsafe extern "system" fn(*mut Factory, *mut *mut c_void) -> OrtStatusPtr,
    with_streams: unsafe extern "system" fn(*const Factory) -> bool,
    /// A stream, and what later versions have more.
    later: [usize; 32],
}

/// The first function of `OrtEpApi`.
#[repr(C)]
struct ProviderApi {
    create_device: unsafe extern "system" fn(
        *mut Factory,
        *const OrtHardwareDevice,
        *const OrtKeyValuePairs,
        *const OrtKeyValuePairs,
        *mut *mut OrtEpDevice,
    ) -> OrtStatusPtr,
}

static FACTORY: Factory = Factory {
    version: FACTORY_VERSION,
    name,
    vendor,
    devices,
    create,
    release,
    vendor_id,
    library_version,
    optional: [0; 3],
    transfer,
    with_streams,
    later: [0; 32],
};

/// # Safety
/// ONNX Runtime calls it, with its own table of functions and room for at least one factory.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn CreateEpFactories(
    _name: *const c_char,
    base: *const OrtApiBase,
    _logger: *const OrtLogger,
    factories: *mut *mut Factory,
    _room: usize,
    count: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: the caller's contract. Nothing is written to the factory, which lives as long as the library.
    unsafe {
        if let Some(api) = ((*base).GetApi)(API_VERSION).as_ref() {
            API.get_or_init(|| api);
            *factories = (&raw const FACTORY).cast_mut();
            *count = 1;
        }
    }
    OrtStatusPtr::default()
}

/// # Safety
/// ONNX Runtime calls it, with a factory that it got here.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn ReleaseEpFactory(_: *mut Factory) -> OrtStatusPtr {
    OrtStatusPtr::default()
}

fn api() -> &'static OrtApi {
    API.get().expect("the library was registered")
}

unsafe extern "system" fn name(_: *const Factory) -> *const c_char {
    c"KushiExecutionProvider".as_ptr()
}

unsafe extern "system" fn vendor(_: *const Factory) -> *const c_char {
    c"Kushi".as_ptr()
}

unsafe extern "system" fn devices(
    factory: *mut Factory,
    hardware: *const *const OrtHardwareDevice,
    hardware_count: usize,
    devices: *mut *mut OrtEpDevice,
    room: usize,
    count: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime answers for the lengths, and the functions are those of its own tables.
    unsafe {
        *count = 0;
        let provider_api = (api().GetEpApi)().cast::<ProviderApi>();
        for &hardware in std::slice::from_raw_parts(hardware, hardware_count) {
            let on_cpu =
                (api().HardwareDevice_Type)(hardware) == OrtHardwareDeviceType::OrtHardwareDeviceType_CPU;
            if !on_cpu || *count == room {
                continue;
            }
            let mut device = null_mut();
            let made = ((*provider_api).create_device)(factory, hardware, null(), null(), &raw mut device);
            if !made.0.is_null() {
                return made;
            }
            *devices.add(*count) = device;
            *count += 1;
        }
    }
    OrtStatusPtr::default()
}

unsafe extern "system" fn create(
    _: *mut Factory,
    _: *const *const OrtHardwareDevice,
    _: *const *const OrtKeyValuePairs,
    _: usize,
    _: *const OrtSessionOptions,
    _: *const OrtLogger,
    _: *mut *mut c_void,
) -> OrtStatusPtr {
    // SAFETY: the text is a C string, which is copied.
    unsafe { (api().CreateStatus)(OrtErrorCode::ORT_FAIL, c"nobody asked for this provider".as_ptr()) }
}

unsafe extern "system" fn release(_: *mut Factory, _: *mut c_void) {}

unsafe extern "system" fn vendor_id(_: *const Factory) -> u32 {
    0
}

unsafe extern "system" fn library_version(_: *const Factory) -> *const c_char {
    c"1.0.0".as_ptr()
}

unsafe extern "system" fn transfer(_: *mut Factory, transfer: *mut *mut c_void) -> OrtStatusPtr {
    // SAFETY: the caller has room for the answer, which is none.
    unsafe { *transfer = null_mut() };
    OrtStatusPtr::default()
}

unsafe extern "system" fn with_streams(_: *const Factory) -> bool {
    false
}

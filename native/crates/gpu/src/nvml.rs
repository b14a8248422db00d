//! The functions of NVML that are called here, under their names and signatures there.

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::mem::ManuallyDrop;

use libloading::Library;

/// NVML's own bound.
const UUID_BYTES: usize = 96;
const FUNCTION_NOT_FOUND: c_int = 13;

type RawDevice = *mut c_void;

/// A GPU, or a part of one.
#[derive(Clone, Copy)]
pub(crate) struct Device(RawDevice);

/// In percent.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Utilization {
    pub(crate) gpu: c_uint,
    memory: c_uint,
}

/// In bytes.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) total: c_ulonglong,
    free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// What NVML says instead of a value.
#[derive(Debug, Default)]
pub(crate) struct NvmlFailure(String);

impl fmt::Display for NvmlFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Why there is nothing to read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Nothing {
    pub(crate) why: String,
    /// There is no library: nobody has installed a driver.
    pub(crate) is_usual: bool,
}

impl From<String> for Nothing {
    fn from(why: String) -> Self {
        Self { why, is_usual: false }
    }
}

/// Drivers may lack the optional ones.
macro_rules! functions {
    (
        required { $($name:ident($($argument:ty),*) -> $answer:ty;)* }
        optional { $($newer:ident($($its_argument:ty),*) -> $its_answer:ty;)* }
    ) => {
        #[allow(non_snake_case, reason = "they are NVML's names")]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> $answer,)*
            $($newer: Option<unsafe extern "C" fn($($its_argument),*) -> $its_answer>,)*
        }

        impl Functions {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: these are the signatures in NVML's header, and a name of it keeps its signature for ever.
                unsafe {
                    Ok(Self {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                        $($newer: library
                            .get(concat!(stringify!($newer), "\0").as_bytes())
                            .ok()
                            .map(|found| *found),)*
                    })
                }
            }
        }
    };
}

functions! {
    required {
        nvmlInit_v2() -> c_int;
        nvmlShutdown() -> c_int;
        nvmlErrorString(c_int) -> *const c_char;
        nvmlDeviceGetCount_v2(*mut c_uint) -> c_int;
        nvmlDeviceGetHandleByIndex_v2(c_uint, *mut RawDevice) -> c_int;
        nvmlDeviceGetUUID(RawDevice, *mut c_char, c_uint) -> c_int;
    }
    optional {
        nvmlDeviceGetHandleByUUID(*const c_char, *mut RawDevice) -> c_int;
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle(RawDevice, *mut RawDevice) -> c_int;
        nvmlDeviceGetUtilizationRates(RawDevice, *mut Utilization) -> c_int;
        nvmlDeviceGetMemoryInfo(RawDevice, *mut Memory) -> c_int;
        nvmlDeviceGetPowerUsage(RawDevice, *mut c_uint) -> c_int;
        nvmlDeviceGetEnforcedPowerLimit(RawDevice, *mut c_uint) -> c_int;
        nvmlDeviceGetTotalEnergyConsumption(RawDevice, *mut c_ulonglong) -> c_int;
    }
}

type Ask<T> = unsafe extern "C" fn(RawDevice, *mut T) -> c_int;

/// The library, initialized until this is dropped.
pub(crate) struct Nvml {
    functions: Functions,
    /// Never unloaded: the driver may have threads in it.
    _library: ManuallyDrop<Library>,
}

impl Nvml {
    /// Answers why there is none.
    pub(crate) fn open(name: &str) -> Result<Self, Nothing> {
        // SAFETY: the initializers of the driver's library ask for nothing.
        let library = unsafe { Library::new(name) }.map_err(|error| {
            let why = reason(&error);
            Nothing { is_usual: is_missing(name, &why), why }
        })?;
        let library = ManuallyDrop::new(library);
        let functions = Functions::of(&library).map_err(|error| reason(&error))?;
        // SAFETY: it may be called at any time, and counts.
        let status = unsafe { (functions.nvmlInit_v2)() };
        if status != 0 {
            return Err(format!("{name}: {}", functions.failure(status)).into());
        }
        Ok(Self { functions, _library: library })
    }

    pub(crate) fn count(&self) -> Result<u32, NvmlFailure> {
        let mut count = 0;
        // SAFETY: the library is initialized, and the pointer is to a number.
        self.check(unsafe { (self.functions.nvmlDeviceGetCount_v2)(&raw mut count) })?;
        Ok(count)
    }

    pub(crate) fn device(&self, index: u32) -> Result<Device, NvmlFailure> {
        let mut device = std::ptr::null_mut();
        // SAFETY: the library is initialized, and the pointer is to a handle.
        self.check(unsafe { (self.functions.nvmlDeviceGetHandleByIndex_v2)(index, &raw mut device) })?;
        Ok(Device(device))
    }

    pub(crate) fn uuid(&self, device: Device) -> Result<String, NvmlFailure> {
        let mut text = [0 as c_char; UUID_BYTES];
        let (place, bytes) = (text.as_mut_ptr(), UUID_BYTES as c_uint);
        // SAFETY: the handle is NVML's, and there is room for so many bytes.
        self.check(unsafe { (self.functions.nvmlDeviceGetUUID)(device.0, place, bytes) })?;
        text[UUID_BYTES - 1] = 0;
        // SAFETY: a byte of it is 0.
        Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// The GPU that has this part, a MIG device.
    pub(crate) fn whole(&self, part: &str) -> Option<Device> {
        let find = self.functions.nvmlDeviceGetHandleByUUID?;
        let part = CString::new(part).ok()?;
        let mut device = std::ptr::null_mut();
        // SAFETY: the library is initialized, the text ends with 0, and the pointer is to a handle.
        self.check(unsafe { find(part.as_ptr(), &raw mut device) }).ok()?;
        let mut whole = std::ptr::null_mut();
        // SAFETY: the handle is NVML's, and the pointer is to another one.
        let status =
            unsafe { (self.functions.nvmlDeviceGetDeviceHandleFromMigDeviceHandle?)(device, &raw mut whole) };
        self.check(status).ok().map(|()| Device(whole))
    }

    pub(crate) fn utilization(&self, device: Device) -> Result<Utilization, NvmlFailure> {
        self.ask(self.functions.nvmlDeviceGetUtilizationRates, device)
    }

    pub(crate) fn memory(&self, device: Device) -> Result<Memory, NvmlFailure> {
        self.ask(self.functions.nvmlDeviceGetMemoryInfo, device)
    }

    pub(crate) fn power_milliwatts(&self, device: Device) -> Result<u32, NvmlFailure> {
        self.ask(self.functions.nvmlDeviceGetPowerUsage, device)
    }

    pub(crate) fn power_limit_milliwatts(&self, device: Device) -> Result<u32, NvmlFailure> {
        self.ask(self.functions.nvmlDeviceGetEnforcedPowerLimit, device)
    }

    /// Since the driver was loaded.
    pub(crate) fn energy_millijoules(&self, device: Device) -> Result<u64, NvmlFailure> {
        self.ask(self.functions.nvmlDeviceGetTotalEnergyConsumption, device)
    }

    fn ask<T: Default>(&self, function: Option<Ask<T>>, device: Device) -> Result<T, NvmlFailure> {
        let Some(function) = function else {
            return Err(self.functions.failure(FUNCTION_NOT_FOUND));
        };
        let mut value = T::default();
        // SAFETY: the handle is NVML's, and the pointer is to what the function writes.
        self.check(unsafe { function(device.0, &raw mut value) })?;
        Ok(value)
    }

    fn check(&self, status: c_int) -> Result<(), NvmlFailure> {
        if status == 0 { Ok(()) } else { Err(self.functions.failure(status)) }
    }
}

impl Functions {
    fn failure(&self, status: c_int) -> NvmlFailure {
        // SAFETY: it takes any number.
        let text = unsafe { (self.nvmlErrorString)(status) };
        if text.is_null() {
            return NvmlFailure(format!("error {status}"));
        }
        // SAFETY: a text that is there for ever.
        NvmlFailure(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: once for the call of nvmlInit_v2, and nobody has a handle any more.
        unsafe { (self.functions.nvmlShutdown)() };
    }
}

/// Whether the loader of libraries has not found that one: it tells no kinds of faults, only words.
fn is_missing(name: &str, why: &str) -> bool {
    let rest =
        why.strip_prefix(name).and_then(|rest| rest.strip_prefix(": cannot open shared object file: "));
    rest == Some("No such file or directory")
}

/// What the loader of libraries said.
fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

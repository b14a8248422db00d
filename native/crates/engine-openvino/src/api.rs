//! The functions of OpenVINO's C API that are called here, under their names and signatures there.

use std::ffi::{c_char, c_void};
use std::path::Path;

use kushi_core::cause_text;
use libloading::Library;

/// An object of OpenVINO's, of which only pointers are known.
macro_rules! opaque {
    ($($name:ident)*) => { $(#[repr(C)] pub(crate) struct $name { _private: [u8; 0] })* };
}

opaque! { Core Model ConstPort Compiled InferRequest TensorObject }

/// 0, or what went wrong.
pub(crate) type Status = i32;

#[repr(C)]
pub(crate) struct RawShape {
    pub(crate) rank: i64,
    pub(crate) dims: *mut i64,
}

/// A range: of one size where both are the same.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Dimension {
    pub(crate) min: i64,
    pub(crate) max: i64,
}

#[repr(C)]
pub(crate) struct PartialShape {
    pub(crate) rank: Dimension,
    pub(crate) dims: *mut Dimension,
}

#[repr(C)]
pub(crate) struct Version {
    pub(crate) build_number: *const c_char,
    pub(crate) description: *const c_char,
}

#[repr(C)]
pub(crate) struct Devices {
    pub(crate) devices: *mut *mut c_char,
    pub(crate) size: usize,
}

#[repr(C)]
pub(crate) struct Property {
    pub(crate) key: *const c_char,
    pub(crate) value: *const c_void,
}

type LogCallback = unsafe extern "C" fn(*const c_char);

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
            /// What the pointers point into.
            _library: Library,
        }

        impl Api {
            fn of(library: Library) -> Result<Self, String> {
                // SAFETY: these are the signatures in the headers of the oldest release that is taken, and OpenVINO
                // keeps those that it has.
                unsafe {
                    $(let $name = *library
                        .get(concat!(stringify!($name), "\0").as_bytes())
                        .map_err(|_| stringify!($name).to_owned())?;)*
                    Ok(Self { $($name,)* _library: library })
                }
            }
        }
    };
}

functions! {
    ov_get_openvino_version: fn(*mut Version) -> Status;
    ov_version_free: fn(*mut Version);
    ov_get_last_err_msg: fn() -> *const c_char;
    ov_free: fn(*const c_char);
    ov_util_set_log_callback: fn(LogCallback);

    ov_core_create: fn(*mut *mut Core) -> Status;
    ov_core_free: fn(*mut Core);
    ov_core_add_extension: fn(*const Core, *const c_char) -> Status;
    ov_core_get_available_devices: fn(*const Core, *mut Devices) -> Status;
    ov_available_devices_free: fn(*mut Devices);
    ov_core_read_model: fn(*const Core, *const c_char, *const c_char, *mut *mut Model) -> Status;
    ov_core_compile_model_props: fn(*const Core, *const Model, *const c_char, usize, *const Property, *mut *mut Compiled) -> Status;

    ov_model_free: fn(*mut Model);
    ov_model_inputs_size: fn(*const Model, *mut usize) -> Status;
    ov_model_outputs_size: fn(*const Model, *mut usize) -> Status;
    ov_model_const_input_by_index: fn(*const Model, usize, *mut *mut ConstPort) -> Status;
    ov_model_const_output_by_index: fn(*const Model, usize, *mut *mut ConstPort) -> Status;
    ov_model_reshape_by_port_indexes: fn(*const Model, *const usize, *const PartialShape, usize) -> Status;
    ov_port_get_any_name: fn(*const ConstPort, *mut *mut c_char) -> Status;
    ov_port_get_element_type: fn(*const ConstPort, *mut u32) -> Status;
    ov_port_get_partial_shape: fn(*const ConstPort, *mut PartialShape) -> Status;
    ov_partial_shape_free: fn(*mut PartialShape);
    ov_output_const_port_free: fn(*mut ConstPort);

    ov_compiled_model_free: fn(*mut Compiled);
    ov_compiled_model_create_infer_request: fn(*const Compiled, *mut *mut InferRequest) -> Status;
    ov_compiled_model_get_property: fn(*const Compiled, *const c_char, *mut *mut c_char) -> Status;

    ov_infer_request_free: fn(*mut InferRequest);
    ov_infer_request_set_input_tensor_by_index: fn(*mut InferRequest, usize, *const TensorObject) -> Status;
    ov_infer_request_get_output_tensor_by_index: fn(*const InferRequest, usize, *mut *mut TensorObject) -> Status;
    ov_infer_request_start_async: fn(*mut InferRequest) -> Status;
    ov_infer_request_wait: fn(*mut InferRequest) -> Status;
    ov_infer_request_cancel: fn(*mut InferRequest) -> Status;

    ov_tensor_create: fn(u32, RawShape, *mut *mut TensorObject) -> Status;
    ov_tensor_create_from_host_ptr: fn(u32, RawShape, *mut c_void, *mut *mut TensorObject) -> Status;
    ov_tensor_set_string_data: fn(*mut TensorObject, *const *const c_char, usize) -> Status;
    ov_tensor_get_shape: fn(*const TensorObject, *mut RawShape) -> Status;
    ov_tensor_get_element_type: fn(*const TensorObject, *mut u32) -> Status;
    ov_tensor_get_byte_size: fn(*const TensorObject, *mut usize) -> Status;
    ov_tensor_data: fn(*const TensorObject, *mut *mut c_void) -> Status;
    ov_tensor_free: fn(*mut TensorObject);
    ov_shape_free: fn(*mut RawShape) -> Status;
}

/// Opens the library, and answers what is wrong with it.
pub(crate) fn open(path: &Path) -> Result<Api, String> {
    let shown = path.display();
    // SAFETY: the caller names the library whose initialisers shall run.
    let library = unsafe { Library::new(path) }
        .map_err(|error| format!("openvino library '{shown}' cannot be loaded: {}", cause_text(&error)))?;
    Api::of(library)
        .map_err(|function| format!("'{shown}' is no openvino library of today: it has no {function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_refused_with_the_reason() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let text = open(&manifest).err().expect("it is no library");
        let shown = manifest.display();
        let expected = format!("openvino library '{shown}' cannot be loaded: {shown}: invalid ELF header");
        assert_eq!(text, expected);
    }
}

//! Whether a model file says how many dimensions a tensor has.
//!
//! ONNX Runtime gives a tensor of unknown rank the shape of a scalar; only this tells them apart.

use std::ptr::{null, null_mut};

use ort::sys::{OrtSession, OrtStatusPtr, OrtTypeInfo};

use crate::status::{OrtFailure, check};

/// Which tensors of a session are meant.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Input,
    Output,
    DefaultedInput,
}

type Get = unsafe extern "system" fn(*const OrtSession, usize, *mut *mut OrtTypeInfo) -> OrtStatusPtr;

/// # Safety
///
/// `session` is alive, and has more than `index` tensors of this role, that one a tensor.
pub(crate) unsafe fn is_known(
    session: *const OrtSession,
    role: Role,
    index: usize,
) -> Result<bool, OrtFailure> {
    let api = ort::api();
    let get: Get = match role {
        Role::Input => api.SessionGetInputTypeInfo,
        Role::Output => api.SessionGetOutputTypeInfo,
        Role::DefaultedInput => api.SessionGetOverridableInitializerTypeInfo,
    };
    let mut owned = null_mut();
    let mut tensor = null();
    // SAFETY: as the caller promises; the type is released once, after the last use of the part of it
    // that describes the tensor.
    unsafe {
        check(get(session, index, &raw mut owned))?;
        let cast = check((api.CastTypeInfoToTensorInfo)(owned, &raw mut tensor));
        let known = cast.map(|()| (api.TensorTypeAndShape_HasShape)(tensor));
        (api.ReleaseTypeInfo)(owned);
        known
    }
}

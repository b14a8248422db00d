//! Tensors for other frameworks, by the DLPack protocol.
//!
//! <https://dmlc.github.io/dlpack/latest/c_api.html>

use std::ffi::{CStr, c_void};
use std::ptr;

use kushi_core::{Buffer, DataType, Shape, Tensor, element_count};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::Fault;
use crate::write::View;

/// The device type and number of host memory.
pub const CPU: (i32, i32) = (1, 0);

const VERSION: Version = Version { major: 1, minor: 1 };
const FLAG_READ_ONLY: u64 = 1;
const FLAG_IS_COPIED: u64 = 1 << 1;
/// What consumers may rely on, for a tensor that is copied anyway.
const ALIGNMENT: usize = 64;

#[repr(C)]
struct Device {
    kind: i32,
    index: i32,
}

#[repr(C)]
struct Type {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    datatype: Type,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
struct Legacy {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

#[repr(C)]
struct Versioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// What a consumer gets: the description first, then what keeps it valid.
#[repr(C)]
struct Exported<M> {
    managed: M,
    shape: Shape,
    strides: Shape,
    _buffer: Buffer,
}

/// A capsule around the tensor's memory, to be consumed once. `copy`: `Some(true)` asks for memory of
/// its own, `Some(false)` for none, whatever it takes. The tensor's memory may not be written to, which only
/// the versioned form can say: in the older one there is a copy.
pub fn capsule<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    versioned: bool,
    copy: Option<bool>,
) -> Result<Bound<'py, PyAny>, Fault> {
    let datatype = type_of(tensor.datatype)
        .ok_or_else(|| PyBufferError::new_err("a tensor of BYTES cannot be handed on by DLPack"))?;
    let size = tensor.datatype.size().unwrap_or(1);
    View::of(tensor).check(size)?;
    let misaligned = tensor.data.as_bytes().as_ptr().align_offset(size) != 0;
    if copy == Some(false) && (misaligned || !versioned) {
        let why = if misaligned { "the tensor is not aligned" } else { "max_version is below 1.0" };
        return Err(PyBufferError::new_err(format!("{why}, DLPack needs a copy of the tensor")).into());
    }
    let copied = misaligned || !versioned || copy == Some(true);
    let buffer = if copied { aligned_copy(py, &tensor.data) } else { tensor.data.clone() };
    let flags = if copied { FLAG_IS_COPIED } else { FLAG_READ_ONLY };
    let strides = strides(&tensor.shape);
    let shape = tensor.shape.clone();
    let described = DlTensor {
        data: buffer.as_bytes().as_ptr().cast_mut().cast(),
        device: Device { kind: CPU.0, index: CPU.1 },
        dimensions: shape.len() as i32,
        datatype,
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    if versioned {
        let deleter = Some(delete::<Versioned> as unsafe extern "C" fn(*mut Versioned));
        let managed =
            Versioned { version: VERSION, context: ptr::null_mut(), deleter, flags, tensor: described };
        export(py, Exported { managed, shape, strides, _buffer: buffer })
    } else {
        let deleter = Some(delete::<Legacy> as unsafe extern "C" fn(*mut Legacy));
        let managed = Legacy { tensor: described, context: ptr::null_mut(), deleter };
        export(py, Exported { managed, shape, strides, _buffer: buffer })
    }
}

fn type_of(datatype: DataType) -> Option<Type> {
    const INT: u8 = 0;
    const UINT: u8 = 1;
    const FLOAT: u8 = 2;
    const BFLOAT: u8 = 4;
    const BOOL: u8 = 6;
    let code = match datatype {
        DataType::Bool => BOOL,
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 | DataType::Uint64 => UINT,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => INT,
        DataType::Fp16 | DataType::Fp32 | DataType::Fp64 => FLOAT,
        DataType::Bf16 => BFLOAT,
        DataType::Bytes => return None,
    };
    datatype.size().map(|size| Type { code, bits: size as u8 * 8, lanes: 1 })
}

/// In elements, row by row.
fn strides(shape: &Shape) -> Shape {
    (0..shape.len()).map(|at| element_count(&shape[at + 1..]).unwrap_or(0) as i64).collect()
}

#[allow(clippy::disallowed_methods, reason = "whoever calls this keeps the interpreter")]
fn aligned_copy(py: Python<'_>, data: &Buffer) -> Buffer {
    let bytes = data.as_bytes();
    py.detach(|| {
        let mut memory: Vec<u8> = Vec::with_capacity(bytes.len() + ALIGNMENT);
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        memory.resize(start, 0);
        memory.extend_from_slice(bytes);
        Buffer::host(memory).slice(start..start + bytes.len())
    })
}

/// A description that a consumer knows by the name of its capsule.
trait Managed: Sized {
    const NAME: &'static CStr;

    fn tensor(&mut self) -> &mut DlTensor;
}

impl Managed for Legacy {
    const NAME: &'static CStr = c"dltensor";

    fn tensor(&mut self) -> &mut DlTensor {
        &mut self.tensor
    }
}

impl Managed for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";

    fn tensor(&mut self) -> &mut DlTensor {
        &mut self.tensor
    }
}

fn export<M: Managed>(py: Python<'_>, exported: Exported<M>) -> Result<Bound<'_, PyAny>, Fault> {
    let exported = settle(exported);
    // SAFETY: the pointer is that of a box, which the capsule owns until it is consumed; a failure leaves
    // the box to us.
    unsafe {
        let capsule = ffi::PyCapsule_New(exported.cast(), M::NAME.as_ptr(), Some(forsaken::<M>));
        Bound::from_owned_ptr_or_err(py, capsule).map_err(|error| {
            drop(Box::from_raw(exported));
            error.into()
        })
    }
}

/// In a box of its own, so that its description can point into it.
fn settle<M: Managed>(exported: Exported<M>) -> *mut Exported<M> {
    // No box any more when the pointers are made: one that moves would end their right to its memory.
    let settled = Box::into_raw(Box::new(exported));
    // SAFETY: nobody else has it yet.
    let Exported { managed, shape, strides, .. } = unsafe { &mut *settled };
    let tensor = managed.tensor();
    (tensor.shape, tensor.strides) = (shape.as_mut_ptr(), strides.as_mut_ptr());
    settled
}

/// The consumer has no more use for it; comes on any thread.
unsafe extern "C" fn delete<M: Managed>(managed: *mut M) {
    // SAFETY: the description is the first field of a box that was given away by `export`.
    drop(unsafe { Box::from_raw(managed.cast::<Exported<M>>()) });
}

/// A capsule ends. A consumer has given it another name, and deletes what was in it.
unsafe extern "C" fn forsaken<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with a capsule that `export` made.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()).cast::<M>());
        }
    }
}

/// What needs no interpreter, for `make miri`.
#[cfg(all(test, miri))]
mod tests {
    use std::slice;
    use std::sync::Arc;

    use super::*;

    struct Owned {
        bytes: Vec<u8>,
        _owner: Arc<()>,
    }

    impl AsRef<[u8]> for Owned {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    #[test]
    fn a_consumer_reads_all_of_the_description_and_deletes_it() {
        let owner = Arc::new(());
        let buffer = Buffer::from_owner(Owned { bytes: (0..24).collect(), _owner: owner.clone() });
        let shape: Shape = [2, 3].into_iter().collect();
        let tensor = DlTensor {
            data: buffer.as_bytes().as_ptr().cast_mut().cast(),
            device: Device { kind: CPU.0, index: CPU.1 },
            dimensions: 2,
            datatype: type_of(DataType::Int32).unwrap(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let deleter = Some(delete::<Versioned> as unsafe extern "C" fn(*mut Versioned));
        let managed = Versioned { version: VERSION, context: ptr::null_mut(), deleter, flags: 0, tensor };
        let strides = strides(&shape);
        let managed = settle(Exported { managed, shape, strides, _buffer: buffer }).cast::<Versioned>();
        // SAFETY: what a consumer does.
        unsafe {
            let tensor = &raw const (*managed).tensor;
            let rank = (*tensor).dimensions as usize;
            assert_eq!(slice::from_raw_parts((*tensor).shape, rank), [2, 3]);
            assert_eq!(slice::from_raw_parts((*tensor).strides, rank), [3, 1]);
            assert_eq!(*(*tensor).data.cast::<u8>().add(23), 23);
            ((*managed).deleter.unwrap())(managed);
        }
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}

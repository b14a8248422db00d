//! OpenVINO's tensors: inputs that borrow their memory, and outputs that belong to a request.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::null_mut;

use kushi_core::{DataType, Gathered, Shape};

use crate::api::{Api, RawShape, Status, TensorObject};
use crate::status::OpenVinoFailure;
use crate::strings;
use crate::types::to_element;

const INVALID_C_PARAM: Status = -14;

/// A tensor that is released here. Its memory is its own, or as its maker says.
pub(crate) struct RawTensor<'a> {
    api: &'a Api,
    pointer: *mut TensorObject,
}

impl<'a> RawTensor<'a> {
    /// With memory of its own, which is not initialised but for strings.
    pub(crate) fn allocate(api: &'a Api, datatype: DataType, shape: &[i64]) -> Result<Self, OpenVinoFailure> {
        // SAFETY: the shape is valid for its length, and only read.
        Self::make(api, |tensor| unsafe {
            (api.ov_tensor_create)(to_element(datatype), raw_shape(shape), tensor)
        })
    }

    pub(crate) fn make(
        api: &'a Api,
        create: impl FnOnce(*mut *mut TensorObject) -> i32,
    ) -> Result<Self, OpenVinoFailure> {
        let mut pointer = null_mut();
        api.check(create(&raw mut pointer))?;
        Ok(Self { api, pointer })
    }

    pub(crate) fn as_ptr(&self) -> *mut TensorObject {
        self.pointer
    }

    pub(crate) fn element(&self) -> Result<u32, OpenVinoFailure> {
        let mut element = 0;
        // SAFETY: the tensor lives, and one number is written.
        self.api.check(unsafe { (self.api.ov_tensor_get_element_type)(self.pointer, &raw mut element) })?;
        Ok(element)
    }

    pub(crate) fn shape(&self) -> Result<Shape, OpenVinoFailure> {
        let mut shape = RawShape { rank: 0, dims: null_mut() };
        // SAFETY: the tensor lives; the dimensions are as many as the rank says, and are freed after they were copied.
        unsafe {
            let status = (self.api.ov_tensor_get_shape)(self.pointer, &raw mut shape);
            if status == INVALID_C_PARAM {
                // Of a tensor that is there, it says so where there are no dimensions.
                return Ok(Shape::new());
            }
            self.api.check(status)?;
            let dims = Shape::from_slice(std::slice::from_raw_parts(shape.dims, shape.rank as usize));
            (self.api.ov_shape_free)(&raw mut shape);
            Ok(dims)
        }
    }

    pub(crate) fn byte_size(&self) -> Result<usize, OpenVinoFailure> {
        let mut size = 0;
        // SAFETY: the tensor lives, and one number is written.
        self.api.check(unsafe { (self.api.ov_tensor_get_byte_size)(self.pointer, &raw mut size) })?;
        Ok(size)
    }

    /// Where its elements begin; for strings, objects of C++.
    pub(crate) fn data(&self) -> Result<*mut u8, OpenVinoFailure> {
        let mut data: *mut c_void = null_mut();
        // SAFETY: the tensor lives, and one pointer is written.
        self.api.check(unsafe { (self.api.ov_tensor_data)(self.pointer, &raw mut data) })?;
        Ok(data.cast())
    }

    /// A copy of its elements, as the protocol writes them.
    pub(crate) fn read(&self, datatype: DataType, count: usize) -> Result<Vec<u8>, OpenVinoFailure> {
        let Some(size) = datatype.size() else { return strings::encode(self, count) };
        let length = count * size;
        if length == 0 {
            return Ok(Vec::new());
        }
        let (held, data) = (self.byte_size()?, self.data()?);
        if held != length {
            return Err(OpenVinoFailure::new(format!("an output has {held} bytes, {length} fill its shape")));
        }
        // SAFETY: the tensor has that many bytes from there, and nothing writes to them while its request is not run.
        Ok(unsafe { std::slice::from_raw_parts(data, length) }.to_vec())
    }
}

impl Drop for RawTensor<'_> {
    fn drop(&mut self) {
        // SAFETY: the tensor is owned here and not used again.
        unsafe { (self.api.ov_tensor_free)(self.pointer) }
    }
}

/// A tensor as an input of a run: over the bytes of `'b`, or with a copy of them for BYTES.
pub(crate) struct InputTensor<'a, 'b> {
    tensor: RawTensor<'a>,
    bytes: PhantomData<&'b [u8]>,
}

impl<'a, 'b> InputTensor<'a, 'b> {
    pub(crate) fn new(api: &'a Api, input: &Gathered<'b>) -> Result<Self, OpenVinoFailure> {
        let tensor = match input.datatype {
            DataType::Bytes => strings::decode(api, &input.shape, input.bytes)?,
            // SAFETY: the shape is valid for its length, and the core has checked that the bytes fill it. Casting the
            // constness away is sound: inputs of a network are never written to.
            datatype => RawTensor::make(api, |tensor| unsafe {
                let data = input.bytes.as_ptr().cast_mut().cast();
                (api.ov_tensor_create_from_host_ptr)(
                    to_element(datatype),
                    raw_shape(&input.shape),
                    data,
                    tensor,
                )
            })?,
        };
        Ok(Self { tensor, bytes: PhantomData })
    }

    pub(crate) fn as_ptr(&self) -> *const TensorObject {
        self.tensor.as_ptr()
    }
}

fn raw_shape(shape: &[i64]) -> RawShape {
    RawShape { rank: shape.len() as i64, dims: shape.as_ptr().cast_mut() }
}

//! ONNX Runtime's values: inputs that borrow their memory, outputs that own it.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;

use kushi_core::{DataType, Gathered, Shape, element_count};
use ort::sys::{OrtAllocator, OrtAllocatorType, OrtMemType, OrtMemoryInfo, OrtValue};

use crate::status::{OrtFailure, check};
use crate::types::to_element;

/// An `OrtValue` that is released here. A tensor of the CPU provider keeps its allocator alive, so it
/// may outlive the session that made it.
#[repr(transparent)]
pub(crate) struct Value(NonNull<OrtValue>);

// SAFETY: a value is not bound to a thread: ONNX Runtime counts references to its contents and to its
// allocator atomically, and nothing here writes to a value that another thread can see.
unsafe impl Send for Value {}
// SAFETY: as above; the functions called with a shared reference only read.
unsafe impl Sync for Value {}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: the value is owned here and not used again.
        unsafe { (ort::api().ReleaseValue)(self.0.as_ptr()) }
    }
}

/// A tensor as an input of a run: over the bytes of `'a`, or with a copy of them for BYTES.
#[repr(transparent)]
pub(crate) struct InputValue<'a> {
    value: Value,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> InputValue<'a> {
    pub(crate) fn new(input: &Gathered<'a>) -> Result<Self, OrtFailure> {
        let value = match input.datatype {
            DataType::Bytes => crate::strings::decode(&input.shape, input.bytes)?,
            datatype => borrow(datatype, &input.shape, input.bytes)?,
        };
        Ok(Self { value, bytes: PhantomData })
    }

    /// Of these numbers, as many as the shape has.
    pub(crate) fn of_integers(shape: &[i64], numbers: &'a [i64]) -> Result<Self, OrtFailure> {
        // SAFETY: any bytes of numbers are bytes, which live as long as they do.
        let bytes = unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) };
        Ok(Self { value: borrow(DataType::Int64, shape, bytes)?, bytes: PhantomData })
    }

    /// As `Run` takes its inputs.
    pub(crate) fn as_pointers(inputs: &[Self]) -> *const *const OrtValue {
        // Both layers are transparent around one pointer.
        inputs.as_ptr().cast()
    }
}

fn borrow(datatype: DataType, shape: &[i64], bytes: &[u8]) -> Result<Value, OrtFailure> {
    let memory = cpu_memory()?;
    make(|value| {
        // SAFETY: the shape and the bytes are valid for their lengths, and ONNX Runtime checks that
        // the one fits into the other. Casting the constness away is sound: graph inputs are never
        // written to nor reused for other values, by ONNX Runtime's memory plan.
        check(unsafe {
            (ort::api().CreateTensorWithDataAsOrtValue)(
                memory,
                bytes.as_ptr().cast_mut().cast(),
                bytes.len(),
                shape.as_ptr(),
                shape.len(),
                to_element(datatype),
                value,
            )
        })
    })
}

impl Value {
    /// A tensor with memory of its own, with zeros or empty strings in it.
    pub(crate) fn allocate(datatype: DataType, shape: &[i64]) -> Result<Self, OrtFailure> {
        let allocator = default_allocator()?;
        make(|value| {
            // SAFETY: the allocator lives as long as the process and the shape is valid for its length.
            check(unsafe {
                (ort::api().CreateTensorAsOrtValue)(
                    allocator,
                    shape.as_ptr(),
                    shape.len(),
                    to_element(datatype),
                    value,
                )
            })
        })
    }

    /// Takes over what a run has written; `None` where it has written nothing.
    pub(crate) fn from_raw(value: *mut OrtValue) -> Option<Self> {
        NonNull::new(value).map(Self)
    }

    pub(crate) fn as_ptr(&self) -> *mut OrtValue {
        self.0.as_ptr()
    }

    /// Where a tensor's elements begin.
    pub(crate) fn data(&self) -> Result<*mut u8, OrtFailure> {
        let mut data: *mut c_void = null_mut();
        // SAFETY: the value is alive; a value that is no tensor is refused with a status.
        check(unsafe { (ort::api().GetTensorMutableData)(self.as_ptr(), &raw mut data) })?;
        Ok(data.cast())
    }

    /// A tensor's element type, by its number in the C API, and shape.
    pub(crate) fn element_and_shape(&self) -> Result<(u32, Shape), OrtFailure> {
        let mut element = 0_u32;
        let mut dimensions = null();
        let mut rank = 0;
        // SAFETY: the value is alive; a value that is no tensor is refused with a status. The element type is
        // received as the number that it is in C, because the library may know more of them than the enum does.
        check(unsafe {
            (ort::api().GetTensorElementTypeAndShapeDataReference)(
                self.as_ptr(),
                (&raw mut element).cast(),
                &raw mut dimensions,
                &raw mut rank,
            )
        })?;
        let shape = match rank {
            0 => Shape::new(),
            // SAFETY: the dimensions lie in the value, which is alive and which nothing writes to.
            _ => Shape::from_slice(unsafe { std::slice::from_raw_parts(dimensions, rank) }),
        };
        Ok((element, shape))
    }

    /// The elements of a tensor of FP32.
    pub(crate) fn floats(&self) -> Result<&[f32], OrtFailure> {
        let (element, shape) = self.element_and_shape()?;
        assert_eq!(element, to_element(DataType::Fp32) as u32, "whoever asks knows the type");
        let length = element_count(&shape).unwrap_or(0);
        if length == 0 {
            return Ok(&[]);
        }
        // SAFETY: the tensor has so many numbers, aligned to them, which nothing writes to while it is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(self.data()?.cast_const().cast(), length) })
    }

    /// The bytes of a tensor of elements of fixed size.
    pub(crate) fn into_bytes(self, size: usize, shape: &[i64]) -> Result<OwnedBytes, OrtFailure> {
        let length = element_count(shape).unwrap_or(0) * size;
        let start = NonNull::new(self.data()?).unwrap_or(NonNull::dangling());
        Ok(OwnedBytes { start, length, _value: self })
    }
}

/// The elements of a tensor, which lives as long as they are in use.
pub(crate) struct OwnedBytes {
    start: NonNull<u8>,
    length: usize,
    _value: Value,
}

// SAFETY: the bytes belong to the value, which may move between threads, and are only read.
unsafe impl Send for OwnedBytes {}

impl AsRef<[u8]> for OwnedBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the tensor has `length` bytes from `start`, or none from anywhere; nothing writes
        // to them any more, and they live as long as the value beside them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

/// Numbers as the bytes of a tensor.
pub(crate) struct OwnedFloats(pub(crate) Vec<f32>);

impl AsRef<[u8]> for OwnedFloats {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: any bytes of numbers are bytes, which live as long as they do.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), size_of_val(&*self.0)) }
    }
}

fn make(create: impl FnOnce(*mut *mut OrtValue) -> Result<(), OrtFailure>) -> Result<Value, OrtFailure> {
    let mut value = null_mut();
    create(&raw mut value)?;
    Ok(Value(NonNull::new(value).expect("a value is not null where the status is good")))
}

struct Global<T>(*mut T);
// SAFETY: the two objects that are kept this way are immutable, live as long as the process, and are
// documented as usable from every thread.
unsafe impl<T> Send for Global<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Global<T> {}

fn global<T>(
    cell: &'static OnceLock<Global<T>>,
    create: impl FnOnce(*mut *mut T) -> Result<(), OrtFailure>,
) -> Result<*mut T, OrtFailure> {
    if let Some(global) = cell.get() {
        return Ok(global.0);
    }
    let mut made = null_mut();
    create(&raw mut made)?;
    // Of two threads that come first, one leaks a few bytes, once.
    Ok(cell.get_or_init(|| Global(made)).0)
}

fn cpu_memory() -> Result<*mut OrtMemoryInfo, OrtFailure> {
    static MEMORY: OnceLock<Global<OrtMemoryInfo>> = OnceLock::new();
    global(&MEMORY, |memory| {
        let (allocator, kind) = (OrtAllocatorType::OrtDeviceAllocator, OrtMemType::OrtMemTypeDefault);
        // SAFETY: writes one pointer.
        check(unsafe { (ort::api().CreateCpuMemoryInfo)(allocator, kind, memory) })
    })
}

fn default_allocator() -> Result<*mut OrtAllocator, OrtFailure> {
    static ALLOCATOR: OnceLock<Global<OrtAllocator>> = OnceLock::new();
    global(&ALLOCATOR, |allocator| {
        // SAFETY: writes one pointer, to an object that must not be released.
        check(unsafe { (ort::api().GetAllocatorWithDefaultOptions)(allocator) })
    })
}

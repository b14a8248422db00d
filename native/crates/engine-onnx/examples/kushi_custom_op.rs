//! A library of custom operators as ONNX Runtime loads them, of the domain `kushi.test`, with one FP32
//! input each:
//!
//! * `Triple` answers it three times as large.
//! * `Gate` answers it as it is. Where a number in it is below zero, it first connects to the abstract
//!   Unix socket that its attribute `at` has, and waits for the other end to close. So a test holds a
//!   run as long as it wants, and knows that it goes on (`tests/gates.py`).

use std::ffi::{CStr, CString, c_char, c_void};
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use ort::sys::{
    ONNXTensorElementDataType as Element, OrtApi, OrtApiBase, OrtCustomOp, OrtCustomOpDomain,
    OrtCustomOpInputOutputCharacteristic as Characteristic, OrtKernelContext, OrtKernelInfo,
    OrtSessionOptions, OrtStatusPtr, OrtTensorTypeAndShapeInfo, OrtValue,
};

/// The version of the C API that this library is written for: what came later is not asked of it.
const API_VERSION: u32 = 12;

static API: OnceLock<&'static OrtApi> = OnceLock::new();
static DOMAIN: OnceLock<Domain> = OnceLock::new();

static TRIPLE: OrtCustomOp = OrtCustomOp {
    CreateKernel: Some(create),
    GetName: Some(triple),
    KernelCompute: Some(compute_triple),
    KernelDestroy: Some(destroy),
    ..OPERATOR
};

static GATE: OrtCustomOp = OrtCustomOp {
    CreateKernel: Some(create_gate),
    GetName: Some(gate),
    KernelCompute: Some(compute_gate),
    KernelDestroy: Some(destroy_gate),
    ..OPERATOR
};

/// What operators have in common.
const OPERATOR: OrtCustomOp = OrtCustomOp {
    version: API_VERSION,
    CreateKernel: None,
    GetName: None,
    GetExecutionProviderType: Some(provider),
    GetInputType: Some(element),
    GetInputTypeCount: Some(one),
    GetOutputType: Some(element),
    GetOutputTypeCount: Some(one),
    KernelCompute: None,
    KernelDestroy: None,
    GetInputCharacteristic: Some(required),
    GetOutputCharacteristic: Some(required),
    GetInputMemoryType: None,
    GetVariadicInputMinArity: None,
    GetVariadicInputHomogeneity: None,
    GetVariadicOutputMinArity: None,
    GetVariadicOutputHomogeneity: None,
    CreateKernelV2: None,
    KernelComputeV2: None,
    InferOutputShapeFn: None,
    GetStartVersion: None,
    GetEndVersion: None,
    GetMayInplace: None,
    ReleaseMayInplace: None,
    GetAliasMap: None,
    ReleaseAliasMap: None,
};

/// # Safety
/// ONNX Runtime calls it, with the options of a session and its own table of functions.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn RegisterCustomOps(
    options: *mut OrtSessionOptions,
    base: *const OrtApiBase,
) -> OrtStatusPtr {
    // SAFETY: the caller's contract. The operators and their domain live as long as the library.
    unsafe {
        let Some(api) = ((*base).GetApi)(API_VERSION).as_ref() else { return OrtStatusPtr::default() };
        let domain = DOMAIN.get_or_init(|| Domain::new(API.get_or_init(|| api)));
        (api.AddCustomOpDomain)(options, domain.0)
    }
}

struct Domain(*mut OrtCustomOpDomain);
// SAFETY: nothing changes it once it is made.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    fn new(api: &OrtApi) -> Self {
        let mut domain = null_mut();
        // SAFETY: the operators live as long as the library.
        unsafe {
            assert!((api.CreateCustomOpDomain)(c"kushi.test".as_ptr(), &raw mut domain).0.is_null());
            for operator in [&raw const TRIPLE, &raw const GATE] {
                assert!((api.CustomOpDomain_Add)(domain, operator).0.is_null());
            }
        }
        Self(domain)
    }
}

/// Called when the library leaves the process, which is behind the last session with its operators.
#[used]
#[unsafe(link_section = ".fini_array")]
static RELEASE: extern "C" fn() = release;

extern "C" fn release() {
    if let (Some(api), Some(domain)) = (API.get(), DOMAIN.get()) {
        // SAFETY: no session has it any more.
        unsafe { (api.ReleaseCustomOpDomain)(domain.0) };
    }
}

unsafe extern "system" fn create(
    _: *const OrtCustomOp,
    _: *const OrtApi,
    _: *const OrtKernelInfo,
) -> *mut c_void {
    // A kernel that keeps nothing: any pointer but null.
    (&raw const TRIPLE).cast_mut().cast()
}

unsafe extern "system" fn destroy(_: *mut c_void) {}

/// The kernel is the name of its socket.
unsafe extern "system" fn create_gate(
    _: *const OrtCustomOp,
    _: *const OrtApi,
    info: *const OrtKernelInfo,
) -> *mut c_void {
    let api = API.get().expect("the library was registered");
    let mut name: [c_char; 108] = [0; 108];
    let mut size = name.len();
    // SAFETY: the attribute is written with a zero at its end.
    let name = unsafe {
        let read =
            (api.KernelInfoGetAttribute_string)(info, c"at".as_ptr(), name.as_mut_ptr(), &raw mut size);
        assert!(read.0.is_null(), "a gate has an attribute `at`");
        CStr::from_ptr(name.as_ptr()).to_owned()
    };
    Box::into_raw(Box::new(name)).cast()
}

unsafe extern "system" fn destroy_gate(kernel: *mut c_void) {
    // SAFETY: it is what `create_gate` answered, once.
    drop(unsafe { Box::from_raw(kernel.cast::<CString>()) });
}

unsafe extern "system" fn triple(_: *const OrtCustomOp) -> *const c_char {
    c"Triple".as_ptr()
}

unsafe extern "system" fn gate(_: *const OrtCustomOp) -> *const c_char {
    c"Gate".as_ptr()
}

unsafe extern "system" fn provider(_: *const OrtCustomOp) -> *const c_char {
    c"CPUExecutionProvider".as_ptr()
}

unsafe extern "system" fn element(_: *const OrtCustomOp, _: usize) -> Element {
    Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
}

unsafe extern "system" fn one(_: *const OrtCustomOp) -> usize {
    1
}

unsafe extern "system" fn required(_: *const OrtCustomOp, _: usize) -> Characteristic {
    Characteristic::INPUT_OUTPUT_REQUIRED
}

unsafe extern "system" fn compute_triple(_: *mut c_void, context: *mut OrtKernelContext) {
    // SAFETY: the caller's contract.
    let (from, to) = unsafe { tensors(context) };
    for (to, from) in to.iter_mut().zip(from) {
        *to = 3.0 * from;
    }
}

unsafe extern "system" fn compute_gate(kernel: *mut c_void, context: *mut OrtKernelContext) {
    // SAFETY: the caller's contract. The kernel is what `create_gate` answered.
    let (name, (from, to)) = unsafe { (&*kernel.cast::<CString>(), tensors(context)) };
    if from.iter().any(|number| *number < 0.0) {
        let address = SocketAddr::from_abstract_name(name.to_bytes());
        // where nobody listens, nobody holds it
        if let Ok(mut held) = address.and_then(|address| UnixStream::connect_addr(&address)) {
            let _ = held.read(&mut [0]);
        }
    }
    to.copy_from_slice(from);
}

/// The only input, and the only output in the same shape.
///
/// # Safety
/// The context is that of a call with one tensor of FP32, and nobody else has its tensors.
unsafe fn tensors<'a>(context: *mut OrtKernelContext) -> (&'a [f32], &'a mut [f32]) {
    let api = API.get().expect("the library was registered");
    let (mut input, mut output) = (null::<OrtValue>(), null_mut::<OrtValue>());
    let (mut from, mut to) = (null_mut::<c_void>(), null_mut::<c_void>());
    let mut info = null_mut::<OrtTensorTypeAndShapeInfo>();
    let (mut rank, mut count) = (0, 0);
    // SAFETY: the caller's contract. The output gets its shape before its data is asked for. The kernels of
    // this version have no way to fail.
    unsafe {
        let _ = (api.KernelContext_GetInput)(context, 0, &raw mut input);
        let _ = (api.GetTensorTypeAndShape)(input, &raw mut info);
        let _ = (api.GetDimensionsCount)(info, &raw mut rank);
        let mut shape = vec![0; rank];
        let _ = (api.GetDimensions)(info, shape.as_mut_ptr(), rank);
        let _ = (api.GetTensorShapeElementCount)(info, &raw mut count);
        (api.ReleaseTensorTypeAndShapeInfo)(info);
        let _ = (api.KernelContext_GetOutput)(context, 0, shape.as_ptr(), rank, &raw mut output);
        let _ = (api.GetTensorMutableData)(input.cast_mut(), &raw mut from);
        let _ = (api.GetTensorMutableData)(output, &raw mut to);
        let from = std::slice::from_raw_parts(from.cast::<f32>(), count);
        let to = std::slice::from_raw_parts_mut(to.cast::<f32>(), count);
        (from, to)
    }
}

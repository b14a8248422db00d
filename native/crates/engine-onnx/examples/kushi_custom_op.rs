//! A library of custom operators as ONNX Runtime loads them: `Triple` of the domain `kushi.test`, which
//! answers its FP32 input three times as large.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use ort::sys::{
    ONNXTensorElementDataType as Element, OrtApi, OrtApiBase, OrtCustomOp,
    OrtCustomOpInputOutputCharacteristic as Characteristic, OrtKernelContext, OrtKernelInfo,
    OrtSessionOptions, OrtStatusPtr, OrtTensorTypeAndShapeInfo, OrtValue,
};

/// The version of the C API that this library is written for: what came later is not asked of it.
const API_VERSION: u32 = 12;

static API: OnceLock<&'static OrtApi> = OnceLock::new();

static TRIPLE: OrtCustomOp = OrtCustomOp {
    version: API_VERSION,
    CreateKernel: Some(create),
    GetName: Some(name),
    GetExecutionProviderType: Some(provider),
    GetInputType: Some(element),
    GetInputTypeCount: Some(one),
    GetOutputType: Some(element),
    GetOutputTypeCount: Some(one),
    KernelCompute: Some(compute),
    KernelDestroy: Some(destroy),
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
    let mut domain = null_mut();
    // SAFETY: the caller's contract. The domain is ONNX Runtime's from the moment that it is added, and
    // the operator lives as long as the library.
    unsafe {
        let Some(api) = ((*base).GetApi)(API_VERSION).as_ref() else { return OrtStatusPtr::default() };
        let api = API.get_or_init(|| api);
        let made = (api.CreateCustomOpDomain)(c"kushi.test".as_ptr(), &raw mut domain);
        if !made.0.is_null() {
            return made;
        }
        let added = (api.CustomOpDomain_Add)(domain, &raw const TRIPLE);
        if !added.0.is_null() {
            return added;
        }
        (api.AddCustomOpDomain)(options, domain)
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

unsafe extern "system" fn name(_: *const OrtCustomOp) -> *const c_char {
    c"Triple".as_ptr()
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

unsafe extern "system" fn compute(_: *mut c_void, context: *mut OrtKernelContext) {
    let api = API.get().expect("the library was registered");
    let (mut input, mut output) = (std::ptr::null::<OrtValue>(), null_mut::<OrtValue>());
    let (mut from, mut to) = (null_mut::<c_void>(), null_mut::<c_void>());
    let mut info = null_mut::<OrtTensorTypeAndShapeInfo>();
    let (mut rank, mut count) = (0, 0);
    // SAFETY: the context is that of a call with one tensor of FP32 and one output, which gets its shape.
    // The kernels of this version have no way to fail.
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
        for (to, from) in to.iter_mut().zip(from) {
            *to = 3.0 * from;
        }
    }
}

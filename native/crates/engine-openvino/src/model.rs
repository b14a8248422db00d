//! A network that was read, before it is compiled.

use std::path::Path;
use std::ptr::{null, null_mut};

use kushi_core::{Error, ErrorKind, TensorInfo};

use crate::api::{self, ConstPort, Dimension, PartialShape};
use crate::compiled::{CompileOptions, CompiledModel};
use crate::library::{Core, path_text, take_text};
use crate::status::OpenVinoFailure;
use crate::types::from_element;

/// A network, of which only shapes can change.
pub struct OpenVinoModel {
    core: Core,
    pointer: *mut api::Model,
    shown: String,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
}

// SAFETY: a network is not bound to a thread.
unsafe impl Send for OpenVinoModel {}
// SAFETY: what is called with a shared reference only reads it.
unsafe impl Sync for OpenVinoModel {}

impl OpenVinoModel {
    /// Reads a file of any format that OpenVINO takes, with the operators of a library beside its own.
    pub fn read(path: &Path, extension: Option<&Path>) -> Result<Self, Error> {
        let shown = path.display().to_string();
        let fault =
            |failure: OpenVinoFailure| invalid(&shown, &format!("cannot be loaded: {}", failure.text()));
        let core = Core::new().map_err(fault)?;
        if let Some(library) = extension {
            core.add_extension(library).map_err(fault)?;
        }
        let file = path_text(path).map_err(fault)?;
        let mut pointer = null_mut();
        // SAFETY: the core lives, and the text ends with a zero; the weights lie where the format says.
        let read =
            unsafe { (core.api.ov_core_read_model)(core.as_ptr(), file.as_ptr(), null(), &raw mut pointer) };
        core.api.check(read).map_err(fault)?;
        let mut model = Self { core, pointer, shown: shown.clone(), inputs: Vec::new(), outputs: Vec::new() };
        model.describe()?;
        Ok(model)
    }

    pub fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    pub fn outputs(&self) -> &[TensorInfo] {
        &self.outputs
    }

    /// Gives inputs other shapes, by their names; -1 leaves a dimension open.
    pub fn reshape(&mut self, shapes: &[(String, Vec<i64>)]) -> Result<(), Error> {
        let named = |name: &str| self.inputs.iter().position(|input| input.name == *name);
        let indexes = shapes.iter().map(|(name, _)| {
            named(name).ok_or_else(|| invalid(&self.shown, &format!("has no input '{name}'")))
        });
        let indexes: Vec<usize> = indexes.collect::<Result<_, _>>()?;
        let mut dims: Vec<Vec<Dimension>> =
            shapes.iter().map(|(_, shape)| shape.iter().map(|&size| dimension(size)).collect()).collect();
        let partial: Vec<PartialShape> = dims
            .iter_mut()
            .map(|dims| PartialShape { rank: dimension(dims.len() as i64), dims: dims.as_mut_ptr() })
            .collect();
        let api = self.core.api;
        // SAFETY: the network lives and is borrowed alone; there is a shape for each index, valid for its length, and
        // both are only read.
        let reshaped = unsafe {
            (api.ov_model_reshape_by_port_indexes)(
                self.pointer,
                indexes.as_ptr(),
                partial.as_ptr(),
                indexes.len(),
            )
        };
        api.check(reshaped).map_err(|failure| {
            invalid(&self.shown, &format!("cannot have the shapes {shapes:?}: {}", failure.text()))
        })?;
        self.describe()
    }

    pub fn compile(&self, options: &CompileOptions) -> Result<CompiledModel, Error> {
        CompiledModel::new(self, options).map_err(|failure| {
            invalid(
                &self.shown,
                &format!("cannot be compiled for device {}: {}", options.device, failure.text()),
            )
        })
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn as_ptr(&self) -> *const api::Model {
        self.pointer
    }

    fn describe(&mut self) -> Result<(), Error> {
        let api = self.core.api;
        let fault = |text: String| invalid(&self.shown, &text);
        let inputs = list(
            &self.core,
            self.pointer,
            "input",
            api.ov_model_inputs_size,
            api.ov_model_const_input_by_index,
        );
        let outputs = list(
            &self.core,
            self.pointer,
            "output",
            api.ov_model_outputs_size,
            api.ov_model_const_output_by_index,
        );
        (self.inputs, self.outputs) = (inputs.map_err(fault)?, outputs.map_err(fault)?);
        Ok(())
    }
}

impl Drop for OpenVinoModel {
    fn drop(&mut self) {
        // SAFETY: the network is owned here and not used again; what was compiled of it keeps what it needs.
        unsafe { (self.core.api.ov_model_free)(self.pointer) }
    }
}

fn invalid(shown: &str, text: &str) -> Error {
    Error::new(ErrorKind::ConfigInvalid, format!("openvino model '{shown}' {text}"))
}

type SizeOf = unsafe extern "C" fn(*const api::Model, *mut usize) -> api::Status;
type PortAt = unsafe extern "C" fn(*const api::Model, usize, *mut *mut ConstPort) -> api::Status;

fn list(
    core: &Core,
    model: *const api::Model,
    kind: &str,
    size: SizeOf,
    at: PortAt,
) -> Result<Vec<TensorInfo>, String> {
    let api = core.api;
    let said = |failure: OpenVinoFailure| format!("cannot be described: {}", failure.text());
    let mut count = 0;
    // SAFETY: the network lives, and one number is written.
    api.check(unsafe { size(model, &raw mut count) }).map_err(said)?;
    let ports = (0..count).map(|index| {
        let mut pointer = null_mut();
        // SAFETY: the network lives, and one pointer is written, which is owned from here on.
        api.check(unsafe { at(model, index, &raw mut pointer) }).map_err(said)?;
        Port { core, pointer }.describe(kind, index)
    });
    ports.collect()
}

/// An input or output of a network.
struct Port<'a> {
    core: &'a Core,
    pointer: *mut ConstPort,
}

impl Port<'_> {
    fn describe(&self, kind: &str, index: usize) -> Result<TensorInfo, String> {
        // Networks out of memory often have no names; Triton's PyTorch backend calls such tensors so.
        let name = self.name().unwrap_or_else(|_| format!("{}__{index}", kind.to_uppercase()));
        let described = |failure: OpenVinoFailure| format!("{kind} '{name}': {}", failure.text());
        let element = self.element().map_err(described)?;
        let datatype = from_element(element).ok_or_else(|| {
            format!("{kind} '{name}' has elements of type {element}, which the protocol does not have")
        })?;
        let shape = self.shape().map_err(described)?;
        Ok(TensorInfo { name, datatype, shape })
    }

    fn name(&self) -> Result<String, OpenVinoFailure> {
        let mut text = null_mut();
        let api = self.core.api;
        // SAFETY: the port lives; a text is written that is taken over.
        unsafe {
            api.check((api.ov_port_get_any_name)(self.pointer, &raw mut text))?;
            Ok(take_text(api, text))
        }
    }

    fn element(&self) -> Result<u32, OpenVinoFailure> {
        let mut element = 0;
        let api = self.core.api;
        // SAFETY: the port lives, and one number is written.
        api.check(unsafe { (api.ov_port_get_element_type)(self.pointer, &raw mut element) })?;
        Ok(element)
    }

    /// `None` where the number of dimensions is open.
    fn shape(&self) -> Result<Option<Vec<i64>>, OpenVinoFailure> {
        let api = self.core.api;
        let mut shape = PartialShape { rank: dimension(0), dims: null_mut() };
        // SAFETY: the port lives; so many dimensions are written as the rank says, and freed after they were copied.
        unsafe {
            api.check((api.ov_port_get_partial_shape)(self.pointer, &raw mut shape))?;
            let known = shape.rank.min == shape.rank.max && shape.rank.min >= 0;
            let dims = known.then(|| {
                let sizes = (0..shape.rank.max as usize).map(|index| *shape.dims.add(index));
                sizes.map(|size| if size.min == size.max { size.max } else { -1 }).collect()
            });
            (api.ov_partial_shape_free)(&raw mut shape);
            Ok(dims)
        }
    }
}

impl Drop for Port<'_> {
    fn drop(&mut self) {
        // SAFETY: the port is owned here and not used again.
        unsafe { (self.core.api.ov_output_const_port_free)(self.pointer) }
    }
}

/// One size, or with -1 any.
fn dimension(size: i64) -> Dimension {
    match size {
        -1 => Dimension { min: 0, max: -1 },
        size => Dimension { min: size, max: size },
    }
}

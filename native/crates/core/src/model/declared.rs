//! What a model's file says of its tensors, for engines whose files say it.

use crate::{DataType, TensorSpec};

/// An input or output as the model file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    pub datatype: DataType,
    /// -1 for a dimension that the file leaves open; `None` where it does not say how many there are.
    pub shape: Option<Vec<i64>>,
}

/// Checks that every tensor of a specification is one that the model has, under its data type. `kind` is "input"
/// or "output".
pub fn check_declared<'a>(
    kind: &str,
    specs: &[TensorSpec],
    declared: impl Iterator<Item = &'a TensorInfo> + Clone,
) -> Result<(), String> {
    for spec in specs {
        let name = &spec.name;
        let Some(tensor) = declared.clone().find(|tensor| tensor.name == *name) else {
            let names: Vec<String> = declared.map(|tensor| format!("'{}'", tensor.name)).collect();
            return Err(format!("{kind} '{name}' is not in the model, which has {}", names.join(", ")));
        };
        if tensor.datatype != spec.datatype {
            let (expected, got) = (tensor.datatype, spec.datatype);
            return Err(format!(
                "{kind} '{name}' has data-type {expected} in the model, the configuration says {got}"
            ));
        }
    }
    Ok(())
}

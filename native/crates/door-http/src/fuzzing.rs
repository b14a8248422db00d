//! What must hold for any bytes, for the fuzz target in `native/fuzz` and the test that repeats what it has found.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::HeaderValue;
use kushi_core::{
    Bound, DataType, Error, Labels, MetricsSpec, ModelSpec, QueuePolicy, QueueSpec, TensorSpec,
    TimeoutAction, element_count,
};
use kushi_net::BodyMemory;
use smallvec::SmallVec;

use crate::inputs::Scope;
use crate::json_length::JsonLength;
use crate::limits::HttpLimits;
use crate::request::{self, InferRequest};
use crate::response::Format;

/// An inference request: a line with its `Inference-Header-Content-Length`, empty for none, and its body.
pub fn infer(bytes: &[u8]) {
    let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return };
    let (length, body) = (&bytes[..end], Bytes::copy_from_slice(&bytes[end + 1..]));
    let Ok(length) = HeaderValue::from_bytes(length) else { return };
    let length = Some(&length).filter(|length| !length.is_empty());
    let Ok(stated) = JsonLength::read(length, Some(body.len() as u64), false) else { return };
    let Ok(length) = stated.within(body.len()) else { return };
    let Ok(bound) = read(&body, length) else { return };
    for tensor in bound.inputs.iter().flatten() {
        if let Some(size) = tensor.datatype.size() {
            assert_eq!(tensor.data.len(), element_count(&tensor.shape).unwrap_or(0) * size);
        }
        assert_eq!(tensor.shape[0], bound.rows as i64);
    }
}

fn read(body: &Bytes, json_length: usize) -> Result<Bound, Error> {
    let spec = spec();
    let regions = Arc::default();
    let memory = BodyMemory::default();
    let limits = HttpLimits { max_input_bytes: 1 << 20, ..HttpLimits::default() };
    let scope = Scope { model: &spec.name, limits: &limits, regions: &regions, memory: &memory };
    let InferRequest { id, inputs, outputs, binary_by_default, .. } =
        request::parse(body, json_length, scope)?;
    let bound = {
        let names: SmallVec<[&str; 8]> = outputs.iter().map(|output| &*output.name).collect();
        spec.bind(&id, inputs, &names)?
    };
    spec.classes(outputs.iter().map(|output| (&*output.name, output.classes)))?;
    Format::new(&spec, &bound.wanted, outputs, binary_by_default)?;
    Ok(bound)
}

/// The model that the seeds ask, with a text and a mask that they may leave out.
fn spec() -> ModelSpec {
    let tensor = |name: &str, datatype, optional| TensorSpec {
        name: name.into(),
        datatype,
        dims: vec![-1],
        reshape: None,
        optional,
        labels: Labels::default(),
    };
    let integers = |name| tensor(name, DataType::Int32, false);
    let level = QueuePolicy {
        max_requests: 0,
        default_timeout_us: 0,
        allow_timeout_override: false,
        timeout_action: TimeoutAction::Reject,
    };
    ModelSpec {
        name: "add_sub".into(),
        version: 1,
        platform: String::new(),
        backend: String::new(),
        max_batch_size: 8,
        inputs: vec![
            integers("INPUT0"),
            integers("INPUT1"),
            tensor("TEXT", DataType::Bytes, true),
            tensor("MASK", DataType::Bool, true),
        ],
        outputs: vec![integers("OUTPUT0"), tensor("OUTPUT1", DataType::Fp16, false)],
        batching: None,
        queue: QueueSpec { max_bytes: 1 << 20, levels: vec![level], default_level: 1, ragged: Vec::new() },
        instances: 1,
        cores: Vec::new(),
        rates: Vec::new(),
        inline: false,
        config_json: String::new(),
        config_message: Vec::new(),
        decoupled: false,
        load_seconds: 0.0,
        metrics: MetricsSpec::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn what_a_fuzzer_began_with_or_found_holds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/http_infer");
        let seeds: Vec<_> = fs::read_dir(folder).unwrap().collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            super::infer(&fs::read(seed.unwrap().path()).unwrap());
        }
    }
}

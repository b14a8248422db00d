//! Everything but inference: verbs of the data plane, whose arguments and answers are messages here.

use std::collections::HashMap;

use bytes::{Buf, Bytes};
use kushi_core::{Error, ErrorKind, Totals, epoch_ms};
use kushi_dataplane::{
    CudaPlace, CudaRegistration, IndexEntry, LogSettings, ModelMetadata, ModelStatistics, Overrides,
    Registration, ResponseRow, Sent, TensorMetadata, TraceSetting, Verb, VerbAnswer, unanswered,
};
use kushi_net::{Answering, Owner, answered};
use kushi_shm::HANDLE_BYTES;
use kushi_verbs as verbs;
use prost::Message;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use serde_json::{Map, Value, json};

use crate::answer::CallAnswer;
use crate::context::GrpcContext;
use crate::framing;
use crate::infer::LONG_BYTES;
use crate::messages::{self, Choice, LogChoice, LogValue, Named, RepositoryParameter, TraceValue};
use crate::method::LOAD;
use crate::status::{INTERNAL, Status};

/// Of a load or an unload: files, a configuration and names.
const MOST_FIELDS: usize = verbs::MOST_FILES + 8;

pub(crate) async fn perform(
    context: &GrpcContext,
    name: &'static str,
    message: Bytes,
    mut answering: Answering,
) -> Result<CallAnswer, Status> {
    let verb = if message.len() > LONG_BYTES {
        let (bytes, read) = (message.len(), move |_: &_| verb(name, message));
        Box::pin(context.io.net.pool.run(Owner::SERVER, bytes, read)).await?
    } else {
        verb(name, message)
    };
    let verb = verb.map_err(|error| Status::new(INTERNAL, format!("cannot read the request: {error}")))??;
    answering.prepared();
    let asks_readiness = matches!(verb, Verb::ModelReady { .. });
    let answered = match ask(context, verb).await {
        // Over HTTP this is an error. Triton's clients over gRPC ask until it is true.
        Err(error) if asks_readiness && is_absent(error.kind) => VerbAnswer::Health(false),
        answered => answered?,
    };
    let message = rendered(&answered);
    let bytes = message.iter().map(Bytes::len).sum();
    answering.owe_one_of_many(&context.small_requests, bytes);
    Ok(CallAnswer::new(message, answering))
}

fn is_absent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ModelNotFound | ErrorKind::ModelNotReady | ErrorKind::ModelUnavailable)
}

pub(crate) async fn ask(context: &GrpcContext, verb: Verb) -> Result<VerbAnswer, Error> {
    answered(|on_answer| context.grpc.plane.perform(verb, on_answer))
        .await
        .unwrap_or_else(|| Err(unanswered()))
}

/// A message, ready to be sent.
pub(crate) fn encoded(message: &impl Message) -> framing::Message {
    framing::framed(&[message.encode_to_vec().into()])
}

/// Triton has other words for wrong parameters here than over HTTP.
fn overrides(parameters: HashMap<String, RepositoryParameter>) -> Result<Overrides, Error> {
    let mut overrides = Overrides::default();
    for (key, RepositoryParameter { choice }) in parameters {
        let wrong = |expected| format!("invalid value type for load parameter '{key}', expected {expected}.");
        match (key.strip_prefix(verbs::FILE), choice) {
            (None, Some(Choice::String(config))) if key == "config" => overrides.config = Some(config),
            (None, Some(Choice::String(versions))) if key == verbs::VERSIONS => {
                overrides.versions = Some(versions);
            }
            (None, _) if key == "config" => return Err(Error::invalid(wrong("string_param"))),
            (Some(_), Some(Choice::Bytes(_))) if overrides.files.len() >= verbs::MOST_FILES => {
                let text = format!("at most {} files can be loaded at a time", verbs::MOST_FILES);
                return Err(Error::invalid(text));
            }
            (Some(path), Some(Choice::Bytes(content))) => {
                overrides.files.push((path.into(), content.into()));
            }
            (Some(_), _) => return Err(Error::invalid(wrong("bytes_param"))),
            (None, _) => return Err(Error::invalid(format!("unrecognized load parameter '{key}'."))),
        }
    }
    overrides.files.sort_unstable();
    Ok(overrides)
}

fn dependents(parameters: &HashMap<String, RepositoryParameter>) -> Result<bool, Error> {
    match parameters.get("unload_dependents").map(|parameter| &parameter.choice) {
        None => Ok(false),
        Some(Some(Choice::Bool(with))) => Ok(*with),
        Some(_) => {
            Err(Error::invalid("invalid value type for 'unload_dependents' parameter, expected bool_param."))
        }
    }
}

/// Whether a message has more than `most` of the fields that it has itself.
fn has_more_fields(message: &Bytes, most: usize) -> Result<bool, prost::DecodeError> {
    let mut rest = message.clone();
    for _ in 0..=most {
        if !rest.has_remaining() {
            return Ok(false);
        }
        let (tag, kind) = decode_key(&mut rest)?;
        skip_field(kind, tag, &mut rest, DecodeContext::default())?;
    }
    Ok(true)
}

fn control(name: &str, message: Bytes) -> Result<Result<Verb, Error>, prost::DecodeError> {
    if has_more_fields(&message, MOST_FIELDS)? {
        // Each takes many times the bytes that it has in the message.
        return Ok(Err(Error::invalid(format!("at most {MOST_FIELDS} parameters and names can be sent"))));
    }
    let asked = messages::RepositoryModelRequest::decode(message)?;
    let model = asked.model_name;
    Ok(if !asked.repository_name.is_empty() {
        Err(verbs::repository_named())
    } else if name == LOAD {
        overrides(asked.parameters).map(|overrides| Verb::RepositoryModelLoad { model, overrides })
    } else {
        dependents(&asked.parameters).map(|dependents| Verb::RepositoryModelUnload { model, dependents })
    })
}

fn verb(name: &str, message: Bytes) -> Result<Result<Verb, Error>, prost::DecodeError> {
    if matches!(name, LOAD | "RepositoryModelUnload") {
        return control(name, message);
    }
    if name == "CudaSharedMemoryRegister" {
        let mut asked = messages::CudaSharedMemoryRegisterRequest::decode(message)?;
        let place = cuda_place(&asked);
        return Ok(Ok(Verb::CudaSharedMemoryRegister { region: std::mem::take(&mut asked.name), place }));
    }
    let arguments = arguments(name, message)?;
    Ok(verbs::verb(name, arguments.to_string().as_bytes()))
}

/// A handle needs no text here, other than in JSON.
fn cuda_place(asked: &messages::CudaSharedMemoryRegisterRequest) -> Sent<CudaPlace> {
    let refused = |fault: String| {
        Error::invalid(format!("failed to register shared memory region '{}': {fault}", asked.name))
    };
    let handle = (&*asked.raw_handle).try_into().map_err(|_| {
        refused(format!("expected a handle of {HANDLE_BYTES} bytes, got {}", asked.raw_handle.len()))
    })?;
    let device_id = u64::try_from(asked.device_id)
        .map_err(|_| refused(format!("expected a device_id of 0 or more, got {}", asked.device_id)))?;
    Ok(CudaPlace { handle, device_id, byte_size: asked.byte_size })
}

/// As the reader of verbs wants them.
fn arguments(name: &str, message: Bytes) -> Result<Value, prost::DecodeError> {
    Ok(match name {
        "RepositoryIndex" => {
            let asked = messages::RepositoryIndexRequest::decode(message)?;
            json!({"repository_name": asked.repository_name, "ready": asked.ready})
        }
        "SystemSharedMemoryRegister" => {
            let asked = messages::SystemSharedMemoryRegisterRequest::decode(message)?;
            json!({"name": asked.name, "key": asked.key, "offset": asked.offset, "byte_size": asked.byte_size})
        }
        "TraceSetting" => {
            let asked = messages::TraceSettings::decode(message)?;
            let settings = asked.settings.into_iter().map(|(key, value)| {
                let value = trace_value(&key, value);
                (key, value)
            });
            json!({"model_name": asked.model_name, "settings": settings.collect::<Map<_, _>>()})
        }
        "LogSettings" => {
            let asked = messages::LogSettings::decode(message)?;
            let settings = asked.settings.into_iter().map(|(key, value)| (key, log_value(value)));
            json!({"settings": settings.collect::<Map<_, _>>()})
        }
        _ => {
            let asked = Named::decode(message)?;
            json!({"name": asked.name, "version": asked.version})
        }
    })
}

/// One that has no value takes the setting back.
fn trace_value(key: &str, TraceValue { value }: TraceValue) -> Value {
    match (key, value.first()) {
        (_, None) => Value::Null,
        ("trace_level", Some(_)) => value.into(),
        (_, Some(first)) => first.clone().into(),
    }
}

fn log_value(LogValue { choice }: LogValue) -> Value {
    match choice {
        None => Value::Null,
        Some(LogChoice::Bool(value)) => value.into(),
        Some(LogChoice::Uint32(value)) => value.into(),
        Some(LogChoice::String(value)) => value.into(),
    }
}

fn rendered(answered: &VerbAnswer) -> framing::Message {
    match answered {
        VerbAnswer::Done => framing::framed(&[]),
        VerbAnswer::Metrics(text) => encoded(&messages::Metrics { text: text.clone() }),
        &VerbAnswer::Health(well) => encoded(&messages::Health { well }),
        VerbAnswer::ServerMetadata(server) => encoded(&messages::ServerMetadataResponse {
            name: server.name.clone(),
            version: server.version.clone(),
            extensions: server.extensions.clone(),
        }),
        VerbAnswer::ModelMetadata(model) => encoded(&metadata(model)),
        VerbAnswer::ModelConfig(config) => {
            let config = Bytes::copy_from_slice(&config.message);
            encoded(&messages::ModelConfigResponse { config })
        }
        VerbAnswer::ModelStatistics(models) => {
            let model_stats = models.iter().map(statistics).collect();
            encoded(&messages::ModelStatisticsResponse { model_stats })
        }
        VerbAnswer::Index(entries) => {
            let models = entries.iter().map(index_entry).collect();
            encoded(&messages::RepositoryIndexResponse { models })
        }
        VerbAnswer::Regions(regions) => {
            let regions = regions.iter().map(|region| (region.name.clone(), status(region))).collect();
            encoded(&messages::SharedMemoryStatusResponse { regions })
        }
        VerbAnswer::CudaRegions(regions) => {
            let regions = regions.iter().map(|region| (region.name.clone(), cuda_status(region))).collect();
            encoded(&messages::CudaSharedMemoryStatusResponse { regions })
        }
        VerbAnswer::LogSettings { file, settings } => encoded(&log_settings(file, *settings)),
        VerbAnswer::TraceSetting(setting) => encoded(&trace_settings(setting)),
    }
}

fn metadata(model: &ModelMetadata) -> messages::ModelMetadataResponse {
    let tensors = |tensors: &[TensorMetadata]| {
        let one = |tensor: &TensorMetadata| messages::TensorMetadata {
            name: tensor.name.clone(),
            datatype: tensor.datatype.name().into(),
            shape: tensor.shape.clone(),
        };
        tensors.iter().map(one).collect()
    };
    messages::ModelMetadataResponse {
        name: model.name.clone(),
        versions: model.versions.iter().map(u64::to_string).collect(),
        platform: model.platform.clone(),
        inputs: tensors(&model.inputs),
        outputs: tensors(&model.outputs),
    }
}

fn statistics(model: &ModelStatistics) -> messages::ModelStatistics {
    let counts = &model.counts;
    let of = |totals: Totals| Some(messages::StatisticDuration { count: totals.count, ns: totals.ns });
    let none = of(Totals::default());
    messages::ModelStatistics {
        name: model.name.clone(),
        version: model.version.to_string(),
        last_inference: counts.last_inference.map_or(0, epoch_ms),
        inference_count: counts.inference_count,
        execution_count: counts.execution_count,
        inference_stats: Some(messages::InferStatistics {
            success: of(counts.success),
            fail: of(counts.fail),
            queue: of(counts.queue),
            compute_input: of(counts.compute_input),
            compute_infer: of(counts.compute_infer),
            compute_output: of(counts.compute_output),
            cache_hit: none,
            cache_miss: none,
        }),
        batch_stats: counts
            .batches
            .iter()
            .map(|(&size, row)| messages::InferBatchStatistics {
                batch_size: size as u64,
                compute_input: of(row.compute_input),
                compute_infer: of(row.compute_infer),
                compute_output: of(row.compute_output),
            })
            .collect(),
        response_stats: model
            .responses
            .iter()
            .enumerate()
            .map(|(number, row)| (number.to_string(), response_row(row)))
            .collect(),
    }
}

fn response_row(row: &ResponseRow) -> messages::InferResponseStatistics {
    let of = |totals: Totals| Some(messages::StatisticDuration { count: totals.count, ns: totals.ns });
    messages::InferResponseStatistics {
        compute_infer: of(row.compute_infer),
        compute_output: of(row.compute_output),
        success: of(row.success),
        fail: of(row.fail),
        empty_response: of(row.empty_response),
        cancel: of(row.cancel),
    }
}

fn index_entry(entry: &IndexEntry) -> messages::ModelIndex {
    messages::ModelIndex {
        name: entry.name.clone(),
        version: entry.version.map(|version| version.to_string()).unwrap_or_default(),
        state: entry.state.map(|state| state.index_name().to_owned()).unwrap_or_default(),
        reason: entry.reason.clone(),
    }
}

fn cuda_status(region: &CudaRegistration) -> messages::CudaRegionStatus {
    let CudaRegistration { name, device_id, byte_size } = region;
    messages::CudaRegionStatus { name: name.clone(), device_id: *device_id, byte_size: *byte_size }
}

fn status(region: &Registration) -> messages::RegionStatus {
    messages::RegionStatus {
        name: region.name.clone(),
        key: region.key.clone(),
        offset: region.offset,
        byte_size: region.byte_size,
    }
}

fn log_settings(file: &str, settings: LogSettings) -> messages::LogSettings {
    let LogSettings { verbose, info, warning, error, form } = settings;
    let values = [
        ("log_file", LogChoice::String(file.into())),
        ("log_info", LogChoice::Bool(info)),
        ("log_warning", LogChoice::Bool(warning)),
        ("log_error", LogChoice::Bool(error)),
        ("log_verbose_level", LogChoice::Uint32(verbose)),
        ("log_format", LogChoice::String(form.name().into())),
    ];
    let settings = values.map(|(key, choice)| (key.into(), LogValue { choice: Some(choice) }));
    messages::LogSettings { settings: settings.into() }
}

fn trace_settings(setting: &TraceSetting) -> messages::TraceSettings {
    let settings = setting.named().into_iter().map(|(key, value)| (key, TraceValue { value }));
    messages::TraceSettings { settings: settings.collect(), model_name: String::new() }
}

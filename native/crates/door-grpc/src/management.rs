//! Everything but inference: verbs of the data plane, whose arguments and answers are messages here.

use bytes::Bytes;
use kushi_core::{Error, ErrorKind, Totals, epoch_ms};
use kushi_dataplane::{
    CudaPlace, CudaRegistration, IndexEntry, LogSettings, ModelMetadata, ModelStatistics, Registration,
    ResponseRow, Sent, TensorMetadata, TraceSetting, Verb, VerbAnswer, unanswered,
};
use kushi_net::{Answering, answered};
use kushi_shm::HANDLE_BYTES;
use kushi_verbs as verbs;
use prost::Message;
use serde_json::{Map, Value, json};

use crate::answer::CallAnswer;
use crate::context::GrpcContext;
use crate::framing;
use crate::messages::{self, Choice, LogChoice, LogValue, Named, TraceValue};
use crate::status::{INTERNAL, Status};

pub(crate) async fn perform(
    context: &GrpcContext,
    name: &str,
    message: Bytes,
    mut answering: Answering,
) -> Result<CallAnswer, Status> {
    let unreadable = |error| Status::new(INTERNAL, format!("cannot read the request: {error}"));
    check_parameters(name, &message).map_err(unreadable)??;
    let verb = verb(name, message).map_err(unreadable)??;
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
fn check_parameters(name: &str, message: &Bytes) -> Result<Result<(), Error>, prost::DecodeError> {
    let check: fn(&str, Option<&Choice>) -> Result<(), String> = match name {
        "RepositoryModelLoad" => load_parameter,
        "RepositoryModelUnload" => unload_parameter,
        _ => return Ok(Ok(())),
    };
    let asked = messages::RepositoryModelRequest::decode(message.clone())?;
    if !asked.repository_name.is_empty() {
        // That is refused as a whole.
        return Ok(Ok(()));
    }
    let checked = asked.parameters.iter().try_for_each(|(key, value)| check(key, value.choice.as_ref()));
    Ok(checked.map_err(Error::invalid))
}

fn load_parameter(key: &str, choice: Option<&Choice>) -> Result<(), String> {
    let wrong = |expected| format!("invalid value type for load parameter '{key}', expected {expected}.");
    match choice {
        Some(Choice::String(_)) if key == "config" => Ok(()),
        _ if key == "config" => Err(wrong("string_param")),
        Some(Choice::Bytes(_)) if key.starts_with("file:") => Ok(()),
        _ if key.starts_with("file:") => Err(wrong("bytes_param")),
        _ => Err(format!("unrecognized load parameter '{key}'.")),
    }
}

fn unload_parameter(key: &str, choice: Option<&Choice>) -> Result<(), String> {
    match (key, choice) {
        ("unload_dependents", Some(Choice::Bool(_))) => Ok(()),
        ("unload_dependents", _) => {
            Err("invalid value type for 'unload_dependents' parameter, expected bool_param.".to_owned())
        }
        _ => Ok(()),
    }
}

fn verb(name: &str, message: Bytes) -> Result<Result<Verb, Error>, prost::DecodeError> {
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
        "RepositoryModelLoad" | "RepositoryModelUnload" => {
            let asked = messages::RepositoryModelRequest::decode(message)?;
            let parameters =
                asked.parameters.into_iter().map(|(key, parameter)| (key, value(parameter.choice)));
            let parameters: Map<String, Value> = parameters.collect();
            json!({
                "repository_name": asked.repository_name,
                "model_name": asked.model_name,
                "parameters": parameters,
            })
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

fn value(choice: Option<Choice>) -> Value {
    match choice {
        None => Value::Null,
        Some(Choice::Bool(value)) => value.into(),
        Some(Choice::Int64(value)) => value.into(),
        Some(Choice::String(value)) => value.into(),
        // A file: that it is there is all that is looked at.
        Some(Choice::Bytes(_)) => "".into(),
    }
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
        VerbAnswer::ModelConfig(spec) => {
            let config = Bytes::copy_from_slice(&spec.config_message);
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

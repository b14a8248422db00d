//! What verbs are answered with, as JSON.

use kushi_core::{BatchRow, Error, Totals, epoch_ms};
use kushi_dataplane::{
    CudaRegistration, IndexEntry, LogSettings, ModelMetadata, ModelStatistics, Registration, ResponseRow,
    ServerMetadata, TensorMetadata, TraceSetting, VerbAnswer,
};

use kushi_oip::CallAnswer;
use kushi_oip::json::write;

/// What becomes of a verb, for a process of our own.
pub fn call_answer(answer: &Result<VerbAnswer, Error>) -> CallAnswer {
    match answer {
        Ok(answer) => CallAnswer { status: 200, body: render(answer).into(), kind: String::new() },
        Err(error) => CallAnswer {
            status: error.kind.http_status().into(),
            body: write::error(&error.message).into(),
            kind: error.kind.name().into(),
        },
    }
}

/// As Triton's HTTP server writes it. Metrics are the text that they are; where something was done, there is nothing to
/// say.
pub fn render(answer: &VerbAnswer) -> Vec<u8> {
    let mut out = Vec::new();
    match answer {
        VerbAnswer::Done => {}
        VerbAnswer::Health(well) => out.extend_from_slice(if *well { b"true" } else { b"false" }),
        VerbAnswer::ServerMetadata(server) => server_metadata(&mut out, server),
        VerbAnswer::ModelMetadata(model) => model_metadata(&mut out, model),
        VerbAnswer::ModelConfig(config) => out.extend_from_slice(config.json.as_bytes()),
        VerbAnswer::ModelStatistics(models) => {
            out.extend_from_slice(b"{\"model_stats\":");
            write::array(&mut out, models, model_statistics);
            out.push(b'}');
        }
        VerbAnswer::Index(entries) => write::array(&mut out, entries, index_entry),
        VerbAnswer::Regions(regions) => write::array(&mut out, regions, region),
        VerbAnswer::CudaRegions(regions) => write::array(&mut out, regions, cuda_region),
        VerbAnswer::LogSettings { file, settings } => log_settings(&mut out, file, *settings),
        VerbAnswer::TraceSetting(setting) => trace_setting(&mut out, setting),
        VerbAnswer::Metrics(text) => out.extend_from_slice(text.as_bytes()),
    }
    out
}

fn server_metadata(out: &mut Vec<u8>, server: &ServerMetadata) {
    string_member(out, b"{\"name\":", &server.name);
    string_member(out, b",\"version\":", &server.version);
    out.extend_from_slice(b",\"extensions\":");
    write::array(out, &server.extensions, |out, text| write::string(out, text.as_bytes()));
    out.push(b'}');
}

fn model_metadata(out: &mut Vec<u8>, model: &ModelMetadata) {
    string_member(out, b"{\"name\":", &model.name);
    out.extend_from_slice(b",\"versions\":");
    write::array(out, &model.versions, |out, &version| quoted_integer(out, version));
    string_member(out, b",\"platform\":", &model.platform);
    out.extend_from_slice(b",\"inputs\":");
    write::array(out, &model.inputs, tensor_metadata);
    out.extend_from_slice(b",\"outputs\":");
    write::array(out, &model.outputs, tensor_metadata);
    out.push(b'}');
}

fn tensor_metadata(out: &mut Vec<u8>, tensor: &TensorMetadata) {
    string_member(out, b"{\"name\":", &tensor.name);
    string_member(out, b",\"datatype\":", tensor.datatype.name());
    out.extend_from_slice(b",\"shape\":");
    write::array(out, &tensor.shape, |out, &dim| write::integer(out, dim));
    out.push(b'}');
}

fn model_statistics(out: &mut Vec<u8>, model: &ModelStatistics) {
    let counts = &model.counts;
    string_member(out, b"{\"name\":", &model.name);
    out.extend_from_slice(b",\"version\":");
    quoted_integer(out, model.version);
    integer_member(out, b",\"last_inference\":", counts.last_inference.map_or(0, epoch_ms));
    integer_member(out, b",\"inference_count\":", counts.inference_count);
    integer_member(out, b",\"execution_count\":", counts.execution_count);
    out.extend_from_slice(b",\"inference_stats\":{");
    let none = Totals::default();
    let sections = [
        ("success", counts.success),
        ("fail", counts.fail),
        ("queue", counts.queue),
        ("compute_input", counts.compute_input),
        ("compute_infer", counts.compute_infer),
        ("compute_output", counts.compute_output),
        ("cache_hit", none),
        ("cache_miss", none),
    ];
    write::list(out, sections, |out, (name, totals)| section(out, name, totals));
    out.extend_from_slice(b"},\"response_stats\":{");
    write::list(out, (0..).zip(&model.responses), |out, (number, row)| response_statistics(out, number, row));
    out.extend_from_slice(b"},\"batch_stats\":");
    write::array(out, &counts.batches, batch_statistics);
    out.extend_from_slice(b",\"memory_usage\":[]}");
}

fn batch_statistics(out: &mut Vec<u8>, (&size, row): (&usize, &BatchRow)) {
    integer_member(out, b"{\"batch_size\":", size);
    for (name, totals) in [
        ("compute_input", row.compute_input),
        ("compute_infer", row.compute_infer),
        ("compute_output", row.compute_output),
    ] {
        out.push(b',');
        section(out, name, totals);
    }
    out.push(b'}');
}

fn response_statistics(out: &mut Vec<u8>, number: u64, row: &ResponseRow) {
    quoted_integer(out, number);
    out.extend_from_slice(b":{");
    let sections = [
        ("compute_infer", row.compute_infer),
        ("compute_output", row.compute_output),
        ("success", row.success),
        ("fail", row.fail),
        ("empty_response", row.empty_response),
        ("cancel", row.cancel),
    ];
    write::list(out, sections, |out, (name, totals)| section(out, name, totals));
    out.push(b'}');
}

fn section(out: &mut Vec<u8>, name: &str, totals: Totals) {
    write::string(out, name.as_bytes());
    integer_member(out, b":{\"count\":", totals.count);
    integer_member(out, b",\"ns\":", totals.ns);
    out.push(b'}');
}

fn index_entry(out: &mut Vec<u8>, entry: &IndexEntry) {
    string_member(out, b"{\"name\":", &entry.name);
    if let Some(version) = entry.version {
        out.extend_from_slice(b",\"version\":");
        quoted_integer(out, version);
    }
    if let Some(state) = entry.state {
        string_member(out, b",\"state\":", state.index_name());
    }
    if !entry.reason.is_empty() {
        string_member(out, b",\"reason\":", &entry.reason);
    }
    out.push(b'}');
}

fn region(out: &mut Vec<u8>, region: &Registration) {
    string_member(out, b"{\"name\":", &region.name);
    string_member(out, b",\"key\":", &region.key);
    integer_member(out, b",\"offset\":", region.offset);
    integer_member(out, b",\"byte_size\":", region.byte_size);
    out.push(b'}');
}

fn cuda_region(out: &mut Vec<u8>, region: &CudaRegistration) {
    string_member(out, b"{\"name\":", &region.name);
    integer_member(out, b",\"device_id\":", region.device_id);
    integer_member(out, b",\"byte_size\":", region.byte_size);
    out.push(b'}');
}

fn log_settings(out: &mut Vec<u8>, file: &str, settings: LogSettings) {
    let LogSettings { verbose, info, warning, error, form } = settings;
    string_member(out, b"{\"log_file\":", file);
    for (name, on) in [("log_info", info), ("log_warning", warning), ("log_error", error)] {
        out.extend_from_slice(format!(",\"{name}\":{on}").as_bytes());
    }
    integer_member(out, b",\"log_verbose_level\":", verbose);
    string_member(out, b",\"log_format\":", form.name());
    out.push(b'}');
}

fn trace_setting(out: &mut Vec<u8>, setting: &TraceSetting) {
    for (index, (name, values)) in setting.named().iter().enumerate() {
        out.push(if index == 0 { b'{' } else { b',' });
        write::string(out, name.as_bytes());
        out.push(b':');
        match (name.as_str(), values.as_slice()) {
            ("trace_level", levels) => {
                write::array(out, levels, |out, level| write::string(out, level.as_bytes()));
            }
            (_, values) => write::string(out, values.concat().as_bytes()),
        }
    }
    out.push(b'}');
}

fn string_member(out: &mut Vec<u8>, key: &[u8], text: &str) {
    out.extend_from_slice(key);
    write::string(out, text.as_bytes());
}

fn integer_member(out: &mut Vec<u8>, key: &[u8], value: impl itoa::Integer) {
    out.extend_from_slice(key);
    write::integer(out, value);
}

/// As versions are written.
fn quoted_integer(out: &mut Vec<u8>, value: u64) {
    out.push(b'"');
    write::integer(out, value);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use kushi_core::{DataType, ErrorKind, Snapshot, State};
    use kushi_dataplane::{Destination, LogForm, TraceLevel, TraceOptions};

    use super::*;

    #[track_caller]
    fn written(answer: &VerbAnswer, json: &str) {
        assert_eq!(String::from_utf8(render(answer)).unwrap(), json);
    }

    #[test]
    fn a_yes_a_no_and_nothing_to_say() {
        written(&VerbAnswer::Health(true), "true");
        written(&VerbAnswer::Health(false), "false");
        written(&VerbAnswer::Done, "");
        written(&VerbAnswer::Metrics("# HELP".into()), "# HELP");
    }

    #[test]
    fn a_failure_has_its_kind_and_the_status_that_tells_it_from_its_namesakes() {
        let failed = Err(Error::new(ErrorKind::UnreadableInput, "why \"not\""));
        let (body, kind) = (r#"{"error":"why \"not\""}"#.into(), "invalid_input".into());
        assert_eq!(call_answer(&failed), CallAnswer { status: 500, body, kind });
        let (body, kind) = ("false".into(), String::new());
        assert_eq!(call_answer(&Ok(VerbAnswer::Health(false))), CallAnswer { status: 200, body, kind });
    }

    #[test]
    fn metadata_names_everything() {
        let (name, version) = ("triton".into(), "0.1 \"x\"".into());
        let server = ServerMetadata { name, version, extensions: vec!["a".into(), "b".into()] };
        let json = r#"{"name":"triton","version":"0.1 \"x\"","extensions":["a","b"]}"#;
        written(&VerbAnswer::ServerMetadata(server), json);
        let tensor = |name: &str, datatype, shape: &[i64]| TensorMetadata {
            name: name.into(),
            datatype,
            shape: shape.into(),
        };
        let model = ModelMetadata {
            name: "m".into(),
            versions: vec![1, 3],
            platform: "onnxruntime_onnx".into(),
            inputs: vec![tensor("A", DataType::Fp32, &[-1, 3]), tensor("B", DataType::Bytes, &[])],
            outputs: vec![],
        };
        let json = concat!(
            r#"{"name":"m","versions":["1","3"],"platform":"onnxruntime_onnx","inputs":["#,
            r#"{"name":"A","datatype":"FP32","shape":[-1,3]},{"name":"B","datatype":"BYTES","shape":[]}],"outputs":[]}"#
        );
        written(&VerbAnswer::ModelMetadata(model), json);
    }

    #[test]
    fn statistics_have_a_section_for_each_count() {
        let ns = |count| Totals { count, ns: count * 10 };
        let row = BatchRow { compute_input: ns(4), compute_infer: ns(5), compute_output: ns(6) };
        let mut counts = Snapshot::default();
        (counts.inference_count, counts.execution_count, counts.success) = (8, 2, ns(3));
        counts.batches = [(4, row)].into();
        let answered = ResponseRow { compute_infer: ns(1), success: ns(1), ..ResponseRow::default() };
        let responses = vec![answered, ResponseRow { empty_response: ns(1), ..ResponseRow::default() }];
        let model = ModelStatistics { name: "m".into(), version: 1, counts, responses };
        let json = concat!(
            r#"{"model_stats":[{"name":"m","version":"1","last_inference":0,"inference_count":8,"execution_count":2,"#,
            r#""inference_stats":{"success":{"count":3,"ns":30},"fail":{"count":0,"ns":0},"queue":{"count":0,"ns":0},"#,
            r#""compute_input":{"count":0,"ns":0},"compute_infer":{"count":0,"ns":0},"#,
            r#""compute_output":{"count":0,"ns":0},"cache_hit":{"count":0,"ns":0},"cache_miss":{"count":0,"ns":0}},"#,
            r#""response_stats":{"0":{"compute_infer":{"count":1,"ns":10},"compute_output":{"count":0,"ns":0},"#,
            r#""success":{"count":1,"ns":10},"fail":{"count":0,"ns":0},"empty_response":{"count":0,"ns":0},"#,
            r#""cancel":{"count":0,"ns":0}},"1":{"compute_infer":{"count":0,"ns":0},"#,
            r#""compute_output":{"count":0,"ns":0},"success":{"count":0,"ns":0},"fail":{"count":0,"ns":0},"#,
            r#""empty_response":{"count":1,"ns":10},"cancel":{"count":0,"ns":0}}},"#,
            r#""batch_stats":[{"batch_size":4,"compute_input":{"count":4,"ns":40},"#,
            r#""compute_infer":{"count":5,"ns":50},"compute_output":{"count":6,"ns":60}}],"memory_usage":[]}]}"#
        );
        written(&VerbAnswer::ModelStatistics(vec![model]), json);
        written(&VerbAnswer::ModelStatistics(vec![]), r#"{"model_stats":[]}"#);
    }

    #[test]
    fn an_index_says_no_more_than_is_known() {
        let name: String = "m".into();
        let known = IndexEntry { name: name.clone(), version: None, state: None, reason: String::new() };
        let ready = IndexEntry { version: Some(2), state: Some(State::Ready), ..known.clone() };
        let failed = IndexEntry { state: Some(State::Failed), reason: "why".into(), ..known.clone() };
        let json = concat!(
            r#"[{"name":"m"},{"name":"m","version":"2","state":"READY"},"#,
            r#"{"name":"m","state":"UNAVAILABLE","reason":"why"}]"#
        );
        written(&VerbAnswer::Index(vec![known, ready, failed]), json);
        written(&VerbAnswer::Index(vec![]), "[]");
    }

    #[test]
    fn regions_are_listed_with_their_places() {
        let region =
            |name: &str| Registration { name: name.into(), key: "/k".into(), offset: 4, byte_size: 8 };
        let json = concat!(
            r#"[{"name":"a","key":"/k","offset":4,"byte_size":8},"#,
            r#"{"name":"b","key":"/k","offset":4,"byte_size":8}]"#
        );
        written(&VerbAnswer::Regions(vec![region("a"), region("b")]), json);
        written(&VerbAnswer::Regions(vec![]), "[]");
        let region = CudaRegistration { name: "g".into(), device_id: 1, byte_size: 8 };
        written(&VerbAnswer::CudaRegions(vec![region]), r#"[{"name":"g","device_id":1,"byte_size":8}]"#);
    }

    #[test]
    fn settings_are_written_in_full() {
        let settings =
            LogSettings { verbose: 1, info: true, warning: false, error: true, form: LogForm::Iso };
        let json = concat!(
            r#"{"log_file":"/l","log_info":true,"log_warning":false,"log_error":true,"log_verbose_level":1,"#,
            r#""log_format":"ISO8601"}"#
        );
        written(&VerbAnswer::LogSettings { file: "/l".into(), settings }, json);
        let json = concat!(
            r#"{"trace_level":["OFF"],"trace_rate":"1000","trace_count":"-1","log_frequency":"0","#,
            r#""trace_file":"","trace_mode":"triton"}"#
        );
        let off = TraceOptions::default().setting;
        written(&VerbAnswer::TraceSetting(off.clone()), json);
        let json = concat!(
            r#"{"trace_level":["TIMESTAMPS","TENSORS"],"trace_rate":"1000","trace_count":"5","#,
            r#""trace_mode":"opentelemetry","url":"http://a/b"}"#
        );
        let level = TraceLevel { timestamps: true, tensors: true };
        let destination = Destination::Collector(vec![("url".into(), "http://a/b".into())]);
        written(&VerbAnswer::TraceSetting(TraceSetting { level, count: 5, destination, ..off }), json);
    }
}

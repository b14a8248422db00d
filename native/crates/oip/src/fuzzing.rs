//! What must hold for any bytes, for the fuzz targets in `native/fuzz` and the tests that repeat what they have found.

use kushi_core::{Buffer, DataType};
use prost::Message;

use crate::infer_parameter::Choice;
use crate::json::read::{self, Leaves, Value};
use crate::json::{Fault, Scanner, Span, USUAL_DEPTH, write};
use crate::tensor_json::Bounds;
use crate::{
    Frame, FrameError, InferRequestedOutputTensor, InferTensorContents, Kind, ModelInferRequest, Reader,
    infer_request, tensor_json, typed_contents,
};

/// A document, passed over in both ways of the scanner, and a tensor of every datatype read from it.
pub fn json(bytes: &[u8]) {
    let passed = document(bytes, Scanner::skip);
    let walked = document(bytes, |scanner| walk(scanner).map(|()| 0..0));
    assert_eq!(passed.clone().err(), walked.err());
    let Ok(span) = passed else { return };
    let text = &bytes[span];
    check_scalar(read::value(text));
    if read::value(text) != Value::Array {
        return;
    }
    let count = Leaves::new(text).inspect(|&(_, value)| check_scalar(value)).count();
    let bounds = Bounds { bytes: 1 << 20, depth: USUAL_DEPTH };
    for datatype in DataType::ALL {
        let read_tensor = |text| tensor_json::read(text, "X", Some(datatype), &[count as i64], bounds);
        let Ok(data) = read_tensor(text) else {
            continue;
        };
        if let Some(size) = datatype.size() {
            assert_eq!(data.len(), count * size);
        }
        let text = written(datatype, &data);
        match read_tensor(&text) {
            // Which also takes two NaN of different signs for the same.
            Ok(again) => assert_eq!(written(datatype, &again), text, "{datatype}"),
            // Numbers beyond the type have no form in JSON.
            Err(error) => assert!(matches!(datatype, DataType::Fp32), "{datatype}: {error}"),
        }
    }
}

fn written(datatype: DataType, data: &Buffer) -> Vec<u8> {
    let mut written = b"[".to_vec();
    tensor_json::write(&mut written, datatype, data.as_bytes());
    written.push(b']');
    written
}

fn document<'a>(
    bytes: &'a [u8],
    root: impl FnOnce(&mut Scanner<'a>) -> Result<Span, Fault>,
) -> Result<Span, Fault> {
    let mut span = 0..0;
    Scanner::new(bytes).document(|scanner| root(scanner).map(|found| span = found))?;
    Ok(span)
}

fn walk(scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    if scanner.is_object() {
        scanner.object(|scanner, key| {
            assert!(key.is(&key.to_text()) || key.to_text().contains('\u{fffd}'));
            walk(scanner)
        })
    } else if scanner.is_array() {
        scanner.array(walk)
    } else {
        scanner.skip().map(drop)
    }
}

fn check_scalar(value: Value<'_>) {
    match value {
        Value::Number(number) => {
            let text = std::str::from_utf8(number).unwrap_or("");
            let (double, parsed) = (read::double(number), text.parse().unwrap_or(f64::NAN));
            assert!(
                double.to_bits() == parsed.to_bits() || double.is_nan() && text.contains("NaN"),
                "{text}"
            );
            assert_eq!(read::signed(number), text.parse().ok().filter(|_| !text.contains('+')), "{text}");
        }
        Value::String(raw) => {
            let text = read::unescape(raw);
            let mut written = Vec::new();
            write::string(&mut written, &text);
            let again = document(&written, Scanner::skip).map(|span| read::value(&written[span]));
            let Ok(Value::String(raw)) = again else { panic!("{again:?}") };
            assert_eq!(read::unescape(raw), text);
        }
        _ => {}
    }
}

/// A stream of frames in two pieces, cut where the first byte says, with requests read in two ways.
pub fn frames(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let (first, second) = bytes.split_at(bytes.len().min(usize::from(cut)));
    let whole = cut_up(&[bytes]);
    assert_eq!(whole, cut_up(&[first, second]));
    for frame in whole.0.iter().filter(|frame| frame.kind == Kind::Infer) {
        request(&frame.body);
    }
}

fn cut_up(pieces: &[&[u8]]) -> (Vec<Frame>, Option<FrameError>) {
    let mut reader = Reader::default();
    let mut frames = Vec::new();
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(reader.missing() > 0);
    }
    (frames, None)
}

/// An inference request as our reader and as prost take it.
fn request(message: &[u8]) {
    let ours = infer_request::InferRequest::read(message);
    let (Ok(ours), Ok(theirs)) = (ours, ModelInferRequest::decode(message)) else { return };
    assert_eq!(
        (ours.model_name, ours.model_version, ours.id),
        (&*theirs.model_name, &*theirs.model_version, &*theirs.id)
    );
    assert!(ours.inputs.iter().map(|input| input.name).eq(theirs.inputs.iter().map(|input| &*input.name)));
    assert!(
        ours.inputs.iter().map(|input| &*input.shape).eq(theirs.inputs.iter().map(|input| &*input.shape))
    );
    let wanted = |output: &InferRequestedOutputTensor| {
        let choice = output.parameters.get("classification").and_then(|parameter| parameter.choice.clone());
        (output.name.clone(), choice)
    };
    let classes = |choice| match choice {
        Some(Choice::Int64(count)) => count as usize,
        _ => 0,
    };
    let theirs_wanted = theirs.outputs.iter().map(wanted).map(|(name, choice)| (name, classes(choice)));
    assert!(ours.outputs.iter().map(|output| (output.name.to_owned(), output.classes)).eq(theirs_wanted));
    assert!(ours.raw_input_contents.iter().copied().eq(theirs.raw_input_contents.iter().map(|raw| &raw[..])));
}

/// A message of gRPC's, with its tensors in typed fields as our reader and as prost take them.
pub fn grpc_message(message: &[u8]) {
    request(message);
    let Ok(ours) = infer_request::InferRequest::read(message) else { return };
    for contents in ours.inputs.iter().filter_map(|input| input.contents) {
        let Ok(theirs) = InferTensorContents::decode(contents) else { continue };
        for datatype in DataType::ALL {
            let Ok(Some(bytes)) = typed_contents::bytes(contents, datatype) else { continue };
            assert!(bytes.len() <= 8 * contents.len());
            let Some(size) = datatype.size() else { continue };
            assert_eq!(bytes.len() % size, 0);
            assert_eq!(bytes.len() / size, elements(&theirs, datatype), "{datatype}");
        }
    }
}

fn elements(contents: &InferTensorContents, datatype: DataType) -> usize {
    match datatype {
        DataType::Bool => contents.bool_contents.len(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => contents.int_contents.len(),
        DataType::Int64 => contents.int64_contents.len(),
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => contents.uint_contents.len(),
        DataType::Uint64 => contents.uint64_contents.len(),
        DataType::Fp32 => contents.fp32_contents.len(),
        DataType::Fp64 => contents.fp64_contents.len(),
        DataType::Fp16 | DataType::Bf16 | DataType::Bytes => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    type Check = fn(&[u8]);

    #[test]
    fn what_a_fuzzer_began_with_or_found_holds() {
        let targets: [(_, Check); 3] =
            [("json", super::json), ("frames", super::frames), ("grpc_message", super::grpc_message)];
        for (target, check) in targets {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
            let seeds: Vec<_> = fs::read_dir(folder).unwrap().collect();
            assert!(!seeds.is_empty());
            for seed in seeds {
                check(&fs::read(seed.unwrap().path()).unwrap());
            }
        }
    }
}

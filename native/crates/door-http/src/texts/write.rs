//! Answers, each in the words of those who made its route up.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kushi_core::{DataType, Error, ErrorKind, Labels};
use kushi_oip::json::write;
use kushi_oip::tensor_json;

use super::ask::{Asked, Cut, Form};
use super::numbers::{Numbers, cut, floats};

/// What stands around a score, about.
const BYTES_OF_A_SCORE: usize = 64;

/// How much work it is, in bytes of tensors.
pub(super) fn bytes(asked: &Asked, numbers: &Numbers) -> usize {
    match asked.form {
        Form::Vectors { .. } => numbers.bytes(),
        Form::Ranks { with_texts: true, .. } => asked.bytes() + numbers.count() * BYTES_OF_A_SCORE,
        Form::Ranks { .. } => numbers.count() * BYTES_OF_A_SCORE,
        Form::Classes { .. } => numbers.count() * numbers.width().max(1) * BYTES_OF_A_SCORE,
    }
}

/// `name`: of the model. Fails where it has answered what is no finite number: JSON cannot say it, and base64 had better
/// not.
pub(super) fn answer(name: &str, asked: &Asked, numbers: &Numbers) -> Result<Vec<u8>, Error> {
    if let Some(place) = numbers.not_finite() {
        let text = format!("model '{name}' answers the text {place} with what is no finite number");
        return Err(Error::new(ErrorKind::EngineFailed, text));
    }
    let mut out = Vec::new();
    match asked.form {
        Form::Vectors { plain: true, cut, .. } => plain_vectors(&mut out, numbers, cut),
        Form::Vectors { base64, cut, .. } => vectors(&mut out, name, numbers, base64, cut),
        Form::Ranks { most, with_texts, plain } => {
            let ranks = ranks(numbers, most);
            let texts = asked.strings().filter(|_| with_texts);
            let text = |at: usize| texts.map(|texts| texts.get(at));
            if plain {
                plain_ranks(&mut out, &ranks, text);
            } else {
                write_ranks(&mut out, name, &ranks, text, numbers.tokens());
            }
        }
        Form::Classes { plain: true, is_single } => plain_classes(&mut out, numbers, is_single),
        Form::Classes { .. } => classes(&mut out, name, numbers),
    }
    Ok(out)
}

fn vectors(out: &mut Vec<u8>, name: &str, numbers: &Numbers, base64: bool, wanted: Option<Cut>) {
    out.extend_from_slice(b"{\"object\":\"list\",\"data\":");
    write::array(out, numbers.rows().enumerate(), |out, (index, row)| {
        out.extend_from_slice(b"{\"object\":\"embedding\",\"index\":");
        write::integer(out, index);
        out.extend_from_slice(b",\"embedding\":");
        let made = wanted.map(|wanted| cut(row, wanted));
        let row = made.as_deref().unwrap_or(row);
        if base64 {
            out.push(b'"');
            out.extend_from_slice(STANDARD.encode(row).as_bytes());
            out.push(b'"');
        } else {
            vector(out, row);
        }
        out.push(b'}');
    });
    out.extend_from_slice(b",\"model\":");
    write::string(out, name.as_bytes());
    usage(out, numbers.tokens());
    out.push(b'}');
}

fn plain_vectors(out: &mut Vec<u8>, numbers: &Numbers, wanted: Option<Cut>) {
    write::array(out, numbers.rows(), |out, row| {
        let made = wanted.map(|wanted| cut(row, wanted));
        vector(out, made.as_deref().unwrap_or(row));
    });
}

fn vector(out: &mut Vec<u8>, row: &[u8]) {
    out.push(b'[');
    tensor_json::write(out, DataType::Fp32, row);
    out.push(b']');
}

/// The places of the texts with their scores, the best first.
fn ranks(numbers: &Numbers, most: Option<usize>) -> Vec<(usize, f32)> {
    let scores = numbers.rows().map(|row| floats(row).first().copied().unwrap_or(f32::NAN));
    let mut ranks: Vec<(usize, f32)> = scores.enumerate().collect();
    ranks.sort_by(|one, other| other.1.total_cmp(&one.1));
    ranks.truncate(most.unwrap_or(usize::MAX));
    ranks
}

fn write_ranks<'a>(
    out: &mut Vec<u8>,
    name: &str,
    ranks: &[(usize, f32)],
    text: impl Fn(usize) -> Option<&'a str>,
    tokens: Option<i64>,
) {
    out.extend_from_slice(b"{\"model\":");
    write::string(out, name.as_bytes());
    out.extend_from_slice(b",\"results\":");
    write::array(out, ranks.iter(), |out, &(index, value)| {
        out.extend_from_slice(b"{\"index\":");
        write::integer(out, index);
        out.extend_from_slice(b",\"relevance_score\":");
        score(out, value);
        if let Some(text) = text(index) {
            out.extend_from_slice(b",\"document\":{\"text\":");
            write::string(out, text.as_bytes());
            out.push(b'}');
        }
        out.push(b'}');
    });
    usage(out, tokens);
    out.extend_from_slice(b",\"meta\":{\"api_version\":{\"version\":\"2\"}");
    if let Some(tokens) = tokens {
        out.extend_from_slice(b",\"tokens\":{\"input_tokens\":");
        write::integer(out, tokens);
        out.push(b'}');
    }
    out.extend_from_slice(b"}}");
}

/// A member behind others, where the model says how many tokens it has read.
fn usage(out: &mut Vec<u8>, tokens: Option<i64>) {
    let Some(tokens) = tokens else { return };
    out.extend_from_slice(b",\"usage\":{\"prompt_tokens\":");
    write::integer(out, tokens);
    out.extend_from_slice(b",\"total_tokens\":");
    write::integer(out, tokens);
    out.push(b'}');
}

fn plain_ranks<'a>(out: &mut Vec<u8>, ranks: &[(usize, f32)], text: impl Fn(usize) -> Option<&'a str>) {
    write::array(out, ranks.iter(), |out, &(index, value)| {
        out.extend_from_slice(b"{\"index\":");
        write::integer(out, index);
        if let Some(text) = text(index) {
            out.extend_from_slice(b",\"text\":");
            write::string(out, text.as_bytes());
        }
        out.extend_from_slice(b",\"score\":");
        score(out, value);
        out.push(b'}');
    });
}

fn classes(out: &mut Vec<u8>, name: &str, numbers: &Numbers) {
    out.extend_from_slice(b"{\"object\":\"list\",\"model\":");
    write::string(out, name.as_bytes());
    out.extend_from_slice(b",\"data\":");
    write::array(out, numbers.rows().enumerate(), |out, (index, row)| {
        let scores = floats(row);
        let best = scores.iter().enumerate().max_by(|one, other| one.1.total_cmp(other.1));
        out.extend_from_slice(b"{\"index\":");
        write::integer(out, index);
        out.extend_from_slice(b",\"label\":");
        match best {
            Some((place, _)) => label(out, &numbers.labels, place),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"probs\":");
        vector(out, row);
        out.extend_from_slice(b",\"num_classes\":");
        write::integer(out, scores.len());
        out.push(b'}');
    });
    usage(out, numbers.tokens());
    out.push(b'}');
}

fn plain_classes(out: &mut Vec<u8>, numbers: &Numbers, is_single: bool) {
    let of_text = |out: &mut Vec<u8>, row: &[u8]| {
        let mut scores: Vec<(usize, f32)> = floats(row).into_iter().enumerate().collect();
        scores.sort_by(|one, other| other.1.total_cmp(&one.1));
        write::array(out, scores, |out, (place, value)| {
            out.extend_from_slice(b"{\"score\":");
            score(out, value);
            out.extend_from_slice(b",\"label\":");
            label(out, &numbers.labels, place);
            out.push(b'}');
        });
    };
    match numbers.rows().next() {
        Some(row) if is_single => of_text(out, row),
        _ => write::array(out, numbers.rows(), of_text),
    }
}

/// As transformers calls a class that has no name.
fn label(out: &mut Vec<u8>, labels: &Labels, place: usize) {
    match labels.get(place).filter(|label| !label.is_empty()) {
        Some(label) => write::string(out, label.as_bytes()),
        None => write::string(out, format!("LABEL_{place}").as_bytes()),
    }
}

fn score(out: &mut Vec<u8>, value: f32) {
    tensor_json::write(out, DataType::Fp32, &value.to_le_bytes());
}

//! How a model reads texts: its tokens, in the words of vLLM and of text-embeddings-inference.

use kushi_core::{Error, TextPiece, Texts};
use kushi_oip::json::write;
use serde::Deserialize;

use super::bodies::json;
use super::given::{Given, Strings, Texts as GivenTexts};

/// Of all texts of a request: nothing cuts them.
const MOST_BYTES: usize = 128 << 10;
/// Of an answer whose tokens are a byte each.
const ANSWER_BYTES_OF_A_TEXT_BYTE: usize = 72;

/// Of vLLM with `prompt`; of text-embeddings-inference with `inputs`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokenize {
    model: Option<String>,
    prompt: Option<String>,
    inputs: Option<Given>,
    add_special_tokens: Option<bool>,
    return_token_strs: Option<bool>,
}

pub(super) struct Asked {
    pub(super) model: Option<String>,
    texts: Strings,
    special: bool,
    form: Form,
}

enum Form {
    /// Of one text: numbers, and perhaps what they are called.
    Numbers {
        with_strings: bool,
    },
    Pieces,
}

pub(super) fn read(body: &[u8]) -> Result<Asked, Error> {
    let Tokenize { model, prompt, inputs, add_special_tokens, return_token_strs } = json(body)?;
    let (texts, form) = match (prompt, inputs) {
        (Some(prompt), None) => {
            (Strings::of(&prompt), Form::Numbers { with_strings: return_token_strs.unwrap_or_default() })
        }
        (None, Some(_)) if return_token_strs.is_some() => {
            return Err(Error::invalid(
                "'return_token_strs' belongs to 'prompt': what 'inputs' are answered has all",
            ));
        }
        (None, Some(Given { texts: GivenTexts::Strings(texts), .. })) => (texts, Form::Pieces),
        (None, Some(_)) => return Err(Error::invalid("'inputs' are tokens already, expected texts")),
        _ => return Err(Error::invalid("expected either 'prompt' or 'inputs'")),
    };
    if texts.bytes() > MOST_BYTES {
        let bytes = texts.bytes();
        return Err(Error::invalid(format!("the texts are {bytes} bytes, expected at most {MOST_BYTES}")));
    }
    Ok(Asked { model, texts, special: add_special_tokens.unwrap_or(true), form })
}

impl Asked {
    /// Hardly more.
    pub(super) fn bytes_of_answer(&self) -> usize {
        self.texts.bytes() * ANSWER_BYTES_OF_A_TEXT_BYTE
    }
}

pub(super) fn answer(asked: &Asked, model: &dyn Texts) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let texts = (0..asked.texts.len()).map(|at| asked.texts.get(at));
    let mut separator = b'[';
    for text in texts {
        let pieces = model.pieces(text, asked.special)?;
        match asked.form {
            Form::Numbers { with_strings } => {
                numbers(&mut out, &pieces, model.facts().longest, with_strings);
                return Ok(out);
            }
            Form::Pieces => {
                out.push(separator);
                separator = b',';
                write_pieces(&mut out, text, &pieces);
            }
        }
    }
    if separator == b'[' {
        out.push(b'[');
    }
    out.push(b']');
    Ok(out)
}

fn numbers(out: &mut Vec<u8>, pieces: &[TextPiece], longest: usize, with_strings: bool) {
    out.extend_from_slice(b"{\"count\":");
    write::integer(out, pieces.len());
    out.extend_from_slice(b",\"max_model_len\":");
    write::integer(out, longest);
    out.extend_from_slice(b",\"tokens\":[");
    write::list(out, pieces, |out, piece| write::integer(out, piece.id));
    out.extend_from_slice(b"],\"token_strs\":");
    if with_strings {
        out.push(b'[');
        write::list(out, pieces, |out, piece| write::string(out, piece.token.as_bytes()));
        out.extend_from_slice(b"]}");
    } else {
        out.extend_from_slice(b"null}");
    }
}

fn write_pieces(out: &mut Vec<u8>, text: &str, pieces: &[TextPiece]) {
    // Where each character begins, and the end.
    let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let slice = |(begin, end): (usize, usize)| text.get(*places.get(begin)?..*places.get(end)?);
    out.push(b'[');
    write::list(out, pieces, |out, piece| {
        out.extend_from_slice(b"{\"id\":");
        write::integer(out, piece.id);
        out.extend_from_slice(b",\"text\":");
        write::string(out, piece.place.and_then(slice).unwrap_or(&piece.token).as_bytes());
        out.extend_from_slice(if piece.special { b",\"special\":true" } else { b",\"special\":false" });
        for (name, place) in
            [("start", piece.place.map(|place| place.0)), ("stop", piece.place.map(|place| place.1))]
        {
            out.push(b',');
            write::string(out, name.as_bytes());
            out.push(b':');
            match place {
                Some(place) => write::integer(out, place),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.push(b'}');
    });
    out.push(b']');
}

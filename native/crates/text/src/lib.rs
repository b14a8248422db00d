//! Texts and tokens, as a `tokenizer.json` turns the one into the other. It knows no transport and no engine.

mod tokenizer;

pub use tokenizer::{Part, Piece, Tokenizer, Tokens};

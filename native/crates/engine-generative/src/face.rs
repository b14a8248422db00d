//! What a model tells of texts: how it reads them, and how it writes.

use std::sync::Arc;

use kushi_core::{Error, TextAnswer, TextFacts, TextPiece, Texts, Writing};
use kushi_text::Tokenizer;

use crate::counts::Counts;

/// Knows its tokenizer, and no engine.
pub(crate) struct Face {
    pub tokenizer: Tokenizer,
    pub counts: Arc<Counts>,
    facts: TextFacts,
}

impl Face {
    pub(crate) fn new(tokenizer: Tokenizer, kept_tokens: usize) -> Self {
        let facts =
            TextFacts { longest: tokenizer.longest(), answer: TextAnswer::Texts, ..TextFacts::default() };
        Self { tokenizer, counts: Arc::new(Counts::new(kept_tokens)), facts }
    }
}

impl Texts for Face {
    fn facts(&self) -> &TextFacts {
        &self.facts
    }

    fn pieces(&self, text: &str, special: bool) -> Result<Vec<TextPiece>, Error> {
        let pieces = self.tokenizer.pieces(text, special).map_err(Error::invalid)?;
        let piece = |piece: kushi_text::Piece| TextPiece {
            id: piece.id,
            token: piece.token,
            special: piece.special,
            place: piece.place,
        };
        Ok(pieces.into_iter().map(piece).collect())
    }

    fn text_of(&self, tokens: &[u32]) -> Result<String, Error> {
        self.tokenizer.decode(tokens).map_err(Error::invalid)
    }

    fn writing(&self) -> Option<Writing> {
        Some(self.counts.so_far())
    }
}

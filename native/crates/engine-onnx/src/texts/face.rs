//! What a model tells of texts: how it reads them, and how much it has read.

use std::sync::atomic::{AtomicU64, Ordering};

use kushi_core::{Error, ErrorKind, TextCounts, TextFacts, TextPiece, Texts};
use kushi_text::Tokenizer;

/// Knows its tokenizer, and no network.
pub(super) struct Face {
    pub(super) tokenizer: Tokenizer,
    facts: TextFacts,
    tokens: AtomicU64,
    padding: AtomicU64,
}

impl Face {
    pub(super) fn new(tokenizer: Tokenizer, facts: TextFacts) -> Self {
        Self { tokenizer, facts, tokens: AtomicU64::new(0), padding: AtomicU64::new(0) }
    }

    /// A batch has run: so many tokens of texts in so many places.
    pub(super) fn count(&self, tokens: usize, places: usize) {
        self.tokens.fetch_add(tokens as u64, Ordering::Relaxed);
        self.padding.fetch_add(places.saturating_sub(tokens) as u64, Ordering::Relaxed);
    }
}

impl Texts for Face {
    fn facts(&self) -> &TextFacts {
        &self.facts
    }

    fn pieces(&self, text: &str, special: bool) -> Result<Vec<TextPiece>, Error> {
        let pieces = self.tokenizer.pieces(text, special).map_err(fault)?;
        let piece = |piece: kushi_text::Piece| TextPiece {
            id: piece.id,
            token: piece.token,
            special: piece.special,
            place: piece.place,
        };
        Ok(pieces.into_iter().map(piece).collect())
    }

    fn text_of(&self, tokens: &[u32]) -> Result<String, Error> {
        self.tokenizer.decode(tokens).map_err(fault)
    }

    fn counts(&self) -> Option<TextCounts> {
        Some(TextCounts {
            tokens: self.tokens.load(Ordering::Relaxed),
            padding: self.padding.load(Ordering::Relaxed),
        })
    }
}

fn fault(text: String) -> Error {
    Error::new(ErrorKind::InvalidInput, text)
}

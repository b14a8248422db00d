//! What a model that takes texts tells of them, beside what it answers.

use crate::Error;

/// Asked from any thread, while the model executes. Its calls take as long as their texts are.
pub trait Texts: Send + Sync {
    fn facts(&self) -> &TextFacts;

    /// What it makes of a text, with the tokens that it puts around it where they are wanted. Nothing is cut.
    fn pieces(&self, text: &str, special: bool) -> Result<Vec<TextPiece>, Error>;

    /// The text of these tokens, without the special ones. Fails where one of them is none of its own.
    fn text_of(&self, tokens: &[u32]) -> Result<String, Error>;

    fn counts(&self) -> TextCounts;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextFacts {
    /// Tokens of a text that are looked at, special ones among them.
    pub longest: usize,
    /// To which numbers its vectors may be cut; `None`: they may not, and empty: to any.
    pub dimensions: Option<Vec<usize>>,
    /// Whether its vectors have the length 1.
    pub normalized: bool,
    /// Whether it answers scores of classes, or vectors.
    pub scores: bool,
    /// The names of what it can put before a text.
    pub prompts: Vec<String>,
}

/// A token, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPiece {
    pub id: u32,
    pub token: String,
    pub special: bool,
    /// Where its characters begin and end in the text; `None`: it stands for none of them.
    pub place: Option<(usize, usize)>,
}

/// So far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextCounts {
    /// Of texts that have run.
    pub tokens: u64,
    /// What stood behind the ends of shorter texts in their batches.
    pub padding: u64,
}

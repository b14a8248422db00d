//! What a model that takes texts tells of them, beside what it answers.

use crate::Error;

/// Asked from any thread, while the model executes. Its calls take as long as their texts are.
pub trait Texts: Send + Sync {
    fn facts(&self) -> &TextFacts;

    /// What it makes of a text, with the tokens that it puts around it where they are wanted. Nothing is cut.
    fn pieces(&self, text: &str, special: bool) -> Result<Vec<TextPiece>, Error>;

    /// The text of these tokens, without the special ones. Fails where one of them is none of its own.
    fn text_of(&self, tokens: &[u32]) -> Result<String, Error>;

    /// `None`: it writes texts, and tells [`Self::writing`].
    fn counts(&self) -> Option<TextCounts> {
        None
    }

    /// `None`: it writes none.
    fn writing(&self) -> Option<Writing> {
        None
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextFacts {
    /// Tokens of a text that are looked at, special ones among them; of one who writes, those of the answer as well.
    pub longest: usize,
    /// To which numbers its vectors may be cut; `None`: they may not, and empty: to any.
    pub dimensions: Option<Vec<usize>>,
    /// Whether its vectors have the length 1.
    pub normalized: bool,
    pub answer: TextAnswer,
    /// The names of what it can put before a text.
    pub prompts: Vec<String>,
}

/// What a model answers to texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextAnswer {
    #[default]
    Vectors,
    /// Of classes.
    Scores,
    Texts,
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

/// How a model writes, so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Writing {
    pub prompt_tokens: u64,
    pub generated_tokens: u64,
    /// From the arrival of a request to the first token of each of its texts.
    pub to_first_token: Times,
    pub between_tokens: Times,
    /// Texts that are being written now.
    pub texts: u64,
    /// What those may need of all that can be kept of tokens. More than 1: some of them wait for room.
    pub promised: f64,
}

/// How often something took how long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// In seconds, ascending.
    pub bounds: &'static [f64],
    /// Of each bound, those that took no longer and more than the bound before; at last those that took longer.
    pub counts: Vec<u64>,
    pub seconds: f64,
}

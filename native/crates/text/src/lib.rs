//! Texts and tokens, as a `tokenizer.json` turns the one into the other. It knows no transport and no engine.

mod chat;
mod stop;
mod stream;
mod tokenizer;

pub use chat::{ChatTemplate, Conversation, ToolCall, ToolForm, ToolStream};
pub use stop::{LONGEST_STOP, LetOut, MOST_STOPS, Stops};
pub use stream::{TOKENS_BEFORE, TextStream};
pub use tokenizer::{Part, Piece, Tokenizer, Tokens};

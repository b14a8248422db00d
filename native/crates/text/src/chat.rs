//! Chats: what is said becomes a prompt as the model's template writes it, and calls of tools are found in answers.

mod conversation;
mod python_json;
mod template;
mod tools;

pub use conversation::Conversation;
pub use template::ChatTemplate;
pub use tools::{ToolCall, ToolForm, ToolStream};

//! What a prompt is given as: a text, the messages of a chat, or tokens.

use kushi_core::Parameter;

/// The parameter of a request that says it.
pub(crate) const PARAMETER: &str = "text_input_kind";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PromptKind {
    #[default]
    Text,
    /// A JSON object, with members as clients of OpenAI write them.
    Chat,
    /// A JSON list of numbers.
    Tokens,
}

impl PromptKind {
    pub(crate) fn of(parameters: &[(String, Parameter)]) -> Result<Self, String> {
        match parameters.iter().find(|(name, _)| name == PARAMETER) {
            None => Ok(Self::default()),
            Some((_, Parameter::String(kind))) if kind == "text" => Ok(Self::Text),
            Some((_, Parameter::String(kind))) if kind == "chat" => Ok(Self::Chat),
            Some((_, Parameter::String(kind))) if kind == "tokens" => Ok(Self::Tokens),
            Some(_) => Err(format!("parameter '{PARAMETER}' must be 'text', 'chat' or 'tokens'")),
        }
    }
}

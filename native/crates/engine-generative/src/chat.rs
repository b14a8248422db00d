//! The chats of a model: its template, and how it calls tools.

use kushi_text::{ChatTemplate, Conversation, Tokenizer, ToolForm, ToolStream};
use serde::Deserialize;

/// More is no chat, however little of it its template lets out.
const MOST_BYTES: usize = 4 << 20;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatOptions {
    /// `None`: the model has none.
    template: Option<String>,
    /// Where tools are offered, if it is another one.
    tool_template: Option<String>,
    /// The special tokens that a template may name, each with its text.
    special: Vec<(String, String)>,
    /// How it writes that it calls a tool; `None`: it calls none.
    tool_calls: Option<String>,
}

impl ChatOptions {
    pub(crate) fn has_template(&self) -> bool {
        self.template.is_some()
    }
}

pub(crate) struct Chats {
    template: Result<ChatTemplate, String>,
    tool_template: Option<Result<ChatTemplate, String>>,
    form: Option<ToolForm>,
    /// The mark of a call is a token that texts leave out.
    mark_is_special: bool,
}

/// What a chat has become.
pub(crate) struct Written {
    pub prompt: String,
    /// Finds the calls of tools in an answer.
    pub tools: Option<ToolStream>,
    pub shows_special: bool,
}

impl Chats {
    pub(crate) fn new(options: &ChatOptions, tokenizer: &Tokenizer) -> Result<Self, String> {
        let read = |source: &String| ChatTemplate::new(source, options.special.clone());
        let none = || {
            Err("the model has no chat template: it belongs into chat_template.jinja, beside its file"
                .to_owned())
        };
        let form = options.tool_calls.as_deref().map(|name| {
            name.parse::<ToolForm>().map_err(|()| format!("calls of tools have no form '{name}'"))
        });
        let form = form.transpose()?;
        let is_special = |mark| tokenizer.is_special(mark);
        Ok(Self {
            template: options.template.as_ref().map_or_else(none, read),
            tool_template: options.tool_template.as_ref().map(read),
            mark_is_special: form.and_then(ToolForm::mark).is_some_and(is_special),
            form,
        })
    }

    /// Why there can be no chats, where the model has a template.
    pub(crate) fn fault(&self) -> Option<&str> {
        let of_tools = self.tool_template.as_ref().and_then(|template| template.as_ref().err());
        of_tools.or(self.template.as_ref().err()).map(String::as_str)
    }

    /// The prompt of a chat, as JSON has it.
    pub(crate) fn write(&self, json: &str, most: usize) -> Result<Written, String> {
        if json.len() > MOST_BYTES {
            return Err(format!("the chat has {} bytes, expected at most {MOST_BYTES}", json.len()));
        }
        let conversation = Conversation::read(json)?;
        let offers = conversation.offers_tools();
        let form = match self.form {
            None if offers => {
                return Err("the model calls no tools, or not in a form that is known here: the parameter \
                            'kushi.tool_calls' says which"
                    .to_owned());
            }
            form => form.filter(|_| offers),
        };
        let own = self.tool_template.as_ref().filter(|_| offers);
        let template = own.unwrap_or(&self.template).as_ref().map_err(Clone::clone)?;
        Ok(Written {
            prompt: template.render(&conversation, most)?,
            tools: form.map(|form| ToolStream::new(form, conversation.allows_several_calls())),
            shows_special: form.is_some() && self.mark_is_special,
        })
    }
}

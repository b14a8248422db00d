//! The form that an answer is to have, as OpenAI's clients say it.

use kushi_core::Error;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResponseFormat {
    r#type: String,
    json_schema: Option<NamedSchema>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedSchema {
    #[serde(rename = "name")]
    _name: IgnoredAny,
    #[serde(rename = "description")]
    _description: Option<IgnoredAny>,
    schema: Option<Box<RawValue>>,
    /// An answer always fits.
    #[serde(rename = "strict")]
    _strict: Option<bool>,
}

impl ResponseFormat {
    /// As the model is told of it; `None`: of any form.
    pub(super) fn told(self) -> Result<Option<String>, Error> {
        match (&*self.r#type, self.json_schema) {
            ("text", None) => Ok(None),
            ("json_object", None) => Ok(Some(r#"{"json_object":true}"#.to_owned())),
            ("json_schema", Some(NamedSchema { schema: Some(schema), .. })) => {
                Ok(Some(format!(r#"{{"json":{}}}"#, schema.get())))
            }
            ("json_schema", _) => Err(Error::invalid("'response_format' is 'json_schema' without a schema")),
            (kind, _) => {
                let text =
                    format!("'response_format' is '{kind}', expected text, json_object or json_schema");
                Err(Error::invalid(text))
            }
        }
    }
}

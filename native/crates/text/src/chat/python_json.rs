//! JSON as Python's `json.dumps` writes it: templates were made with it.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

const MOST_DEPTH: usize = 128;
const MOST_BYTES: usize = 4 << 20;

/// The filter `tojson`, with the arguments that templates give it.
pub(super) fn filter(value: &Value, options: &Kwargs) -> Result<String, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let indent = indent.filter(|indent| !indent.is_none()).map(usize::try_from).transpose()?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    let usual = if indent.is_some() { "," } else { ", " };
    let (item, key) = match separators.as_deref() {
        None => (usual.to_owned(), ": ".to_owned()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "there are two separators")),
    };
    let indent = indent.map(|indent| indent.min(16));
    let mut writer = Writer {
        out: String::new(),
        item,
        key,
        indent,
        sorted: sorted == Some(true),
        ascii: ascii == Some(true),
    };
    writer.write(value, 0)?;
    Ok(writer.out)
}

struct Writer {
    out: String,
    item: String,
    key: String,
    indent: Option<usize>,
    sorted: bool,
    ascii: bool,
}

impl Writer {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if self.out.len() > MOST_BYTES {
            return Err(Error::new(ErrorKind::InvalidOperation, "a value is too long for JSON"));
        }
        if depth > MOST_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "a value is too deep for JSON"));
        }
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&value.to_string()),
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.around('[', ']', items, depth, Self::write)?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort();
                }
                self.around('{', '}', keys, depth, |writer, key, depth| {
                    writer.text(&key.to_string());
                    let colon = writer.key.clone();
                    writer.out.push_str(&colon);
                    writer.write(&value.get_item(key)?, depth)
                })?;
            }
            kind => {
                return Err(Error::new(ErrorKind::InvalidOperation, format!("JSON has no {kind}")));
            }
        }
        Ok(())
    }

    fn around(
        &mut self,
        open: char,
        close: char,
        items: Vec<Value>,
        depth: usize,
        write: impl Fn(&mut Self, &Value, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        let is_empty = items.is_empty();
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 {
                let separator = self.item.clone();
                self.out.push_str(&separator);
            }
            self.line(depth + 1);
            write(self, &item, depth + 1)?;
        }
        if !is_empty {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn text(&mut self, text: &str) {
        let quoted = serde_json::Value::from(text).to_string();
        if !self.ascii {
            self.out.push_str(&quoted);
            return;
        }
        for character in quoted.chars() {
            if character.is_ascii() {
                self.out.push(character);
            } else {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(self.out, "\\u{unit:04x}");
                }
            }
        }
    }
}

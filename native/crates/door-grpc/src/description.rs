//! What clients may ask about the protocol itself.

use std::collections::HashMap;

use bytes::Bytes;

/// What there is to be asked.
#[derive(Default)]
pub struct Description {
    /// Descriptors of files by their names.
    pub(crate) files: HashMap<String, Bytes>,
    /// Names of files by the full names of what they define.
    pub(crate) symbols: HashMap<String, String>,
    pub(crate) services: Vec<String>,
}

impl Description {
    /// `files`: name, descriptor, and the full names of what it defines.
    pub fn new(
        files: impl IntoIterator<Item = (String, Vec<u8>, Vec<String>)>,
        services: Vec<String>,
    ) -> Self {
        let mut description = Self { services, ..Self::default() };
        for (name, descriptor, symbols) in files {
            let symbols = symbols.into_iter().map(|symbol| (symbol, name.clone()));
            description.symbols.extend(symbols);
            description.files.insert(name, descriptor.into());
        }
        description
    }
}

//! The members of a JSON object, each as it was written: nothing is built of what may be large.

use std::fmt;

use kushi_core::Error;
use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// More than any body has.
const MOST: usize = 100;

pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

/// What a member says. Fails with its name.
pub(super) fn value<T: DeserializeOwned>(name: &str, raw: &RawValue) -> Result<T, Error> {
    serde_json::from_str(raw.get())
        .map_err(|error| Error::invalid(format!("'{name}' cannot be read: {error}")))
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfObject;

        impl<'de> Visitor<'de> for OfObject {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Self::Value::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if members.len() == MOST {
                        return Err(de::Error::custom(format!("there are more than {MOST} members")));
                    }
                    if members.iter().any(|(other, _)| *other == name) {
                        return Err(de::Error::custom(format!("duplicate field `{name}`")));
                    }
                    members.push((name, value));
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(OfObject).map(Self)
    }
}

//! Which JSON schemas an answer can be held to. The engine ends with all that it has where it cannot read one, so here is
//! what it is known to read, and to hold to.

mod values;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use values::{MOST_CHOICES, UNREADABLE, is_list_of_scalars, is_of_types, is_readable, is_scalar, prefixes};

/// Of a schema as JSON.
const MOST_BYTES: usize = 16 << 10;
const MOST_SCHEMAS: usize = 1000;
const MOST_DEPTH: usize = 24;
/// Of those that `enum` and `const` name, wherever they are referred to. What is below takes the engine about a second before
/// it begins; more takes minutes, in which nothing else is written.
const MOST_CHOICE_BYTES: usize = 16 << 10;
const MOST_ITEMS: u64 = 100;
/// The engine makes places for each of them.
const MOST_WEIGHT: u64 = 1000;
/// They say nothing of what fits.
const NOTES: [&str; 9] =
    ["title", "description", "default", "examples", "deprecated", "$schema", "$id", "$comment", "readOnly"];
const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];
/// Members that say something of values of one type.
const OF_TYPE: [(&str, &[&str]); 3] = [
    ("object", &["properties", "required", "additionalProperties"]),
    ("array", &["items", "minItems", "maxItems"]),
    ("string", &["format"]),
];
const FORMATS: [&str; 5] = ["date", "time", "date-time", "uuid", "email"];
const PLACES_OF_DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The schema as the engine reads it.
pub(crate) fn read(schema: &Value) -> Result<String, String> {
    let text = schema.to_string();
    if text.len() > MOST_BYTES {
        return Err(format!("the schema has {} bytes, expected at most {MOST_BYTES}", text.len()));
    }
    let mut check = Check { root: schema, schemas: 0, weight: 0, choice_bytes: 0 };
    check.schema(schema, "#", 0)?;
    let mut known = HashMap::new();
    for (place, definition) in check.definitions()? {
        check.schema(definition, &place, 1)?;
        check.ends(&place, definition, &mut known)?;
    }
    check.ends("#", schema, &mut known)?;
    Ok(text)
}

/// Any object.
pub(crate) fn of_objects() -> String {
    r#"{"type":"object"}"#.to_owned()
}

struct Check<'a> {
    root: &'a Value,
    schemas: usize,
    /// Items of all lists.
    weight: u64,
    choice_bytes: usize,
}

impl<'a> Check<'a> {
    fn definitions(&self) -> Result<Vec<(String, &'a Value)>, String> {
        let mut found = Vec::new();
        for place in PLACES_OF_DEFINITIONS {
            for (name, schema) in self.root.get(place).and_then(Value::as_object).into_iter().flatten() {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
                if name.is_empty() || !name.chars().all(is_plain) {
                    return Err(format!(
                        "the schema has the definition '{name}', whose name is more than letters, digits, _, - and ."
                    ));
                }
                found.push((format!("#/{place}/{name}"), schema));
            }
        }
        Ok(found)
    }

    /// `place`: where it is, as its faults are told.
    fn schema(&mut self, schema: &Value, place: &str, depth: usize) -> Result<(), String> {
        let fault = |text: &str| Err(format!("the schema {place} {text}"));
        self.schemas += 1;
        let choices = self.named(schema, &mut HashSet::new())?;
        self.choice_bytes += choices.iter().map(|choice| choice.to_string().len()).sum::<usize>();
        if self.choice_bytes > MOST_CHOICE_BYTES {
            return fault(&format!(
                "is too much: all that 'enum' and 'const' name, wherever it is referred to, has {MOST_CHOICE_BYTES} bytes at most"
            ));
        }
        if let Some((short, long)) = prefixes(choices.into_iter().filter_map(Value::as_str)) {
            return fault(&format!(
                "may be '{short}' or '{long}', of which one begins with the other: the engine mixes them up"
            ));
        }
        if self.schemas > MOST_SCHEMAS || depth > MOST_DEPTH {
            return fault(&format!(
                "is too much: there may be {MOST_SCHEMAS} schemas, {MOST_DEPTH} in one another"
            ));
        }
        let Some(members) = schema.as_object() else { return fault("is no object") };
        if let Some(text) = beside(members, place) {
            return fault(&text);
        }
        if let Some(items) =
            ["minItems", "maxItems"].iter().filter_map(|name| members.get(*name)?.as_u64()).max()
        {
            self.weight = self.weight.saturating_add(items);
        }
        if self.weight > MOST_WEIGHT {
            return fault(&format!("is too much: the items of all lists may be {MOST_WEIGHT} together"));
        }
        for (name, value) in members {
            match &**name {
                name if NOTES.contains(&name) => {}
                name if PLACES_OF_DEFINITIONS.contains(&name) && place == "#" && value.is_object() => {}
                "type" => check_type(value).map_err(|text| format!("the schema {place} {text}"))?,
                "properties" => self.properties(value, place, depth)?,
                "required" if is_known(value, members.get("properties")) => {}
                "required" => return fault("has 'required', which is no list of its properties"),
                // others may have the names of its own there, and be of any form
                "additionalProperties" if *value != Value::Bool(false) && has_properties(members) => {
                    return fault("has 'properties', and 'additionalProperties' that are not false");
                }
                "additionalProperties" if value.is_boolean() => {}
                "additionalProperties" | "items" => {
                    self.schema(value, &format!("{place}/{name}"), depth + 1)?;
                }
                "anyOf" => self.choices(value, place, depth)?,
                "enum" | "const" if !is_of_types(value, members.get("type")) => {
                    return fault(&format!("has '{name}': {value}, not all of the type that it says"));
                }
                "enum" if is_list_of_scalars(value) => {}
                "enum" => {
                    return fault(&format!(
                        "has 'enum', which is no list of up to {MOST_CHOICES} texts without {UNREADABLE}, numbers, booleans and null"
                    ));
                }
                "const" if is_scalar(value) => {}
                "const" => {
                    return fault("has 'const', which is no text without quotes, number, boolean or null");
                }
                "minItems" | "maxItems" => check_bounds(members, "minItems", "maxItems", MOST_ITEMS)
                    .map_err(|text| format!("the schema {place} {text}"))?,
                "format" if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {}
                "$ref" => {
                    self.referred(value, place)?;
                }
                _ => {
                    return fault(&format!(
                        "has '{name}': {value}, which the engine is not known to hold to"
                    ));
                }
            }
        }
        Ok(())
    }

    fn properties(&mut self, value: &Value, place: &str, depth: usize) -> Result<(), String> {
        let properties = value
            .as_object()
            .ok_or_else(|| format!("the schema {place} has 'properties', which is no object"))?;
        for (name, schema) in properties {
            if !is_readable(name) {
                return Err(format!("the schema {place} has a property with {UNREADABLE} in its name"));
            }
            self.schema(schema, &format!("{place}/properties/{name}"), depth + 1)?;
        }
        Ok(())
    }

    fn choices(&mut self, value: &Value, place: &str, depth: usize) -> Result<(), String> {
        let choices = value.as_array().filter(|choices| !choices.is_empty());
        let choices =
            choices.ok_or_else(|| format!("the schema {place} has 'anyOf', which is no list of schemas"))?;
        for (at, choice) in choices.iter().enumerate() {
            self.schema(choice, &format!("{place}/anyOf/{at}"), depth + 1)?;
        }
        Ok(())
    }

    fn referred(&self, value: &Value, place: &str) -> Result<&'a Value, String> {
        let named = value.as_str().unwrap_or_default();
        if named == "#" {
            return Ok(self.root);
        }
        let found = PLACES_OF_DEFINITIONS.iter().find_map(|of| {
            let name = named.strip_prefix("#/")?.strip_prefix(of)?.strip_prefix('/')?;
            self.root.get(of)?.get(name)
        });
        found.ok_or_else(|| {
            format!("the schema {place} has '$ref': {value}, which is none of its definitions")
        })
    }

    /// The values that it names, as a whole.
    fn named<'s>(&self, schema: &'s Value, seen: &mut HashSet<*const Value>) -> Result<Vec<&'s Value>, String>
    where
        'a: 's,
    {
        let own = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        let mut named: Vec<&Value> = own.chain(schema.get("const")).collect();
        if let Some(name) = schema.get("$ref") {
            let referred = self.referred(name, "of it")?;
            if seen.insert(std::ptr::from_ref(referred)) {
                named.extend(self.named(referred, seen)?);
            }
        }
        for choice in schema.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
            named.extend(self.named(choice, seen)?);
        }
        Ok(named)
    }

    /// Fails where a schema is nothing but itself in the end.
    fn ends(
        &self,
        place: &str,
        schema: &Value,
        known: &mut HashMap<*const Value, bool>,
    ) -> Result<(), String> {
        let own = std::ptr::from_ref(schema);
        match known.insert(own, false) {
            None => {}
            Some(false) => return Err(format!("the schema {place} is itself")),
            Some(true) => {
                known.insert(own, true);
                return Ok(());
            }
        }
        if let Some(name) = schema.get("$ref") {
            self.ends(name.as_str().unwrap_or(place), self.referred(name, place)?, known)?;
        }
        for choice in schema.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
            self.ends(place, choice, known)?;
        }
        known.insert(own, true);
        Ok(())
    }
}

/// What is wrong with members that do not go together.
fn beside(members: &Map<String, Value>, place: &str) -> Option<String> {
    let says_more =
        |name: &str| !(NOTES.contains(&name) || (place == "#" && PLACES_OF_DEFINITIONS.contains(&name)));
    let names: Vec<&str> = members.keys().map(String::as_str).filter(|name| says_more(name)).collect();
    let kind = members.get("type").and_then(Value::as_str).unwrap_or_default();
    names.iter().find_map(|&name| {
        let goes_with = |other: &str| match name {
            "$ref" | "anyOf" => false,
            "enum" | "const" => other == "type",
            _ => true,
        };
        let wrong = names.iter().find(|&&other| other != name && !goes_with(other));
        let needed = OF_TYPE.iter().find(|(_, own)| own.contains(&name)).map(|(kind, _)| *kind);
        match (wrong, needed) {
            (Some(other), _) => {
                Some(format!("has '{name}' beside '{other}', which the engine does not hold to together"))
            }
            (None, Some(needed)) if needed != kind => {
                Some(format!("has '{name}', and not the type '{needed}' alone"))
            }
            // the engine takes it for an empty one
            _ if name == "type" && kind == "array" && !members.contains_key("items") => {
                Some("is a list without 'items'".to_owned())
            }
            _ => None,
        }
    })
}

fn has_properties(members: &Map<String, Value>) -> bool {
    members.get("properties").and_then(Value::as_object).is_some_and(|properties| !properties.is_empty())
}

fn check_type(value: &Value) -> Result<(), String> {
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    let fits = match value {
        Value::Array(types) => !types.is_empty() && types.iter().all(is_type),
        one => is_type(one),
    };
    if fits { Ok(()) } else { Err(format!("has 'type': {value}, expected {}", TYPES.join(", "))) }
}

fn is_known(required: &Value, properties: Option<&Value>) -> bool {
    let properties = properties.and_then(Value::as_object);
    let is_one = |name: &Value| {
        name.as_str().is_some_and(|name| properties.is_some_and(|properties| properties.contains_key(name)))
    };
    required.as_array().is_some_and(|names| names.iter().all(is_one))
}

fn check_bounds(members: &Map<String, Value>, least: &str, most: &str, limit: u64) -> Result<(), String> {
    let bound = |name: &str, usual| members.get(name).map_or(Some(usual), Value::as_u64);
    let bounds = bound(least, 0).zip(bound(most, limit));
    match bounds.filter(|&(least, most)| least <= most && most <= limit) {
        Some(_) => Ok(()),
        None => Err(format!("has '{least}' or '{most}', which are no numbers up to {limit} in this order")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn properties_keep_their_order() {
        let text = r#"{"type":"object","properties":{"b":{},"a":{}}}"#;
        assert_eq!(read(&serde_json::from_str(text).expect("JSON")).as_deref(), Ok(text));
    }

    #[test]
    fn what_people_write_is_known() {
        for schema in [
            json!({}),
            json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"], "additionalProperties": false}),
            json!({"type": "array", "items": {"enum": ["a", 1, null, true]}, "minItems": 1, "maxItems": 3, "title": "A"}),
            json!({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}}}}}),
            json!({"anyOf": [{"const": "one"}, {"enum": ["other", "third"]}, {"type": "integer"}]}),
            json!({"type": "object", "additionalProperties": {"type": "number"}}),
            json!({"type": "string", "format": "date"}),
            json!({"const": "a"}),
        ] {
            assert_eq!(read(&schema), Ok(schema.to_string()));
        }
    }

    #[test]
    fn others_are_refused_by_what_is_not_known() {
        let deep = (0..100).fold(json!({}), |schema, _| json!({"type": "array", "items": schema}));
        for (schema, expected) in [
            (json!(true), "# is no object"),
            (json!({"type": "object", "properties": {"a": false}}), "#/properties/a is no object"),
            (json!({"type": "object", "properties": {"a\n": {}}}), "a quote, a backslash"),
            (json!({"type": "text"}), "has 'type': \"text\", expected object"),
            (json!({"type": []}), "has 'type'"),
            (json!({"type": "object", "required": ["a"]}), "has 'required'"),
            (json!({"anyOf": []}), "has 'anyOf'"),
            (json!({"anyOf": [{}], "type": "string"}), "has 'anyOf' beside 'type'"),
            (json!({"enum": []}), "has 'enum'"),
            (json!({"enum": [[]]}), "has 'enum'"),
            (json!({"const": {}}), "has 'const'"),
            (json!({"pattern": "a"}), "has 'pattern': \"a\", which the engine is not known"),
            (json!({"oneOf": [{}]}), "has 'oneOf'"),
            (json!({"not": {}}), "has 'not'"),
            (json!({"type": "number", "minimum": 1}), "has 'minimum'"),
            (json!({"type": "integer", "minimum": 2}), "has 'minimum'"),
            (json!({"enum": ["low", "a", "lower"]}), "may be 'low' or 'lower'"),
            (
                json!({"anyOf": [{"const": "a"}, {"$ref": "#/$defs/A"}], "$defs": {"A": {"enum": ["ab"]}}}),
                "may be 'a' or 'ab'",
            ),
            (json!({"$defs": {"a/b": {}}}), "the definition 'a/b'"),
            (json!({"const": "\""}), "has 'const'"),
            (json!({"enum": [1_u64 << 60]}), "has 'enum'"),
            (
                json!({"type": "array", "items": {}, "minItems": 2, "maxItems": 1}),
                "has 'minItems' or 'maxItems'",
            ),
            (json!({"maxLength": 5}), "has 'maxLength'"),
            (json!({"type": "string", "format": "iri"}), "has 'format'"),
            (json!({"$ref": "#/$defs/A"}), "which is none of its definitions"),
            (json!({"$ref": "#/$defs/A", "$defs": {"A": {}}, "type": "string"}), "has '$ref' beside 'type'"),
            (json!({"$ref": "#"}), "# is itself"),
            (
                json!({"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/B"}]}, "B": {"$ref": "#/$defs/A"}}}),
                "is itself",
            ),
            (json!({"type": "object", "properties": {"a": {"$defs": {}}}}), "has '$defs'"),
            (
                json!({"type": "object", "properties": {"a": {}}, "additionalProperties": true}),
                "that are not false",
            ),
            (
                json!({"type": "object", "properties": {"a": {}}, "additionalProperties": {}}),
                "that are not false",
            ),
            (json!({"type": "array", "minItems": 1}), "is a list without 'items'"),
            (
                json!({"type": "object", "properties": (0..20).map(|at| (at.to_string(), json!({"$ref": "#/$defs/E"}))).collect::<Map<_, _>>(), "$defs": {"E": {"enum": (10..99).map(|at| format!("{at}{}", "x".repeat(60))).collect::<Vec<_>>()}}}),
                "bytes at most",
            ),
            (
                json!({"type": "object", "properties": (0..20).map(|at| (at.to_string(), json!({"$ref": "#/$defs/E"}))).collect::<Map<_, _>>(), "$defs": {"E": {"enum": (100_000..100_200).collect::<Vec<_>>()}}}),
                "bytes at most",
            ),
            (json!({"items": {}}), "has 'items', and not the type 'array' alone"),
            (json!({"type": ["array", "null"], "items": {}}), "has 'items', and not the type 'array' alone"),
            (json!({"enum": ["a", 1], "type": "string"}), "not all of the type"),
            (json!({"enum": ["a"], "const": "a"}), "beside"),
            (json!({"const": 1.5, "type": "integer"}), "not all of the type"),
            (
                json!({"anyOf": (0..11).map(|least| json!({"type": "array", "items": {}, "minItems": least, "maxItems": 100})).collect::<Vec<_>>()}),
                "is too much",
            ),
            (deep, "is too much"),
            (json!({"description": "x".repeat(MOST_BYTES)}), "expected at most"),
        ] {
            let text = read(&schema).expect_err(&schema.to_string());
            assert!(text.contains(expected), "{schema}: {text}");
        }
    }
}

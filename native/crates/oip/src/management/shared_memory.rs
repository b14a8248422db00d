//! What comes with a region of shared memory that is to be registered.

use kushi_core::Error;
use kushi_dataplane::{RegionPlace, Sent};

use super::document::Json;

/// Where it lies.
pub fn region_place(body: &[u8]) -> Sent<RegionPlace> {
    region_place_of(Json::required(body)?)
}

pub(super) fn region_place_of(document: Json<'_>) -> Sent<RegionPlace> {
    let member = |name| document.member(name);
    let missing = |name| Error::invalid(format!("Shared memory register request has no '{name}' field"));
    let key = member("key").ok_or_else(|| missing("key"))?.text()?.into_owned();
    let offset = member("offset").map_or(Ok(0), Json::unsigned)?;
    let byte_size = member("byte_size").ok_or_else(|| missing("byte_size"))?.unsigned()?;
    Ok(RegionPlace { key, offset, byte_size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_may_be_left_out() {
        let place = |offset| Ok(RegionPlace { key: "/k".into(), offset, byte_size: 8 });
        assert_eq!(region_place(br#"{"key":"/k","byte_size":8}"#), place(0));
        assert_eq!(region_place(br#"{"key":"/k","byte_size":8,"offset":4,"name":"r"}"#), place(4));
    }

    #[test]
    fn members_are_told_of_in_their_order() {
        for (body, text) in [
            (&b""[..], "failed to parse the request JSON buffer: The document is empty. at 0"),
            (br#"{"offset":"x"}"#, "Shared memory register request has no 'key' field"),
            (br#"{"key":5}"#, "attempt to access JSON non-string as string"),
            (
                br#"{"key":"k","offset":-1}"#,
                "attempt to access JSON non-unsigned-integer as unsigned-integer",
            ),
            (br#"{"key":"k"}"#, "Shared memory register request has no 'byte_size' field"),
            (
                br#"{"key":"k","byte_size":1.5}"#,
                "attempt to access JSON non-unsigned-integer as unsigned-integer",
            ),
        ] {
            assert_eq!(region_place(body).map_err(|error| error.to_string()), Err(text.to_owned()));
        }
    }
}

//! What comes with a region of shared memory that is to be registered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kushi_core::Error;
use kushi_dataplane::{CudaPlace, RegionPlace, Sent};

use crate::document::{Json, unreadable};

/// Where it lies.
pub fn region_place(body: &[u8]) -> Sent<RegionPlace> {
    region_place_of(Json::required(body)?)
}

pub(super) fn region_place_of(document: Json<'_>) -> Sent<RegionPlace> {
    let member = |name| document.member(name);
    let key = member("key").ok_or_else(|| missing("key"))?.text()?.into_owned();
    let offset = member("offset").map_or(Ok(0), Json::unsigned)?;
    let byte_size = member("byte_size").ok_or_else(|| missing("byte_size"))?.unsigned()?;
    Ok(RegionPlace { key, offset, byte_size })
}

/// Where it lies on a GPU.
pub fn cuda_place(body: &[u8]) -> Sent<CudaPlace> {
    // None at all says as much as an empty document.
    cuda_place_of(Json::parse(body)?)
}

pub(super) fn cuda_place_of(document: Json<'_>) -> Sent<CudaPlace> {
    let handle = document.member("raw_handle").ok_or_else(|| missing("raw_handle"))?;
    let handle = member(handle, "b64")?.text()?;
    let byte_size = member(document, "byte_size")?.unsigned()?;
    let device_id = member(document, "device_id")?.unsigned()?;
    let bytes = STANDARD.decode(&*handle).ok().and_then(|bytes| bytes.try_into().ok());
    let handle = bytes
        .ok_or_else(|| Error::invalid("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"))?;
    Ok(CudaPlace { handle, device_id, byte_size })
}

fn member<'a>(document: Json<'a>, name: &str) -> Result<Json<'a>, Error> {
    let text = || unreadable(format!("attempt to access non-existing object member '{name}'"));
    document.member(name).ok_or_else(text)
}

fn missing(name: &str) -> Error {
    Error::invalid(format!("Shared memory register request has no '{name}' field"))
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

    const NOT_UNSIGNED: &str = "attempt to access JSON non-unsigned-integer as unsigned-integer";

    #[test]
    fn memory_on_a_gpu_is_named_by_a_handle() {
        let body = |handle: &str| {
            format!(r#"{{"raw_handle":{{"b64":"{handle}"}},"device_id":1,"byte_size":8}}"#).into_bytes()
        };
        let place = CudaPlace { handle: [b'a'; 64], device_id: 1, byte_size: 8 };
        assert_eq!(cuda_place(&body(&STANDARD.encode([b'a'; 64]))), Ok(place));
        for wrong in [String::new(), "?".into(), STANDARD.encode([0; 63]), STANDARD.encode([0; 65])] {
            let text = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t";
            assert_eq!(cuda_place(&body(&wrong)), Err(Error::invalid(text)), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_with_memory_on_a_gpu_is_told_in_its_order() {
        for (body, text) in [
            ("", "Shared memory register request has no 'raw_handle' field"),
            ("{", "failed to parse the request JSON buffer: Missing a name for object member. at 1"),
            (r#"{"raw_handle":"x"}"#, "attempt to access non-existing object member 'b64'"),
            (r#"{"raw_handle":{"b64":5}}"#, "attempt to access JSON non-string as string"),
            (r#"{"raw_handle":{"b64":"?"}}"#, "attempt to access non-existing object member 'byte_size'"),
            (r#"{"raw_handle":{"b64":"?"},"byte_size":-1}"#, NOT_UNSIGNED),
            (
                r#"{"raw_handle":{"b64":"?"},"byte_size":1}"#,
                "attempt to access non-existing object member 'device_id'",
            ),
            (r#"{"raw_handle":{"b64":"?"},"byte_size":1,"device_id":-1}"#, NOT_UNSIGNED),
        ] {
            assert_eq!(cuda_place(body.as_bytes()).map_err(|error| error.to_string()), Err(text.to_owned()));
        }
    }
}

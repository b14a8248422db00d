//! The server at the other end, and what its client has learned about it.

use std::time::Instant;

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use hyper::{Method, Request, Uri, Version};
use kushi_core::Error;
use kushi_oip::wire::{Fields, WireError, put_text};

use super::fault;
use super::line::{Lines, Windows};
use crate::address::Address;
use crate::encode;
use crate::inputs::{InputNames, KnownInputs, MAX_INPUTS};
use crate::remote::RemoteOptions;
use crate::tls::Tls;

const SERVICE: &str = "inference.GRPCInferenceService";
/// What only our own servers have.
const OWN_SERVICE: &str = "kushi.Management";
/// The most digits that a time may have, as gRPC writes it.
const MOST_DIGITS: u128 = 99_999_999;

pub(crate) struct Server {
    pub(super) address: Address,
    pub(super) max_answer_bytes: usize,
    pub(super) lines: Lines,
    /// Of calls whose answers are taken one by one.
    pub(super) streaming: Lines,
    pub(super) inputs: KnownInputs,
    /// Sent with every call.
    headers: HeaderMap,
}

impl Server {
    pub(crate) fn new(
        address: Address,
        tls: Option<Tls>,
        mut headers: HeaderMap,
        options: &RemoteOptions,
    ) -> Self {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        Self {
            address,
            max_answer_bytes: options.max_answer_bytes,
            lines: Lines::new(tls.clone(), options, Windows::ANSWERS),
            streaming: Lines::new(tls, options, Windows::STREAMS),
            inputs: KnownInputs::default(),
            headers,
        }
    }

    /// What the client has set for all its calls stays.
    pub(super) fn request(
        &self,
        method: &str,
        headers: &HeaderMap,
        deadline: Option<Instant>,
    ) -> Result<Request<()>, Error> {
        let service = if method == super::METRICS { OWN_SERVICE } else { SERVICE };
        let scheme = if self.address.secure { "https" } else { "http" };
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(self.address.authority.as_bytes())
            .path_and_query(format!("/{service}/{method}"))
            .build();
        let uri = uri.map_err(|_| Error::invalid(format!("cannot ask for the method '{method}'")))?;
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        let all = request.headers_mut();
        all.clone_from(&self.headers);
        for (name, value) in headers {
            if !all.contains_key(name) {
                all.append(name, value.clone());
            }
        }
        if let Some(deadline) = deadline {
            all.insert("grpc-timeout", timeout(deadline));
        }
        Ok(request)
    }

    pub(super) async fn input_names(
        &self,
        model: &str,
        version: &str,
        deadline: Option<Instant>,
    ) -> Result<InputNames, Error> {
        if let Some(known) = self.inputs.get(model, version) {
            return Ok(known);
        }
        let mut message = Vec::new();
        put_text(&mut message, 1, model);
        put_text(&mut message, 2, version);
        let (message, headers) = ([encode::grpc_message(&message)], HeaderMap::new());
        let reply = Box::pin(self.ask("ModelMetadata", &message, &headers, deadline)).await?;
        let names = input_names(&reply.message)
            .map_err(|error| fault::unreadable(&self.address, format_args!("the metadata: {error}")))?
            .ok_or_else(|| {
                let text = format!("the metadata lists more than {MAX_INPUTS} inputs");
                fault::unreadable(&self.address, text)
            })?;
        Ok(self.inputs.learn(model, version, names))
    }
}

/// Of a model's metadata; `None`: there are too many.
fn input_names(metadata: &[u8]) -> Result<Option<Vec<String>>, WireError> {
    let mut names = Vec::new();
    let mut fields = Fields::new(metadata);
    while let Some((field, value)) = fields.next_field()? {
        if field != 4 {
            continue;
        }
        if names.len() == MAX_INPUTS {
            return Ok(None);
        }
        let mut name = "";
        let mut tensor = Fields::new(value.bytes()?);
        while let Some((field, value)) = tensor.next_field()? {
            if field == 1 {
                name = value.text()?;
            }
        }
        names.push(name.to_owned());
    }
    Ok(Some(names))
}

/// What is left, in the finest unit that has room for it.
fn timeout(deadline: Instant) -> HeaderValue {
    let left = deadline.saturating_duration_since(Instant::now()).as_micros().max(1);
    let (number, unit) = match left {
        micros if micros <= MOST_DIGITS => (micros, 'u'),
        micros if micros / 1000 <= MOST_DIGITS => (micros / 1000, 'm'),
        micros => ((micros / 1_000_000).min(MOST_DIGITS), 'S'),
    };
    HeaderValue::try_from(format!("{number}{unit}")).unwrap_or(HeaderValue::from_static("99999999S"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_timeout_has_the_finest_unit_that_fits() {
        for (left, unit) in
            [(0.0, 'u'), (1.0, 'u'), (90.0, 'u'), (110.0, 'm'), (90_000.0, 'm'), (200_000.0, 'S')]
        {
            let written = timeout(Instant::now() + Duration::from_secs_f64(left));
            let written = written.to_str().unwrap();
            assert!(written.ends_with(unit) && written.len() <= 9, "{left}: {written}");
        }
    }

    #[test]
    fn names_are_those_of_inputs() {
        let mut metadata = Vec::new();
        put_text(&mut metadata, 1, "m");
        for (field, name) in [(5, "Y"), (4, "A"), (4, "B")] {
            let mut tensor = Vec::new();
            put_text(&mut tensor, 2, "FP32");
            put_text(&mut tensor, 1, name);
            kushi_oip::wire::put_bytes(&mut metadata, field, &tensor);
        }
        assert_eq!(input_names(&metadata), Ok(Some(vec!["A".to_owned(), "B".to_owned()])));
        assert!(input_names(b"\x22\x05").is_err());
        let many = b"\x22\x00".repeat(MAX_INPUTS + 1);
        assert_eq!(input_names(&many), Ok(None));
    }
}

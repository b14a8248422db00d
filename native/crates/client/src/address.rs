//! Where a server is: the URL that a user gave, taken apart.

use std::fmt;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::Authority;
use kushi_core::Error;

/// Shows itself as the url: its scheme, its host and port, and the path before `/v2`, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub protocol: Protocol,
    /// Whether TLS is spoken there.
    pub secure: bool,
    /// An address or a name, as the resolver takes it: without the brackets of IPv6.
    pub host: String,
    pub port: u16,
    /// As the header `Host` and HTTP/2 have it.
    pub authority: HeaderValue,
    /// In front of every path; without a slash at its end. With gRPC there is none.
    pub prefix: String,
}

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Grpc,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::invalid(format!(
                "cannot read the url '{url}', expected http://HOST:PORT, https://HOST:PORT, grpc://HOST:PORT or \
                 grpcs://HOST:PORT"
            ))
        };
        let uri: Uri = url.trim().parse().map_err(|_| wrong())?;
        let (protocol, secure) = match uri.scheme_str().map(str::to_ascii_lowercase).as_deref() {
            Some("http") => (Protocol::Http, false),
            Some("https") => (Protocol::Http, true),
            Some("grpc") => (Protocol::Grpc, false),
            Some("grpcs") => (Protocol::Grpc, true),
            _ => return Err(wrong()),
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority: &Authority = authority.ok_or_else(wrong)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        // A port that is no number reads as none.
        let port_text = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        if host.is_empty() || uri.query().is_some() || (!port_text.is_empty() && uri.port_u16().is_none()) {
            return Err(wrong());
        }
        let prefix = uri.path().trim_end_matches('/');
        if protocol == Protocol::Grpc && !prefix.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            protocol,
            secure,
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?,
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.protocol, self.secure) {
            (Protocol::Http, false) => "http",
            (Protocol::Http, true) => "https",
            (Protocol::Grpc, false) => "grpc",
            (Protocol::Grpc, true) => "grpcs",
        };
        write!(f, "{scheme}://{}{}", String::from_utf8_lossy(self.authority.as_bytes()), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_urls_apart() {
        for (url, host, port, prefix, shown) in [
            ("http://localhost:8000", "localhost", 8000, "", "http://localhost:8000"),
            ("http://10.0.0.1", "10.0.0.1", 80, "", "http://10.0.0.1"),
            ("http://[::1]:8000/", "::1", 8000, "", "http://[::1]:8000"),
            ("http://h:1/a/b/", "h", 1, "/a/b", "http://h:1/a/b"),
            ("HTTPS://h/a", "h", 443, "/a", "https://h/a"),
            ("https://[::1]:8443", "::1", 8443, "", "https://[::1]:8443"),
            ("grpc://h:8001/", "h", 8001, "", "grpc://h:8001"),
            ("GRPCS://h", "h", 443, "", "grpcs://h"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!((address.host.as_str(), address.port, address.prefix.as_str()), (host, port, prefix));
            assert_eq!(address.to_string(), shown);
        }
    }

    #[test]
    fn refuses_what_is_no_url_of_a_server() {
        for url in [
            "",
            "localhost:8000",
            "http://",
            "http://h:x",
            "http://h:70000",
            "http://u:p@h",
            "http://h/?q",
            "ftp://h",
            "grpc://h/a",
            "http://a b",
        ] {
            let error = Address::parse(url).unwrap_err();
            let expected = format!("cannot read the url '{url}', expected http://HOST:PORT, ");
            assert!(error.message.starts_with(&expected), "{error}");
        }
    }
}

//! Where a server is: the URL that a user gave, taken apart.

use std::fmt;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::Authority;
use kushi_core::Error;

/// Shows itself as `http://host:port` or `https://host:port`, and the path before `/v2`, if there is one.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// Whether TLS is spoken there.
    pub secure: bool,
    /// An address or a name, as the resolver takes it: without the brackets of IPv6.
    pub host: String,
    pub port: u16,
    /// The header `Host`.
    pub authority: HeaderValue,
    /// In front of every path; without a slash at its end.
    pub prefix: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::invalid(format!(
                "cannot read the url '{url}', expected http://HOST:PORT or https://HOST:PORT"
            ))
        };
        let uri: Uri = url.trim().parse().map_err(|_| wrong())?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
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
        Ok(Self {
            secure,
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?,
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
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
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!((address.host.as_str(), address.port, address.prefix.as_str()), (host, port, prefix));
            assert_eq!(address.to_string(), shown);
        }
    }

    #[test]
    fn refuses_what_is_no_http_url() {
        for url in [
            "",
            "localhost:8000",
            "http://",
            "http://h:x",
            "http://h:70000",
            "http://u:p@h",
            "http://h/?q",
            "ftp://h",
            "http://a b",
        ] {
            let error = Address::parse(url).unwrap_err();
            let expected =
                format!("cannot read the url '{url}', expected http://HOST:PORT or https://HOST:PORT");
            assert_eq!(error.message, expected);
        }
    }
}

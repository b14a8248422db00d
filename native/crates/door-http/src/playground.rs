//! The page at `/`: a few files of this program. What it shows it asks of the other routes, with the tokens that
//! they ask for; the files say nothing about the server.

use bytes::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

use crate::answer::{self, HttpAnswer};

/// Nothing from elsewhere, nothing written into the page itself, and in no frame of another one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) struct PageFile {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($path:literal, $file:literal, $content_type:expr;)+) => {
        &[$(PageFile {
            path: $path,
            content_type: $content_type,
            bytes: include_bytes!(concat!("../page/", $file)),
        }),+]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

const FILES: &[PageFile] = files! {
    "/", "index.html", HTML;
    "/playground/icon.svg", "icon.svg", PICTURE;
    "/playground/style.css", "style.css", STYLE;
    "/playground/api.js", "api.js", SCRIPT;
    "/playground/app.js", "app.js", SCRIPT;
    "/playground/bar.js", "bar.js", SCRIPT;
    "/playground/code.js", "code.js", SCRIPT;
    "/playground/dom.js", "dom.js", SCRIPT;
    "/playground/field.js", "field.js", SCRIPT;
    "/playground/models.js", "models.js", SCRIPT;
    "/playground/outputs.js", "outputs.js", SCRIPT;
    "/playground/pictures.js", "pictures.js", SCRIPT;
    "/playground/read.js", "read.js", SCRIPT;
    "/playground/reader.js", "reader.js", SCRIPT;
    "/playground/samples.js", "samples.js", SCRIPT;
    "/playground/statistics.js", "statistics.js", SCRIPT;
    "/playground/tensors.js", "tensors.js", SCRIPT;
    "/playground/try.js", "try.js", SCRIPT;
};

pub(crate) fn find(path: &str) -> Option<&'static PageFile> {
    FILES.iter().find(|file| file.path == path)
}

pub(crate) fn answer(file: &PageFile) -> HttpAnswer {
    let mut response = answer::file(file.content_type, Bytes::from_static(file.bytes));
    for (name, value) in [
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_BYTES: usize = 100_000;

    #[test]
    fn every_file_that_a_file_names_is_there_and_nothing_comes_from_elsewhere() {
        for file in FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for named in names(text) {
                assert!(find(&named).is_some(), "{} names {named}", file.path);
            }
            assert!(!text.replace("http://www.w3.org/", "").contains("://"), "{}", file.path);
        }
    }

    /// Of scripts, what they import; of the page, what it takes.
    fn names(text: &str) -> Vec<String> {
        let imported =
            text.split("from \"./").skip(1).map(|rest| format!("/playground/{}", before_quote(rest)));
        let taken =
            text.split("=\"/playground/").skip(1).map(|rest| format!("/playground/{}", before_quote(rest)));
        imported.chain(taken).collect()
    }

    fn before_quote(text: &str) -> &str {
        text.split('"').next().unwrap_or_default()
    }

    #[test]
    fn the_page_is_small() {
        let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(bytes <= MOST_BYTES, "{bytes}");
    }
}

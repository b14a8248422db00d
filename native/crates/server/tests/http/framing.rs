//! Where the body of a request ends, and what is not believed about it.

use crate::site::Site;

#[test]
fn a_coding_beside_chunked_is_refused_and_the_connection_ends() {
    let site = Site::default();
    for (headers, status) in [
        ("Transfer-Encoding: chunked", 200),
        ("Transfer-Encoding:  Chunked ", 200),
        ("Transfer-Encoding: gzip, chunked", 400),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked, chunked", 400),
        ("Transfer-Encoding: identity, chunked", 400),
        ("Transfer-Encoding: , chunked", 400),
    ] {
        for (method, path) in
            [("GET", "/v2"), ("POST", "/v2/models/echo/infer"), ("POST", "/v2/models/nobody/infer")]
        {
            let mut client = site.connect();
            let body = r#"{"inputs":[{"name":"INPUT","datatype":"INT32","shape":[1,1],"data":[7]}]}"#;
            let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
            client.send_bytes(
                format!("{method} {path} HTTP/1.1\r\nHost: site\r\n{headers}\r\n\r\n{chunks}").as_bytes(),
            );
            let found = client.receive();
            let expected = if status == 200 && path.contains("nobody") { 404 } else { status };
            assert_eq!(found.status, expected, "{headers} {path} {}", found.text());
            if status == 400 {
                assert!(client.try_receive().is_err(), "{headers}: the connection goes on");
            }
        }
    }
}

import pytest

from tests.crate_law import Edge, cargo_metadata, edges, violations


def test_the_crates_obey_the_import_law() -> None:
    assert list(violations(edges(cargo_metadata()))) == []


@pytest.mark.parametrize(
    "edge",
    [
        ("bindings", "server", None),
        ("server", "door-http", None),
        ("server", "net", None),
        ("door-http", "net", None),
        ("door-local", "shm", None),
        ("door-grpc", "oip", None),
        ("door-http", "verbs", None),
        ("verbs", "dataplane", None),
        ("verbs", "oip", None),
        ("net", "tls", None),
        ("bindings", "engine-onnx", None),
        ("engine-onnx", "core", None),
        ("bindings", "engine-python", None),
        ("bindings", "arrays", None),
        ("engine-python", "arrays", None),
        ("arrays", "core", None),
        ("client", "shm", None),
        ("dataplane", "gpu", None),
        ("oip", "core", None),
        ("testkit", "core", None),
        ("core", "testkit", "dev"),
        ("engine-onnx", "testkit", "dev"),
    ],
)
def test_an_edge_of_the_law_is_allowed(edge: Edge) -> None:
    assert list(violations([edge])) == []


@pytest.mark.parametrize(
    "edge",
    [
        ("core", "dataplane", None),
        ("core", "shm", None),
        ("core", "server", "dev"),
        ("dataplane", "oip", None),
        ("dataplane", "net", None),
        ("net", "oip", None),
        ("net", "dataplane", None),
        ("net", "door-http", None),
        ("door-local", "door-http", None),
        ("door-http", "client", None),
        ("door-http", "server", None),
        ("server", "engine-onnx", None),
        ("server", "client", None),
        ("engine-onnx", "server", None),
        ("engine-onnx", "shm", None),
        ("engine-onnx", "engine-torch", None),
        ("engine-onnx", "arrays", None),
        ("engine-onnx", "engine-python", None),
        ("client", "arrays", None),
        ("client", "net", None),
        ("arrays", "oip", None),
        ("oip", "net", None),
        ("oip", "dataplane", None),
        ("client", "verbs", None),
        ("bindings", "oip", None),
        ("testkit", "engine-onnx", None),
        ("bindings", "testkit", None),
        ("server", "testkit", "build"),
        ("server", "bindings", None),
        ("gpu", "core", None),
        ("core", "gpu", None),
        ("novel", "core", None),
    ],
)
def test_a_forbidden_edge_is_found(edge: Edge) -> None:
    assert len(list(violations([edge]))) == 1


def test_a_crate_is_known_by_its_directory_not_by_its_package_name() -> None:
    metadata = {
        "packages": [
            {
                "name": "kushi-core",
                "manifest_path": "/native/crates/core/Cargo.toml",
                "dependencies": [{"name": "kushi-http", "kind": None}, {"name": "serde", "kind": None}],
            },
            {"name": "kushi-http", "manifest_path": "/native/crates/net/Cargo.toml", "dependencies": []},
        ]
    }
    assert list(edges(metadata)) == [("core", "net", None)]

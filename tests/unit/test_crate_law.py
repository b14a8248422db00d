import pytest

from tests.crate_law import Edge, cargo_metadata, edges, violations


def test_the_crates_obey_the_import_law() -> None:
    assert list(violations(edges(cargo_metadata()))) == []


@pytest.mark.parametrize(
    "edge",
    [
        ("bindings", "doors", None),
        ("bindings", "engine-onnx", None),
        ("engine-onnx", "core", None),
        ("bindings", "engine-python", None),
        ("bindings", "arrays", None),
        ("engine-python", "arrays", None),
        ("arrays", "core", None),
        ("client", "shm", None),
        ("doors", "oip", None),
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
        ("core", "doors", None),
        ("core", "shm", None),
        ("core", "doors", "dev"),
        ("doors", "engine-onnx", None),
        ("doors", "client", None),
        ("engine-onnx", "doors", None),
        ("engine-onnx", "shm", None),
        ("engine-onnx", "engine-torch", None),
        ("engine-onnx", "arrays", None),
        ("engine-onnx", "engine-python", None),
        ("client", "arrays", None),
        ("client", "doors", None),
        ("arrays", "oip", None),
        ("oip", "shm", None),
        ("bindings", "oip", None),
        ("testkit", "engine-onnx", None),
        ("bindings", "testkit", None),
        ("doors", "testkit", "build"),
        ("doors", "bindings", None),
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
            {"name": "kushi-http", "manifest_path": "/native/crates/doors/Cargo.toml", "dependencies": []},
        ]
    }
    assert list(edges(metadata)) == [("core", "doors", None)]

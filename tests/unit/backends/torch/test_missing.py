import sys
from pathlib import Path

import pytest

from runners.backends.pipeline import load
from runners.errors import Unsupported
from runners.repository.layout import ModelSource
from tests.unit.text import config


def test_where_pytorch_is_missing_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "runners.backends.torch.backend", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    source = ModelSource("m", tmp_path, {1: tmp_path})
    with pytest.raises(
        Unsupported, match=r"^backend 'pytorch' cannot be loaded: .*torch.*: pip install 'kushi\[torch\]'$"
    ):
        load(source, config('backend: "pytorch"'), 1, auto_complete=True)

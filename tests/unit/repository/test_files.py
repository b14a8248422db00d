import os
import socket
from pathlib import Path

import pytest

from runners.errors import ConfigInvalid
from runners.repository.files import MOST_BYTES, check_file, check_link, is_within, open_file, read_file


def test_a_link_to_nowhere_is_refused_with_what_it_names(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    with pytest.raises(ConfigInvalid, match=rf"^'{link}' is a link to 'nowhere', which is not there$"):
        check_file(link)


def test_a_link_in_a_circle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "2").symlink_to("2")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for name, target in (("2", "2"), ("a", "b")):
        with pytest.raises(ConfigInvalid, match=f"'{tmp_path}/{name}' is a link to '{target}', which leads to itself"):
            check_link(tmp_path / name)


def test_what_is_no_file_is_refused_by_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    for path, kind in (("fifo", "pipe"), ("socket", "socket"), ("/dev/null", "device")):
        with pytest.raises(ConfigInvalid, match=rf"^'{path}' is a {kind}, expected a regular file$"):
            check_file(Path(path))
    with pytest.raises(IsADirectoryError):
        check_file(tmp_path)


def test_a_file_of_the_kernel_is_no_regular_file(tmp_path: Path) -> None:
    link = tmp_path / "config.pbtxt"
    link.symlink_to("/proc/version")
    for path in (link, Path("/proc/self/status")):
        with pytest.raises(ConfigInvalid, match=rf"^'{path}' is a file of the kernel, expected a regular file$"):
            check_file(path)
        with pytest.raises(ConfigInvalid, match="is a file of the kernel"):
            read_file(path, "configuration")


def test_a_file_is_read_up_to_the_bound_of_its_kind(tmp_path: Path) -> None:
    path, most = tmp_path / "config.pbtxt", MOST_BYTES["configuration"]
    path.write_bytes(bytes(most))
    assert len(read_file(path, "configuration")) == most
    path.write_bytes(bytes(most + 1))
    with pytest.raises(ConfigInvalid, match=rf"^configuration '{path}' has more than {most} bytes$"):
        read_file(path, "configuration")


def test_a_path_is_within_a_folder_when_its_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/")
    assert is_within(tmp_path / "a" / ".." / "b", tmp_path)
    for path in ("out/etc", "..", "a\0b"):
        assert not is_within(tmp_path / path, tmp_path)


def test_what_was_opened_has_to_lie_where_it_was_looked_for(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (tmp_path / "secret").write_text("secret")
    (model / "labels.txt").write_text("one")
    with open_file(model / "labels.txt", within=model) as file:
        # a new file in its place changes nothing of what is open
        (model / "new").write_text("two")
        (model / "new").replace(model / "labels.txt")
        assert file.read() == b"one"
    # as a link would that comes between the look and the reading
    (model / "link").symlink_to("../secret")
    with pytest.raises(ConfigInvalid, match=rf"^'{model}/link' lies outside of '{model}'$"):
        read_file(model / "link", "label file", within=model)
    assert read_file(model / "link", "label file") == b"secret"

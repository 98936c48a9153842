"""What a report writes where its reader says is whole or not there, and a place that takes no file is told at once."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from raypoly.core.errors import StorageError, UsageError
from raypoly.core.whole_files import check_output, write_output


def test_a_full_disk_leaves_the_page_of_before_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_output(page, b"good")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(StorageError, match=r"page\.html can't be written \(File too large\): mend that and run"):
            write_output(page, bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert page.read_bytes() == b"good"
    assert list(tmp_path.iterdir()) == [page]


def test_a_pipe_is_written_and_a_link_stays_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    check_output(tmp_path / "pipe", "--out")
    write_output(tmp_path / "pipe", b"page")
    assert os.read(reader, 10) == b"page"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to(tmp_path / "page")
    write_output(tmp_path / "link", b"page")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page").read_bytes() == b"page"


def test_a_place_that_takes_no_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_output(tmp_path / "page.html", "--out")
    with pytest.raises(UsageError, match=r"--out .* can't be written: it is a folder; name a file in it\."):
        check_output(tmp_path, "--out")
    with pytest.raises(UsageError, match=r"--out .*page\.html can't be written: there is no folder .*no; name a file"):
        check_output(tmp_path / "no" / "page.html", "--out")
    monkeypatch.setattr(os, "access", lambda *asked: False)  # root may write anywhere
    with pytest.raises(UsageError, match=r"can't be written: .* is not yours to write; name a file in a folder of"):
        check_output(tmp_path / "page.html", "--out")

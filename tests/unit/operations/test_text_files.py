"""Texts somebody keeps: for the owner alone, whole or not at all, never over a file unless told."""

import stat
from pathlib import Path

import pytest

from gpuplan.errors import UsageError
from gpuplan.operations.text_files import AlreadyThere, write_texts


def test_one_text_goes_to_the_file_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "new" / "plan.json"
    assert write_texts(str(path), {"plan.json": "{}\n"}) == (path,)
    assert path.read_text() == "{}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_several_go_to_the_directory_that_is_named(tmp_path: Path) -> None:
    paths = write_texts(str(tmp_path), {"a.yaml": "a", "b.yaml": "b"})
    assert [(path.name, path.read_text()) for path in paths] == [("a.yaml", "a"), ("b.yaml", "b")]


def test_nothing_is_written_over_unless_told(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("old")
    with pytest.raises(AlreadyThere, match=r"b\.yaml is there already"):
        write_texts(str(tmp_path), {"a.yaml": "a", "b.yaml": "b"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.yaml"]
    assert (tmp_path / "b.yaml").read_text() == "old"
    write_texts(str(tmp_path), {"a.yaml": "a", "b.yaml": "b"}, replace=True)
    assert (tmp_path / "b.yaml").read_text() == "b"
    assert stat.S_IMODE((tmp_path / "b.yaml").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yaml", "b.yaml"]


def test_a_dangling_link_is_something_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AlreadyThere):
        write_texts(str(tmp_path / "link"), {"x": "y"})
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("name", "reason"), [("", "no name"), ("  ", "no name"), ("a\0b", "null"), ("x" * 300, "too long")]
)
def test_a_name_that_is_none_is_refused_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"(?i){reason}") as told:
        write_texts(name, {"x": "y"})
    assert told.value.hint


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file is no directory"):
        write_texts(str(tmp_path / "file" / "plan.json"), {"x": "y"})
    with pytest.raises(UsageError, match=r"cannot be written: Is a directory"):
        write_texts(str(tmp_path), {"x": "y"}, replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

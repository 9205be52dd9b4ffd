import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.errors import ModelError
from gpuplan.sources.safetensors import LfsPointer, combine, header_length, parse_header, read_header
from tests.safetensors_files import safetensors_file, with_header


def _write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    return path


def test_reads_types_shapes_and_sizes(tmp_path: Path) -> None:
    content = safetensors_file(
        {
            "a.weight": ("BF16", (4, 8)),
            "a.packed": ("F4", (4, 8)),
            "b.weight": ("BF16", (4, 8)),
            "s": ("F32", ()),
        }
    )
    tensors = read_header(_write(tmp_path, content)).tensors
    assert next(iter(tensors)) == ("a.weight", "BF16", (4, 8))
    assert tensors.total_bytes == 64 + 16 + 64 + 4
    assert tensors.count_by_dtype == {"BF16": 2, "F4": 1, "F32": 1}
    assert tensors.bytes_by_dtype["F4"] == 16
    assert tensors.elements_by_dtype["BF16"] == 64
    assert tensors.kinds[0] is tensors.kinds[2]


def test_reads_only_the_header(tmp_path: Path) -> None:
    path = _write(tmp_path, safetensors_file({"w": ("U8", (16,))}))
    header = {"w": {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]}}
    content = with_header(json.dumps(header).encode())
    with path.open("wb") as stream:
        stream.write(content)
        stream.truncate(len(content) + 2**40)
    assert read_header(path).tensors.total_bytes == 2**40


def test_an_unknown_type_is_sized_by_its_offsets() -> None:
    text = b'{"w":{"dtype":"F3_NEW","shape":[8],"data_offsets":[0,3]}}'
    header = parse_header(text, file="x", file_bytes=8 + len(text) + 3)
    assert header.unknown_dtypes == ("F3_NEW",)
    assert header.tensors.total_bytes == 3
    _, notes = combine([header])
    assert "F3_NEW" in notes[0]


def test_a_tensor_in_two_files_counts_once() -> None:
    text = b'{"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}'
    header = parse_header(text, file="x", file_bytes=None)
    tensors, notes = combine([header, header])
    assert tensors.total_bytes == 8
    assert "more than one file" in notes[0]


def _entry(dtype: Any = "U8", shape: Any = (4,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "fewer than the 8"),
        (b"\x10\0\0", "fewer than the 8"),
        (with_header(b"{}", length=2**60), "claims 1152921504606846976 bytes"),
        (with_header(b"{}", length=2**64 - 1), "claims"),
        (with_header(b"{}", length=5000), "the file ends after 10"),
        (with_header(b"{]"), "not JSON"),
        (with_header(b"\xff\xfe"), "not UTF-8"),
        (with_header(b"[" * 100_000), "nested too deeply"),
        (with_header(b"[1]"), "not a JSON object"),
        (with_header(b'{"a":1}'), "lacks a valid dtype"),
        (with_header(b'{"a":' + b"9" * 5000 + b"}"), "not JSON"),
        (with_header(json.dumps({"a": _entry()}).encode(), b"1234567"), "7 follow the header"),
        (with_header(json.dumps({"a": _entry()}).encode(), b"1"), "truncated"),
        (with_header(json.dumps({"a": _entry(shape=[5])}).encode(), b"1234"), "needs 5 bytes but has 4"),
        (with_header(json.dumps({"a": _entry(shape=[-4])}).encode(), b"1234"), "lacks a valid"),
        (with_header(json.dumps({"a": _entry(offsets=[4, 0])}).encode(), b"1234"), "ends before it begins"),
        (with_header(json.dumps({"a": _entry(), "b": _entry()}).encode(), b"1234"), "overlaps"),
        (with_header(json.dumps({"a": _entry(), "b": _entry(offsets=[5, 9])}).encode(), b"123456789"), "gap"),
        (with_header(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}'), "twice"),
    ],
)
def test_a_broken_file_is_named_with_its_fault(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(ModelError) as failure:
        read_header(_write(tmp_path, content))
    assert says in failure.value.message
    assert str(tmp_path / "model.safetensors") in failure.value.message
    assert failure.value.hint


def test_a_git_lfs_pointer_is_not_a_broken_file(tmp_path: Path) -> None:
    with pytest.raises(LfsPointer):
        read_header(_write(tmp_path, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"))


def test_a_missing_file_and_a_directory_are_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(ModelError):
            read_header(path)


@given(st.binary(max_size=200), st.one_of(st.none(), st.integers(0, 1000)))
def test_any_bytes_give_a_header_or_a_model_error(content: bytes, file_bytes: int | None) -> None:
    try:
        header_length(content, file="x", file_bytes=file_bytes)
        parse_header(content[8:], file="x", file_bytes=file_bytes)
    except ModelError:
        pass


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("BF16"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "w"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_JSON)
def test_any_json_gives_a_header_or_a_model_error(document: Any) -> None:
    with contextlib.suppress(ModelError):
        parse_header(json.dumps(document).encode(), file="x", file_bytes=None)

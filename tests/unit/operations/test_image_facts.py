"""The facts of an image: asked once by a container, remembered by the image's id."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuplan.operations.image_facts import UNKNOWN, ImageFacts, image_facts
from gpuplan.remote.connection import Completed
from gpuplan.remote.docker_engine import RequestRefused

ID = "sha256:" + "a" * 64
PRINTED = b"gpuplan-image machine x86_64\ngpuplan-image asked vllm 0.33.0\ngpuplan-image asked ray\n"


class Opened:
    def engine_of(self, host: str) -> Any:
        return f"engine of {host}"


class Runs:
    """`run_once` that prints something, and counts."""

    def __init__(self, printed: bytes = PRINTED, error: Exception | None = None) -> None:
        self.printed = printed
        self.error = error
        self.asked: list[tuple[Any, str]] = []

    def __call__(self, engine: Any, body: Mapping[str, Any], *, timeout: float, name: str) -> Completed:
        self.asked.append((engine, body["Image"]))
        if self.error is not None:
            raise self.error
        return Completed(exit_code=0, stdout=self.printed)


def test_an_image_is_asked_once(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    runs = Runs()
    first = image_facts(Opened(), "h1", ID, environ, run=runs)
    assert first == ImageFacts(vllm_version="0.33.0", ray=False, architecture="x86_64", vllm_command=False)
    assert image_facts(Opened(), "h2", ID, environ, run=runs) == first
    assert runs.asked == [("engine of h1", ID)]
    assert (tmp_path / "gpuplan" / "images" / f"{'a' * 64}.json").exists()


def test_a_damaged_memory_is_none(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    image_facts(Opened(), "h1", ID, environ, run=Runs())
    file = tmp_path / ".cache" / "gpuplan" / "images" / f"{'a' * 64}.json"
    for content in ("", "{", "[]", '{"format": 0}', '{"format": 1, "colour": "red"}'):
        file.write_text(content)
        runs = Runs()
        assert image_facts(Opened(), "h1", ID, environ, run=runs).vllm_version == "0.33.0"
        assert len(runs.asked) == 1


def test_an_image_without_a_shell_is_unknown_and_asked_again(tmp_path: Path) -> None:
    refused = RequestRefused(400, 'exec: "sh": executable file not found in $PATH: unknown')
    runs = Runs(error=refused)
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert image_facts(Opened(), "h1", ID, environ, run=runs) == UNKNOWN
    assert image_facts(Opened(), "h1", ID, environ, run=runs) == UNKNOWN
    assert len(runs.asked) == 2


def test_an_engine_that_refuses_is_a_failure(tmp_path: Path) -> None:
    runs = Runs(error=RequestRefused(500, "no space left on device"))
    with pytest.raises(RequestRefused):
        image_facts(Opened(), "h1", ID, {"XDG_CACHE_HOME": str(tmp_path)}, run=runs)


def test_a_disk_that_refuses_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    environ = {"XDG_CACHE_HOME": str(file)}
    assert image_facts(Opened(), "h1", ID, environ, run=Runs()).vllm_version == "0.33.0"

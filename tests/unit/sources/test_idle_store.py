"""What sweeps remember: whole, for its owner alone, one writer at a time; damage is as if nothing had been seen."""

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.domain.idle import Moment, Sighting
from gpuplan.errors import GpuplanError
from gpuplan.sources.idle_store import KEPT_SECONDS, remembered, sightings_file

SEEN = Sighting(
    name="x",
    generation="g1",
    starts=("id 2026-11-22T01:00:00Z",),
    counters=((0, 7, 700), (1, 3, -1)),
    since=Moment(wall=1e9 + 0.5, steady=7.25, boot="b"),
    looked=1e9 + 60,
)


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


def kept(environ: Mapping[str, str], *sightings: Sighting) -> list[Sighting]:
    with remembered(environ) as memory:
        memory.update({one.key: one for one in sightings})
    with remembered(environ) as memory:
        return list(memory.values())


def test_what_was_seen_comes_back(environ: Mapping[str, str]) -> None:
    assert kept(environ) == []
    other = replace(SEEN, generation="g2")
    assert kept(environ, SEEN, other) == [SEEN, other]
    path = sightings_file(environ)
    assert path.stat().st_mode & 0o777 == 0o600
    with remembered(environ) as memory:
        del memory[SEEN.key]
    assert kept(environ) == [other]


def test_what_nobody_looked_at_for_long_is_forgotten(environ: Mapping[str, str]) -> None:
    old = replace(SEEN, name="old", looked=SEEN.looked - KEPT_SECONDS - 1)
    assert kept(environ, SEEN, old) == [SEEN]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": 2, "deployments": []}',
        '{"schema": 1, "deployments": 3}',
        "[" * 100000,
        "\xff",
    ],
)
def test_a_file_that_makes_no_sense_is_empty(environ: Mapping[str, str], text: str) -> None:
    path = sightings_file(environ)
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="latin-1")
    assert kept(environ) == []


def test_an_entry_that_makes_no_sense_is_left_out(environ: Mapping[str, str]) -> None:
    kept(environ, SEEN)
    path = sightings_file(environ)
    document = json.loads(path.read_text())
    good = document["deployments"][0]
    bad = [3, {}, {**good, "since": None}, {**good, "counters": [[1]]}, {**good, "looked": float("nan")}]
    path.write_text(json.dumps({**document, "deployments": [*bad, good]}))
    assert kept(environ) == [SEEN]


def clear_and_fail(environ: Mapping[str, str]) -> None:
    with remembered(environ) as memory:
        memory.clear()
        raise ZeroDivisionError


def test_nothing_is_written_when_it_goes_wrong(environ: Mapping[str, str]) -> None:
    kept(environ, SEEN)
    with pytest.raises(ZeroDivisionError):
        clear_and_fail(environ)
    assert kept(environ) == [SEEN]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "gpuplan").write_text("a file")
    with (
        pytest.raises(GpuplanError, match="nothing is ever known to be idle"),
        remembered({"XDG_STATE_HOME": str(tmp_path)}),
    ):
        pass


def test_those_who_write_at_once_lose_nothing(environ: Mapping[str, str]) -> None:
    def add(number: int) -> None:
        with remembered(environ) as memory:
            one = replace(SEEN, name=f"x{number}")
            memory[one.key] = one

    threads = [threading.Thread(target=add, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept(environ)) == 16

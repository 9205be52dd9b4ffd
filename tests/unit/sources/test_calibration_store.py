"""Lessons in their file: kept whole, private, and never in the way."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.domain.calibration import Compared, Ending, Lesson, Quantity, StageTerms, Start
from gpuplan.sources import calibration_store as store


def lesson(number: int = 1, **changes: object) -> Lesson:
    start = Start(
        model="org/model",
        digest="abc",
        architecture="LlamaForCausalLM",
        quantization=None,
        dtype="bfloat16",
        version="0.22.0",
        gpu="NVIDIA H200",
        total_bytes=150 * 10**9,
        compute_capability="9.0",
        layer_partition=(4, 4),
        max_num_batched_tokens=8192,
        max_num_seqs=256,
        max_model_len=4096,
        kv_cache_dtype="auto",
        enforce_eager=False,
        utilization=0.9,
        arguments=(("moe_backend", '"triton"'),),
    )
    term = Compared(quantity=Quantity.LOADING, predicted=10, low=9, high=12, actual=11)
    missing = Compared(quantity=Quantity.KV_CACHE, predicted=10, low=9, high=12)
    made = Lesson(
        id=f"id{number:04}",
        at=1000.0 + number,
        origin="vllm.log",
        learned_by="1",
        start=start,
        stages=(StageTerms(stage=0, phase="forward", terms=(term, missing)),),
        ending=Ending.FAILED,
        check="no_kv_room",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


def test_a_lesson_comes_back_as_it_was(environ: dict[str, str]) -> None:
    assert store.load(environ).lessons == ()
    assert store.keep(lesson(), environ) is None
    assert store.load(environ).lessons == (lesson(),)


def test_the_file_is_for_its_owner_alone(environ: dict[str, str]) -> None:
    store.keep(lesson(), environ)
    path = store.lessons_file(environ)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_newest_of_one_log_counts_and_the_newest_is_first(environ: dict[str, str]) -> None:
    for one in (lesson(1, origin="again", at=5000.0), lesson(1), lesson(2)):
        store.keep(one, environ)
    found = store.load(environ).lessons
    assert [(one.id, one.origin) for one in found] == [("id0001", "again"), ("id0002", "vllm.log")]


def test_damaged_lines_are_counted_and_survive(environ: dict[str, str]) -> None:
    path = store.lessons_file(environ)
    store.keep(lesson(1), environ)
    with path.open("a") as file:
        file.write('not json\n{"schema": 99}\n{"schema": 1, "id": 4}\n{"cut off')
    store.keep(lesson(2), environ)
    stored = store.load(environ)
    assert ([one.id for one in stored.lessons], stored.unread) == (["id0002", "id0001"], 4)
    assert store.forget(lambda one: one.id == "id0001", environ) == 1
    assert ([one.id for one in store.load(environ).lessons], store.load(environ).unread) == (["id0002"], 4)
    assert "cut off" in path.read_text()


@pytest.mark.parametrize("key", ["at", "start", "stages", "origin", "ending"])
@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [[]], 1e999])
def test_no_value_of_a_line_breaks_the_reading(key: str, value: object) -> None:
    document = store.document_of(lesson()) | {key: value}
    try:
        text = json.dumps(document)
    except ValueError:
        return
    found = store.lesson_in(text.encode())
    assert found is None or found.id == "id0001"


def test_what_is_written_hides_secrets(environ: dict[str, str]) -> None:
    store.keep(lesson(origin="HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz"), environ)
    assert "hf_abc" not in store.lessons_file(environ).read_text()


def test_many_learn_at_once_and_nothing_is_lost(environ: dict[str, str]) -> None:
    def learn(first: int) -> None:
        for number in range(first, first + 20):
            assert store.keep(lesson(number), environ) is None
            if number % 7 == 0:
                store.forget(lambda one, gone=f"id{number:04}": one.id == gone, environ)  # type: ignore[misc]

    threads = [threading.Thread(target=learn, args=(base,)) for base in (100, 200, 300, 400)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = store.load(environ)
    kept = {
        f"id{number:04}" for base in (100, 200, 300, 400) for number in range(base, base + 20) if number % 7
    }
    assert {one.id for one in stored.lessons} == kept
    assert stored.unread == 0


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "gpuplan").write_text("in the way")
    problem = store.keep(lesson(), {"XDG_STATE_HOME": str(tmp_path)})
    assert problem is not None
    assert str(tmp_path) in problem
    assert store.load({"XDG_STATE_HOME": str(tmp_path)}).lessons == ()

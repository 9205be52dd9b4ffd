"""Whatever a plan file holds, it is read or refused: no other exception."""

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.saved_plan import SavedPlan
from gpuplan.domain.workload import Category
from gpuplan.engine.versions import DEFAULT
from gpuplan.errors import GpuplanError
from gpuplan.operations.models import Model
from gpuplan.operations.plan import ServingOptions, plan_model, workload_of
from gpuplan.operations.replan import serving_options
from gpuplan.present.plan_document import plain, plan_document
from gpuplan.sources.plan_json import parse
from tests.fleets import host, profile

QUICK = settings(max_examples=200, deadline=None)
READ = (
    "request",
    "fleet",
    "recommended",
    "parallelism",
    "placement",
    "vllm_args",
    "env",
    "candidates",
    "strategy",
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from([[], {}, "***", "--api-key", "data_parallel", 0, 1, 2, 9**30, "max", "h1:0"]),
    st.lists(st.text(max_size=4), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=3),
)
Place = tuple[str | int, ...]


@cache
def document() -> dict[str, Any]:
    model = Model(profile=profile("Qwen__Qwen3-4B"), category=Category.LLM, path="Qwen/Qwen3-4B")
    fleet = Fleet(hosts=(host("h1", "H100", 2), host("h2", "H100", 1)))
    workload = workload_of(ServingOptions(replicas=2, engine_args=("--api-key=secret-one",)), DEFAULT)
    made = plan_model(model, fleet, workload, DEFAULT)
    written: dict[str, Any] = json.loads(json.dumps(plain(plan_document(made))))
    return written


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*at, key)
        yield from places(item, (*at, key))


@cache
def read_places() -> tuple[Place, ...]:
    return tuple(place for place in places(document()) if set(place) & set(READ))


def read(content: bytes) -> SavedPlan | GpuplanError:
    try:
        return parse(content, "plan.json", environ={"VLLM_API_KEY": "x"})
    except GpuplanError as error:
        return error


@QUICK
@given(data=st.data(), value=VALUES)
def test_any_value_anywhere_is_read_or_refused(data: st.DataObject, value: Any) -> None:
    changed = copy.deepcopy(document())
    place = data.draw(st.sampled_from(read_places()))
    inner: Any = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    found = read(json.dumps(changed).encode())
    if isinstance(found, SavedPlan):
        with suppress(GpuplanError):
            workload_of(serving_options(found), DEFAULT)
    else:
        assert found.message.encode()
        assert found.hint


@QUICK
@given(data=st.data())
def test_a_file_cut_off_anywhere_is_refused(data: st.DataObject) -> None:
    content = json.dumps(document()).encode()
    cut = data.draw(st.integers(0, len(content) - 1))
    found = read(content[:cut])
    assert isinstance(found, GpuplanError)
    assert "truncated" in found.message or "is empty" in found.message


@QUICK
@given(content=st.binary(max_size=200))
def test_any_bytes_are_refused(content: bytes) -> None:
    assert isinstance(read(content), GpuplanError)

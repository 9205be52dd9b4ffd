"""Whatever a config, a fleet or an engine argument holds, a plan comes out or one GpuplanError: in bounded time, and
nothing that is shown moves a cursor."""

import copy
import json
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gpuplan.domain.plan import Plan, Verdict
from gpuplan.domain.repository import Origin, Repository
from gpuplan.engine.flags import spellings
from gpuplan.engine.versions import DEFAULT
from gpuplan.errors import GpuplanError
from gpuplan.operations.fleet import FleetOptions, declared
from gpuplan.operations.models import Model, category_of, profile_of
from gpuplan.operations.plan import ServingOptions, make_plan, plan_model, workload_of
from gpuplan.present.document import text_of
from gpuplan.present.plan_document import plain, plan_document
from gpuplan.present.plan_text import plan_text
from gpuplan.sources import inventory_yaml

ROOT = Path(__file__).parents[2]
CONFIGS = tuple(
    sorted(path for path in (ROOT / "tests/data/configs").glob("*.json") if "hf_quant" not in path.name)
)
QUICK = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SECONDS = 20.0
"""Far above what any case takes: only a search without bound is caught, not a busy machine."""

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),
    st.sampled_from([2**31 - 1, 2**31, 2**63, 10**9, 10**30, 0.5, 1e308, float("inf"), float("nan")]),
    st.sampled_from(["", "x", "64", "auto", "\x1b[31m\u202e\x9b", "float3", "full_attention"]),
    st.lists(st.integers(-1, 2**31) | st.none() | st.sampled_from(["x", "full_attention"]), max_size=4),
    st.dictionaries(
        st.sampled_from(["type", "factor", "bits", "a"]), st.integers(-1, 9) | st.none(), max_size=2
    ),
)


@cache
def config_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def places(document: Any, above: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The keys and indexes that lead to every value of a document, six levels deep."""
    if len(above) > 6:
        return []
    inner: list[tuple[str | int, Any]] = []
    if isinstance(document, dict):
        inner = list(document.items())
    elif isinstance(document, list):
        inner = list(enumerate(document[:8]))
    return [place for key, value in inner for place in ((*above, key), *places(value, (*above, key)))]


@st.composite
def broken(
    draw: st.DrawFn, document: Any, replacements: st.SearchStrategy[Any], least: int = 1
) -> dict[str, Any]:
    """The document, of which up to four values are missing or anything at all."""
    changed: dict[str, Any] = copy.deepcopy(document)
    for keys in draw(st.lists(st.sampled_from(places(document)), min_size=least, max_size=4)):
        holder: Any = changed
        try:
            for key in keys[:-1]:
                holder = holder[key]
            if draw(st.booleans()):
                holder[keys[-1]] = draw(replacements)
            else:
                del holder[keys[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    return changed


broken_configs = st.sampled_from(CONFIGS).flatmap(
    lambda path: st.tuples(st.just(path.stem.replace("__", "/")), broken(config_of(path), values))
)


def checked(plan: Plan) -> None:
    """What holds of every plan, however strange its inputs."""
    document = plain(plan_document(plan))
    json.dumps(document, allow_nan=False)
    assert text_of(plan_text(plan, 80)).replace("\n", "").isprintable()
    for result in plan.strategies:
        for candidate in result.candidates:
            used = [(host.host, gpu.index) for host in candidate.placement for gpu in host.gpus]
            assert len(used) == len(set(used))
            if candidate.verdict is Verdict.FITS and candidate.memory is not None:
                for rank in candidate.memory.ranks:
                    assert rank.weights.bytes >= 0
                    assert rank.kv_cache_bytes >= 0
    if plan.recommended is not None:
        name, index = plan.recommended
        chosen = next(item for item in plan.strategies if item.strategy is name).candidates[index]
        assert chosen.verdict is Verdict.FITS


def refusal(error: GpuplanError) -> None:
    event(type(error).__name__)
    assert error.message
    assert error.hint, error.message
    assert len(error.message) < 2000


FLEET = declared(inventory_yaml.load(ROOT / "inventory.example.yaml"))


@settings(QUICK, max_examples=50)
@given(
    named=broken_configs,
    words=st.sampled_from([(), (), ("-tp", "2"), ("--enable-expert-parallel",), ("--quantization", "fp8")]),
)
def test_any_config(named: tuple[str, dict[str, Any]], words: tuple[str, ...]) -> None:
    name, config = named
    started = time.monotonic()
    workload = workload_of(ServingOptions(engine_args=words), DEFAULT)
    repository = Repository(name=name, origin=Origin.FILE, location="/nowhere/config.json", config=config)
    try:
        profile, notes = profile_of(repository, workload.engine)
        model = Model(profile=profile, category=category_of(profile, config), path=name, notes=notes)
        checked(plan_model(model, FLEET, workload, DEFAULT))
        event("plan")
    except GpuplanError as error:
        refusal(error)
    assert time.monotonic() - started < SECONDS


facts = (
    values
    | st.sampled_from(
        ["ok", "unreachable", "failed", "local", "a", "h1", "L4", "12.1", "rocm", "80GiB", "0GiB"]
    )
    | st.sampled_from(["NVIDIA H100 80GB HBM3", 0, 1, 10 * 2**30, 24 * 2**30, 80 * 2**30, 2**60])
)
SNAPSHOT = json.loads((ROOT / "tests/golden/cases/fleets/mixed.json").read_text(encoding="utf-8"))
INVENTORY = yaml.safe_load((ROOT / "inventory.example.yaml").read_text(encoding="utf-8"))
serving = st.fixed_dictionaries(
    {},
    optional={
        "context": st.sampled_from(["max", "8k", "1", "100000000", "0", "x"]),
        "concurrency": st.sampled_from([1, 64, 10**6, 0]),
        "replicas": st.sampled_from([1, 2, 5, 10**6]),
        "placement": st.sampled_from(["spread", "binpack"]),
        "vram_claim": st.sampled_from(["1GiB", "100GiB", "100TiB", "0"]),
        "ram_claim": st.sampled_from(["1GiB", "100TiB"]),
        "gpus": st.sampled_from(
            [("h1:0",), ("h1:0,1",), ("h1:0", "h2:0"), ("h100-a:0,1",), ("lab:0", "h100-a:0"), ("z:9",)]
        ),
        "no_distributed": st.booleans(),
    },
)


def planned(options: FleetOptions, asked: Mapping[str, Any]) -> None:
    started = time.monotonic()
    try:
        checked(make_plan("Qwen/Qwen3-4B", options, ServingOptions(**asked)))
        event("plan")
    except GpuplanError as error:
        refusal(error)
    assert time.monotonic() - started < SECONDS


@QUICK
@given(snapshot=broken(SNAPSHOT, facts, 0), asked=serving)
def test_any_snapshot(tmp_path: Path, snapshot: dict[str, Any], asked: dict[str, Any]) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(snapshot), encoding="utf-8")
    planned(FleetOptions(environ={}, cwd=tmp_path, snapshot=path), asked)


@QUICK
@given(inventory=broken(INVENTORY, facts, 0), asked=serving)
def test_any_inventory(tmp_path: Path, inventory: dict[str, Any], asked: dict[str, Any]) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(json.dumps(inventory), encoding="utf-8")
    planned(FleetOptions(environ={}, cwd=tmp_path, inventory=path), asked)


numbers = st.sampled_from(
    ["0", "1", "2", "3", "-1", "64", "1e9", "9" * 25, "nan", "inf", "32k", "0.5", "1,2"]
)
words = st.sampled_from(
    ["", "abc", "None", "true", "auto", "fp8", "mp", "ray", "'", "=", "-", "--", "\x1b[31m"]
)
objects = st.sampled_from(
    [
        *("{}", "[]", "{", '{"a": 1}', '{"method": "mtp"}', '{"num_hidden_layers": 2}', '{"image": 3}'),
        '{"method": "eagle3", "model": "x", "num_speculative_tokens": 3}',
    ]
)
argument_values = numbers | words | objects
words_of_engine = st.lists(
    st.tuples(st.sampled_from(sorted(spellings())), argument_values)
    | st.tuples(st.sampled_from(sorted(spellings())).map(lambda name: name[:-1]))
    | st.tuples(st.text(max_size=6)),
    max_size=3,
).map(lambda pairs: tuple(word for pair in pairs for word in pair))


@QUICK
@given(
    words=words_of_engine,
    version=st.sampled_from([None, "0.8.0", "0.9.2", "0.12.0", "99.0"]),
    reference=st.sampled_from(["Qwen/Qwen3-4B", "Qwen/Qwen3-30B-A3B", "google/gemma-3-27b-it"]),
)
def test_any_engine_argument(
    tmp_path: Path, words: Sequence[str], version: str | None, reference: str
) -> None:
    options = FleetOptions(environ={}, cwd=tmp_path, inventory=ROOT / "inventory.example.yaml")
    started = time.monotonic()
    try:
        asked = ServingOptions(engine_args=tuple(words), vllm_version=version)
        checked(make_plan(reference, options, asked))
        event("plan")
    except GpuplanError as error:
        refusal(error)
    assert time.monotonic() - started < SECONDS

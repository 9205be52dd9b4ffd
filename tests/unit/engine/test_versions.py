"""Versions compare as releases, and each rule changes at its boundary."""

import pytest

from gpuplan.engine.versions import (
    DEFAULT,
    EngineVersion,
    GraphAccounting,
    TokensLine,
    batch_defaults,
    default_async_scheduling,
    default_gpu_memory_utilization,
    graph_accounting,
    group_padding_factor,
    in_flight_batches,
    null_block_reserved,
    quantization_removed,
    ray_in_image,
    stated_version,
    tokens_line,
    version_of,
)
from gpuplan.errors import UsageError
from gpuplan.units import GIB

V = EngineVersion.parse


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.33.0", (0, 33, 0, 0)),
        ("v0.33.0", (0, 33, 0, 0)),
        ("0.20", (0, 20, 0, 0)),
        ("0.9.0.1", (0, 9, 0, 1)),
        ("0.11.1rc3.dev29+g0a1b2c3", (0, 11, 1, 0)),
        (" 0.19.1+cu130 ", (0, 19, 1, 0)),
        ("0.21.0-cu129-x86_64", (0, 21, 0, 0)),
    ],
)
def test_versions_are_read_as_people_write_them(text: str, release: tuple[int, ...]) -> None:
    assert V(text).release == release


@pytest.mark.parametrize("text", ["", "latest", "0", "v", "0.x.1", "1.2.3 4", "0.33.0; rm", "0" * 50 + ".1"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        V(text)
    assert str(DEFAULT) in (caught.value.hint or "")


def test_versions_order_by_number_not_by_text() -> None:
    assert V("0.9.2") < V("0.10.0") < V("0.20.1") < V("0.20.2") < V("1.0.0")
    assert V("0.9.0") < V("0.9.0.1") < V("0.9.1")
    assert str(V("v0.9.0.1")) == "0.9.0.1"


def test_the_default_is_used_without_a_version_and_old_ones_are_refused() -> None:
    assert version_of(None) == DEFAULT
    assert version_of("0.8.0").supported
    with pytest.raises(UsageError, match="older than"):
        version_of("0.7.3")


@pytest.mark.parametrize(
    ("version", "utilization", "graphs", "line"),
    [
        ("0.8.5", 0.9, GraphAccounting.ABSENT, TokensLine.BLOCKS),
        ("0.11.2", 0.9, GraphAccounting.ABSENT, TokensLine.GROUPS),
        ("0.19.1", 0.9, GraphAccounting.LOGGED, TokensLine.GROUPS),
        ("0.20.0", 0.92, GraphAccounting.SUBTRACTED, TokensLine.GROUPS),
        ("0.20.1", 0.92, GraphAccounting.SUBTRACTED, TokensLine.CONCURRENCY),
        ("0.33.0", 0.92, GraphAccounting.SUBTRACTED, TokensLine.CONCURRENCY),
    ],
)
def test_memory_rules_change_at_their_releases(
    version: str, utilization: float, graphs: GraphAccounting, line: TokensLine
) -> None:
    at = V(version)
    assert default_gpu_memory_utilization(at) == utilization
    assert graph_accounting(at) is graphs
    assert tokens_line(at) is line


def test_smaller_boundaries() -> None:
    assert (ray_in_image(V("0.17.1")), ray_in_image(V("0.18.0"))) == (True, False)
    assert (null_block_reserved(V("0.28.0")), null_block_reserved(V("0.29.0"))) == (False, True)
    factors = [group_padding_factor(V(version)) for version in ("0.11.2", "0.12.0", "0.17.1", "0.18.0")]
    assert factors == [1.0, 1.25, 1.25, 1.5]
    assert [tokens_line(V(version)) for version in ("0.9.0", "0.9.1")] == [
        TokensLine.BLOCKS,
        TokensLine.GROUPS,
    ]
    assert [default_async_scheduling(V("0.14.1"), pipeline=stages) for stages in (1, 2)] == [True, False]
    assert [default_async_scheduling(V(version)) for version in ("0.13.0", "0.14.0")] == [False, True]
    assert default_async_scheduling(V("0.15.0"), pipeline=2)
    assert quantization_removed(V("0.22.0"), "gguf") is None
    assert quantization_removed(V("0.24.0"), "gguf") == V("0.24.0")
    assert quantization_removed(V("0.33.0"), "bitsandbytes") == V("0.28.0")
    assert quantization_removed(V("0.33.0"), "fp8") is None


@pytest.mark.parametrize(
    ("version", "asynchronous", "pipeline", "batches"),
    [
        ("0.25.1", True, 4, 1),
        ("0.26.0", False, 1, 1),
        ("0.26.0", True, 1, 2),
        ("0.26.0", True, 2, 2),
        ("0.33.0", True, 1, 2),
        ("0.33.0", True, 4, 5),
        ("0.33.0", False, 4, 4),
    ],
)
def test_batches_in_flight(version: str, asynchronous: bool, pipeline: int, batches: int) -> None:
    assert in_flight_batches(V(version), async_scheduling=asynchronous, pipeline=pipeline) == batches


@pytest.mark.parametrize(
    ("version", "card", "serve", "llm"),
    [
        ("0.33.0", (179, "NVIDIA B200", "10.0"), (16384, 1024), (16384, 1024)),
        ("0.26.0", (179, "NVIDIA B200", "10.0"), (8192, 1024), (16384, 1024)),
        ("0.33.0", (79.2, "NVIDIA H100 80GB HBM3", "9.0"), (8192, 1024), (16384, 1024)),
        ("0.33.0", (79.2, "NVIDIA A100-SXM4-80GB", "8.0"), (2048, 256), (8192, 256)),
        ("0.8.5", (79.2, "NVIDIA A100-SXM4-80GB", "8.0"), (8192, 1024), (16384, 1024)),
        ("0.33.0", (121.6, "NVIDIA GB10", "12.1"), (2048, 256), (8192, 256)),
        ("0.11.2", (121.6, "NVIDIA GB10", "12.1"), (2048, 256), (8192, 256)),
        ("0.28.0", (122.8, "NVIDIA Thor", "11.0"), (2048, 256), (8192, 256)),
        ("0.33.0", (122.8, "NVIDIA Thor", "11.0"), (8192, 1024), (16384, 1024)),
        ("0.33.0", (22, "NVIDIA L4", "8.9"), (2048, 256), (8192, 256)),
        ("0.33.0", (None, "", None), (2048, 256), (8192, 256)),
    ],
)
def test_scheduler_defaults_follow_card_and_release(
    version: str,
    card: tuple[float | None, str, str | None],
    serve: tuple[int, int],
    llm: tuple[int, int],
) -> None:
    gib, name, capability = card
    total = None if gib is None else int(gib * GIB)
    assert batch_defaults(V(version), total, name, capability, "serve") == serve
    assert batch_defaults(V(version), total, name, capability, "llm") == llm


@pytest.mark.parametrize(
    ("version", "serve"), [("0.26.0", (2048, 256)), ("0.32.0", (2048, 256)), ("0.33.0", (8192, 1024))]
)
def test_the_engine_cannot_ask_for_the_size_of_a_slice_before_033(
    version: str, serve: tuple[int, int]
) -> None:
    """A slice of 88 GiB of a B200; vLLM issue 55381."""
    assert batch_defaults(V(version), 88 * GIB, "NVIDIA B200", "10.0", sliced=True) == serve


@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("v0.33.0", "0.33.0"),
        ("0.11.1rc3", "0.11.1"),
        ("1.0.0", "1.0.0"),
        ("25.09", None),
        ("latest", None),
        ("", None),
    ],
)
def test_a_tag_states_a_release_or_none(tag: str, version: str | None) -> None:
    stated = stated_version(tag)
    assert (str(stated) if stated is not None else None) == version

"""Blocks, tokens, concurrency and the least memory that starts, against vLLM's own planner of 29 releases.

Recorded by `tests/tools/record_vllm_kv_geometry.py`.
"""

import gzip
import json
from typing import Any

import pytest

from tests.conformance.kv_geometry_cases import (
    RECORDED,
    RELEASES,
    STATE_RELEASES,
    cases,
    context_of,
    fingerprint,
    predicted,
    profile_of,
    settings_named,
    state_cases,
)

AGAIN = "python -m tests.tools.record_vllm_kv_geometry DIR --write"


@pytest.fixture(scope="module")
def record() -> dict[str, dict[str, dict[str, Any]]]:
    loaded: dict[str, dict[str, dict[str, Any]]] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return loaded


@pytest.mark.parametrize("release", RELEASES)
def test_the_pool_is_what_the_release_makes_of_the_caches(
    record: dict[str, dict[str, dict[str, Any]]], release: str
) -> None:
    answers, compared, wrong = record[release], 0, []
    for name, question in cases(release):
        answer = answers.get(name)
        assert answer is not None, f"{name} is not recorded: {AGAIN}"
        assert answer["question"] == fingerprint(question), f"the caches of {name} changed: {AGAIN}"
        if "refused" in answer:
            continue
        compared += 1
        made = predicted(profile_of(name), settings_named(name), context_of(name))
        same = (made["blocks"], made["tokens"], made["least"]) == (
            answer["blocks"],
            answer["tokens"],
            answer["least"],
        )
        # the engine prints two decimals
        close = abs(made["concurrency"] - answer["concurrency"]) <= 0.0051
        if not (same and close and answer["starts"] == [True, False]):
            wrong.append((name, made, answer))
    assert not wrong
    assert compared > 150


def test_old_releases_refuse_unlike_pages(record: dict[str, dict[str, dict[str, Any]]]) -> None:
    refused = {
        release: sum("refused" in answer for answer in record[release].values()) for release in RELEASES
    }
    assert refused["0.10.2"] > refused["0.11.2"] > refused["0.33.0"] == 0


@pytest.mark.parametrize("release", STATE_RELEASES)
def test_blocks_and_padded_states_are_the_release_s_own(
    record: dict[str, dict[str, dict[str, Any]]], release: str
) -> None:
    answers, compared, wrong = record[f"states {release}"], 0, []
    for name, question, made in state_cases(release):
        assert name in answers, f"{name} is not recorded: {AGAIN}"
        assert answers[name]["question"] == fingerprint(question), f"the caches of {name} changed: {AGAIN}"
        compared += 1
        if answers[name]["answer"] != made:
            wrong.append((name, made, answers[name]["answer"]))
    assert not wrong
    assert compared > 90

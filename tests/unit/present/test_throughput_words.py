"""Tokens per second in words and as JSON."""

from dataclasses import replace

import pytest

from gpuplan.domain.fleet import Basis
from gpuplan.domain.plan import Candidate, StrategyName
from gpuplan.domain.throughput import Bound, DecodeSpeed, NoThroughput, Throughput
from gpuplan.present.candidate_detail import detail
from gpuplan.present.comparison import comparison
from gpuplan.present.document import Lines, width_of
from gpuplan.present.folding import Part
from gpuplan.present.placement_text import candidate_lines
from gpuplan.present.plan_document import candidate_document, plain
from gpuplan.present.throughput_words import rate, seconds, throughput_line, throughput_lines
from tests.fleets import host, of, planned

PLAN = planned("Qwen__Qwen3-32B", host("h1", "H100", 2), context=8192)
CANDIDATE = of(PLAN, StrategyName.SINGLE_HOST).candidates[0]
SPEED = DecodeSpeed(users=8, context=32768, per_user=38.21, total=305.7, bound=Bound.MEMORY)
TOLD = Throughput(
    decode=SPEED,
    others=(DecodeSpeed(users=1, context=1024, per_user=64.4, total=64.4, bound=Bound.LINKS),),
    prefill_tokens_per_second=10040.6,
    prefill_bound=Bound.COMPUTE,
    first_token_seconds=3.2635,
    low=0.6,
    high=1.3,
    basis=Basis.COMPUTED,
    formula="1 ÷ step",
    inputs=(("card", "H100-80GB"), ("memory bandwidth, GB/s", 3352), ("memory, ms of a step", 24.35)),
    source="data sheets",
    notes=("speculative decoding is not counted",),
)


def having(told: Throughput | NoThroughput | None) -> Candidate:
    return replace(CANDIDATE, throughput=told)


def text(lines: Lines) -> str:
    return "\n".join("".join(span.text for span in line) for line in lines)


def test_the_line_has_users_context_bound_error_and_basis() -> None:
    assert throughput_line(having(TOLD)) == (
        "about 38 tokens/s for each of 8 users at 32,768 tokens, 306 in all; bound by memory bandwidth; "
        "−40 to +30 %, computed"
    )
    one = replace(TOLD, decode=replace(SPEED, users=1, context=1, per_user=4.16, total=4.16))
    line = throughput_line(having(one))
    assert line is not None
    assert line.startswith("about 4.2 tokens/s for one user at 1 token; bound")


def test_a_reason_stands_where_there_is_no_number() -> None:
    unknown = NoThroughput(reason="the memory bandwidth of X is not known")
    assert (
        throughput_line(having(unknown))
        == "tokens per second unknown: the memory bandwidth of X is not known"
    )
    assert throughput_line(having(None)) is None


def test_plan_and_estimate_print_it_once_below_the_cache() -> None:
    words = text(tuple(candidate_lines(having(TOLD), 200)))
    assert words.count("about 38") == 1
    assert words.index("KV cache") < words.index("about 38")
    assert "tokens/s" not in text(tuple(candidate_lines(having(None), 80)))


def test_the_detail_opens_on_what_it_rests_on() -> None:
    result = of(PLAN, StrategyName.SINGLE_HOST)
    told = replace(result, candidates=(having(TOLD), *result.candidates[1:]))
    made = replace(
        PLAN, strategies=tuple(told if one is result else one for one in PLAN.strategies), recommended=None
    )
    number = made.strategies.index(told)
    parts = {part.key: part for part in detail(made, (number, 0), number, None, 100)}
    line = parts["speed",].below[0]
    assert text(line.lines).strip().startswith("about 38 tokens/s")
    account = " ".join(text(_all(line)).split())
    for words in (
        "64 tokens/s for one user at 1,024 tokens; bound by the links between GPUs",
        "prompts are read at up to 10,000 tokens/s, bound by compute",
        "the first token of one of 32,768 tokens comes after 3.3 s at least",
        "speculative decoding is not counted",
        "memory bandwidth, GB/s: 3,352",
        "source: data sheets",
    ):
        assert words in account
    plain_parts = detail(PLAN, (number, 0), number, None, 100)
    assert ("speed",) not in {part.key for part in plain_parts}


def _all(part: Part) -> Lines:
    return tuple(line for below in part.below for line in (*below.lines, *_all(below)))


def test_two_candidates_are_compared_by_it() -> None:
    slower = replace(TOLD, decode=replace(SPEED, per_user=19.1, total=152.8, bound=Bound.LINKS))
    block = next(one for one in comparison(having(TOLD), having(slower)) if "tokens per second" in one.title)
    rows = {row.name: (row.a, row.b, row.difference) for row in block.rows}
    assert rows["each user"] == ("38", "19", "−19")
    assert rows["all users"] == ("306", "153", "−153")
    assert rows["bound by"] == ("memory bandwidth", "the links between GPUs", "")
    assert rows["prompt tokens"] == ("10,000", "10,000", "±0")
    score = next(one for one in comparison(having(TOLD), having(slower)) if one.title.startswith("score"))
    assert [row.name for row in score.rows][-2:] == ["tokens/s of all users", "free on them now"]
    one_sided = next(
        one for one in comparison(having(None), having(slower)) if "tokens per second" in one.title
    )
    assert {row.a for row in one_sided.rows} == {"–"}
    assert not [one for one in comparison(having(None), having(None)) if "tokens per second" in one.title]


def test_the_document_has_every_figure_or_the_reason() -> None:
    document = plain(candidate_document(having(TOLD)))
    found = document["throughput"]
    assert (found["decode_tokens_per_second"], found["basis"]) == (305.7, "computed")
    assert (found["per_user_tokens_per_second"], found["users"], found["context"]) == (38.21, 8, 32768)
    assert (found["low"], found["high"], found["bound"]) == (0.6, 1.3, "memory")
    assert found["others"][0]["bound"] == "links"
    assert found["inputs"]["memory bandwidth, GB/s"] == 3352
    assert document["throughput_unknown"] is None
    unknown = plain(candidate_document(having(NoThroughput(reason="no data sheet"))))
    assert (unknown["throughput"], unknown["throughput_unknown"]) == (None, "no data sheet")
    assert plain(candidate_document(having(None)))["throughput_unknown"] is None


@pytest.mark.parametrize(
    ("number", "words"), [(0.04, "0.0"), (4.16, "4.2"), (9.96, "10"), (38.2, "38"), (10040.6, "10,000")]
)
def test_rates_have_three_digits_at_most(number: float, words: str) -> None:
    assert rate(number) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [(0.0001, "1 ms"), (0.085, "85 ms"), (0.9996, "1.0 s"), (3.26, "3.3 s"), (120.4, "120 s")],
)
def test_seconds_read_short(number: float, words: str) -> None:
    assert seconds(number) == words


def test_lines_keep_to_the_width() -> None:
    lines = tuple(throughput_lines(having(TOLD), 50))
    assert len(lines) > 1
    assert all(width_of("".join(span.text for span in line)) <= 50 for line in lines)

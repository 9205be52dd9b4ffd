"""Every class of failed deployment in words: with its member and figures, with a command, and with a page."""

import re
from pathlib import Path
from typing import Any

import pytest

from gpuplan.deploying.diagnose import diagnose
from gpuplan.deploying.diagnosis import MemberEvidence
from gpuplan.deploying.signature import CODES
from gpuplan.domain.deployment import ContainerRole, Prediction
from gpuplan.domain.fact import Fact, Severity
from gpuplan.present.deploy_findings_diagnosis import DIAGNOSED, WORDS
from gpuplan.present.deploy_rulebook_diagnosis import PAGES
from gpuplan.present.diagnosed import filled
from gpuplan.present.document import text_of, width_of
from gpuplan.present.explain import page_text, pages
from gpuplan.present.findings import CODES as WORDED
from gpuplan.present.findings import Finding, word
from gpuplan.present.refusal_text import finding_lines
from gpuplan.units import GIB

ROWS = [
    line.split("\t", 1)
    for line in (Path(__file__).parents[2] / "data" / "failure-lines.tsv").read_text().splitlines()
]
SUBJECT = {
    "host": "h2",
    "container": "gpuplan-x-1",
    "role": "follower",
    "rank": 1,
    "server": 0,
    "deployment": "qwen",
}


def finding(
    code: str, figures: dict[str, Any] | None = None, subject: dict[str, Any] | None = None
) -> Finding:
    return word(
        Fact(
            code=code,
            severity=Severity.ERROR,
            subject=SUBJECT if subject is None else subject,
            figures=figures or {},
        )
    )


def of_lines(*lines: str, predicted: Prediction | None = None, **changes: Any) -> Finding:
    values: dict[str, Any] = {
        "role": ContainerRole.SINGLE,
        "state": "exited",
        "exit_code": 1,
        "finished_at": 500.0,
        "lines": tuple((100.0 + index, line) for index, line in enumerate(lines)),
    }
    found = diagnose([MemberEvidence(host="h1", container="c", **{**values, **changes})], predicted)
    return word(found.facts()[0])


def test_every_class_is_worded_and_has_a_page() -> None:
    assert set(WORDS) == {page.code for page in PAGES} == set(CODES.values())
    assert set(WORDS) <= set(WORDED)
    assert [item.code for item in DIAGNOSED] == sorted(item.code for item in DIAGNOSED)


@pytest.mark.parametrize(("group", "line"), ROWS, ids=[f"{group}-{i}" for i, (group, _) in enumerate(ROWS)])
def test_a_real_line_is_told_with_its_figures(group: str, line: str) -> None:
    told = of_lines(line)
    assert told.headline.startswith("h1: ")
    assert not re.search(r"\{\w+(?::raw)?\}", told.headline)
    assert told.hint
    if told.code == CODES[group]:
        assert any(("its log says: " in reason) or ("Docker says: " in reason) for reason in told.because)


@pytest.mark.parametrize("code", WORDS)
def test_a_figure_that_is_missing_leaves_the_failure_said(code: str) -> None:
    told = finding(code, subject={})
    said = " ".join((told.headline, *told.because, str(told.hint)))
    assert told.headline.startswith("this host: ")
    assert "None" not in said
    assert "  " not in told.headline
    assert not told.headline.endswith((" ", ":", ","))
    assert "{" not in told.headline


@pytest.mark.parametrize("code", WORDS)
@pytest.mark.parametrize("width", [80, 120])
def test_a_failure_stays_within_the_columns(code: str, width: int) -> None:
    told = finding(code, {"line": "ValueError: " + "long " * 50, "exit_code": 1, "lines": ["a", "b" * 200]})
    assert told.headline.startswith("h2 (follower 1): ")
    for row in text_of(tuple(finding_lines(told, width))).splitlines():
        assert width_of(row) <= width


@pytest.mark.parametrize("code", WORDS)
def test_a_failure_can_be_explained(code: str) -> None:
    (page,) = pages(code.lower())
    text = text_of(page_text(page, 80))
    assert page.title in text
    assert all(width_of(row) <= 80 for row in text.splitlines())
    assert all((page.what, page.why, page.do, page.source))
    assert page.what.endswith(".")
    assert page.do.endswith((".", ")."))


def test_a_small_cache_is_told_as_the_plan_would() -> None:
    told = of_lines(
        "ValueError: To serve at least one request with the model's max seq len (32768), (8.00 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (7.76 GiB). Based on the available memory, the estimated maximum model "
        "length is 31776. Try increasing",
        predicted=Prediction(kv_cache_bytes=round(7.9 * GIB)),
    )
    assert told.headline == (
        "h1: KV cache short by 0.24 GiB: predicted 7.90 GiB, needed 8.00 GiB, available 7.76 GiB for one request of 32,768 tokens"
    )
    assert told.hint == "plan again with --context 31776, the longest that fits"


def test_an_unknown_failure_shows_the_last_lines() -> None:
    told = of_lines("one", "two", "NewError: [odd]")
    assert told.code == "GP799"
    assert told.because[:4] == ("its log says: NewError: [odd]", "last lines: one", "two", "NewError: [odd]")
    assert (
        told.headline == "h1: failed, and the cause was not recognised (exit code 1: it ended with an error)"
    )


def test_what_docker_said_is_docker_s() -> None:
    told = of_lines(state="created", exit_code=128, error="Unknown runtime specified nvidia")
    assert told.headline == "h1: Docker has no runtime named nvidia"
    assert told.because[0] == "Docker says: Unknown runtime specified nvidia"


@pytest.mark.parametrize(
    ("subject", "place"),
    [
        ({"host": "h1", "role": "single", "rank": 0}, "h1: "),
        ({"host": "h1", "role": "leader", "rank": 0}, "h1 (leader): "),
        ({"host": "h3", "role": "follower", "rank": 2}, "h3 (follower 2): "),
        ({"host": "h1", "role": "ray-head", "rank": 0}, "h1 (ray-head): "),
    ],
)
def test_the_member_is_named(subject: dict[str, Any], place: str) -> None:
    assert finding("GP741", subject=subject).headline.startswith(place)


def test_the_command_names_the_deployment() -> None:
    assert "gpuplan logs qwen" in str(finding("GP799").hint)
    assert "gpuplan logs NAME" in str(finding("GP799", subject={"host": "h1"}).hint)


@pytest.mark.parametrize(
    ("template", "figures", "said"),
    [
        ("a[ by {size_bytes}] b", {"size_bytes": GIB}, "a by 1.00 GiB b"),
        ("a[ by {size_bytes}] b", {}, "a b"),
        ("[{known}][nothing]", {"known": "it"}, "it"),
        ("[{known}][nothing]", {}, "nothing"),
        (
            "{max_model_len} {max_model_len:raw} {port}",
            {"max_model_len": 32768, "port": 29501},
            "32,768 32768 29501",
        ),
        ("{gone}", {}, "?"),
        ("env: {A: 1}", {}, "env: {A: 1}"),
        ("[{text}]", {"text": "[red]{max_model_len}"}, "[red]{max_model_len}"),
    ],
)
def test_a_template_leaves_out_what_is_unknown(template: str, figures: dict[str, Any], said: str) -> None:
    assert filled(template, figures) == said


@pytest.mark.parametrize(
    ("subject", "command"),
    [
        ({"deployment": "tiny"}, "gpuplan logs tiny"),
        ({"deployment": "tiny", "saved": "/state/tiny/1"}, "less /state/tiny/1/*.log"),
    ],
)
def test_the_way_to_the_logs_is_where_they_are(subject: dict[str, str], command: str) -> None:
    """After a deploy was taken back there are no containers whose logs could be asked for."""
    fact = Fact(code="GP799", severity=Severity.ERROR, subject={"host": "a", **subject}, figures={})
    assert command in (word(fact).hint or "")

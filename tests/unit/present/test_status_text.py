"""`gpuplan status` for people: rows and details that fit 80 columns, say what is wrong, and obey nobody's control characters."""

from dataclasses import replace
from typing import Any

import pytest

from gpuplan.domain.deployment import Actual, ContainerRole, Deployment, Load, Member, Prediction, State
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Host, HostFailure, HostStatus
from gpuplan.present.deploy_findings_lifecycle import WORDS
from gpuplan.present.deploy_rulebook_lifecycle import PAGES
from gpuplan.present.document import text_of
from gpuplan.present.findings import word
from gpuplan.present.rulebook import PAGES as ALL_PAGES
from gpuplan.present.status_document import status_document
from gpuplan.present.status_text import deployment_text, duration, status_text
from gpuplan.present.stop_text import intent_text, outcome_text
from gpuplan.units import GIB

LEADER = Member(
    host="h100-a",
    container="gpuplan-qwen3-32b-n0",
    role=ContainerRole.LEADER,
    state="running",
    gpus=("GPU-1", "GPU-2"),
    gpu_indexes=(0, 1),
)
FOLLOWER = replace(
    LEADER, host="h100-b", container="gpuplan-qwen3-32b-n1", role=ContainerRole.FOLLOWER, rank=1
)
RUNNING = Deployment(
    name="qwen3-32b",
    state=State.RUNNING,
    model="Qwen/Qwen3-32B",
    served_name="qwen3-32b",
    endpoint="http://10.10.100.11:40000",
    endpoints=("http://10.10.100.11:40000",),
    image="vllm/vllm-openai:v0.33.0",
    vllm_version="0.33.0",
    members=(LEADER, FOLLOWER),
    predicted=Prediction(weights_bytes=61 * GIB, kv_cache_bytes=8 * GIB, kv_cache_tokens=60000, per_gpu_bytes=73 * GIB),
    actual=Actual(
        weights_bytes=round(61.25 * GIB),
        kv_cache_bytes=round(7.5 * GIB),
        kv_cache_tokens=56250,
        used_bytes=(("h100-a", 0, 72 * GIB),),
    ),
    load=Load(running=3, waiting=2, kv_cache_share=0.125, requests=1234),
    uptime_seconds=9000,
)  # fmt: skip
SILENT = Host(
    name="h2",
    address="10.0.0.2",
    status=HostStatus.UNREACHABLE,
    failure=HostFailure(stage="connect", detail="no route to the host"),
)


def fits(text: str, width: int = 80) -> str:
    assert [row for row in text.splitlines() if len(row) > width] == []
    assert "\x1b" not in text
    return text


def test_a_row_says_what_runs_where() -> None:
    text = fits(text_of(status_text([(RUNNING, ())], (), 2, 80)))
    assert text.splitlines() == [
        "deployment  state       endpoint                    requests     cache        up",
        "qwen3-32b   running     http://10.10.100.11:40000   3 + 2 wait   12 %      2.5 h",
        "  Qwen/Qwen3-32B on h100-a:0-1, h100-b:0-1",
        "",
        "1 deployment on 2 hosts",
    ]


def test_a_silent_host_is_always_told() -> None:
    text = fits(text_of(status_text([], [SILENT], 1, 80)))
    assert "h2 – connect: no route to the host" in text
    assert "ssh -v 10.0.0.2" in text
    assert "1 host did not answer: what runs there is not known" in " ".join(text.split())
    engine = replace(SILENT, failure=HostFailure(stage="docker", detail="Docker does not answer"))
    assert "gpuplan check --host h2" in text_of(status_text([], [engine], 0, 80))


def test_all_there_is_to_say() -> None:
    text = fits(text_of(deployment_text(RUNNING, (), (), 80)))
    rows = [row.split() for row in text.splitlines()]
    assert ["weights", "61.00", "GiB", "61.25", "GiB", "+0.25", "GiB", "(+0.4", "%)"] in rows
    assert ["KV", "cache", "(least)", "8.00", "GiB", "7.50", "GiB", "-0.50", "GiB", "(-6.2", "%)"] in rows
    assert ["KV", "cache", "tokens", "60,000", "56,250", "-3,750", "(-6.2", "%)"] in rows
    assert "h100-a GPU 0: 72.00 GiB in use now of 73.00 GiB booked" in text
    assert "3 requests running, 2 waiting, KV cache 12.5 % in use, 1,234 served" in text
    assert "gpuplan logs qwen3-32b -f" in text


@pytest.mark.parametrize("less", [0, 1, 3 * 1024**2])
def test_a_difference_that_rounds_to_nothing_has_no_minus(less: int) -> None:
    predicted = replace(RUNNING.predicted, max_concurrency=8.0)
    actual = Actual(
        weights_bytes=61 * GIB - less, kv_cache_bytes=8 * GIB, kv_cache_tokens=60000, max_concurrency=7.999
    )
    seen = replace(RUNNING, predicted=predicted, actual=actual)
    rows = [row.split() for row in text_of(deployment_text(seen, (), (), 80)).splitlines()]
    assert ["weights", "61.00", "GiB", "61.00", "GiB", "+0.00", "GiB", "(+0.0", "%)"] in rows
    assert ["KV", "cache", "tokens", "60,000", "60,000", "+0", "(+0.0", "%)"] in rows
    assert ["requests", "at", "once", "8.0", "8.0", "+0.0", "(+0.0", "%)"] in rows


def test_why_it_is_not_running() -> None:
    failed = replace(
        RUNNING,
        state=State.ERROR,
        message="follower 1 on h100-b ended with exit code 1",
        members=(LEADER, replace(FOLLOWER, state="exited", exit_code=1)),
        actual=None,
        load=None,
        uptime_seconds=None,
    )
    text = fits(text_of(deployment_text(failed, (), [SILENT], 80)))
    assert "follower 1 on h100-b ended with exit code 1" in text
    assert "exited 1" in text
    fact = Fact(
        code="GP851",
        severity=Severity.WARNING,
        subject={"deployment": "qwen3-32b"},
        figures={"containers": ["c on h100-a"]},
    )
    text = fits(text_of(status_text([(failed, (fact,))], (), 2, 80)))
    assert "warning: 1 container of another deploy of qwen3-32b: c on h100-a [GP851]" in text
    assert "gpuplan stop qwen3-32b removes everything" in " ".join(text.split())


def test_texts_of_hosts_are_never_markup() -> None:
    evil = "\x1b[31mred\x1b[0m [bold]\u202e"
    member = replace(LEADER, host=evil, container=evil, message=evil, state=evil)
    odd = replace(
        RUNNING, name=evil, model=evil, endpoint=evil, endpoints=(evil,), members=(member,), message=evil
    )
    for text in (
        text_of(status_text([(odd, ())], (), 1, 80)),
        text_of(deployment_text(odd, (), (), 80)),
        text_of(intent_text(odd, [(evil, evil, evil)], [evil], 30, 80)),
        text_of(outcome_text(evil, [(evil, evil)], (), (), 80)),
    ):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "[bold]" in text


def test_an_empty_deployment_is_told() -> None:
    bare = Deployment(name="x", state=State.PREPARING)
    fits(text_of(status_text([(bare, ())], (), 1, 80)))
    fits(text_of(deployment_text(bare, (), (), 80)))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "–"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2.0 h"), (400000, "5 d")],
)
def test_durations(seconds: int | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize("code", sorted(WORDS))
@pytest.mark.parametrize("given", [{}, {"deployment": "x", "host": "h", "container": "c", "gpu": 0}])
def test_every_finding_has_words_and_a_page_whatever_is_missing(code: str, given: dict[str, Any]) -> None:
    finding = word(Fact(code=code, severity=Severity.WARNING, subject=given, figures={}))
    assert finding.headline
    assert ALL_PAGES[code] in PAGES


def test_what_a_stop_will_end_is_shown() -> None:
    text = fits(
        text_of(intent_text(RUNNING, [("h100-a", "gpuplan-qwen3-32b-n0", "running")], ["h2"], 30, 80))
    )
    assert "3 requests in flight and 2 waiting: they have 30 s to end" in text
    assert "h2 does not answer: what runs there goes on" in text
    assert "they are cut off" in text_of(intent_text(RUNNING, [], [], 0, 80))


def test_the_document_names_deployments_and_silent_hosts() -> None:
    document = status_document([(RUNNING, ())], [SILENT])
    assert document.schema_version == 1
    assert document.deployments[0].load is not None
    assert document.deployments[0].load.running == 3
    assert [(one.name, one.stage) for one in document.silent_hosts] == [("h2", "connect")]

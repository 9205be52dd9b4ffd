"""Rows of the fleet: the same columns for every name and width, the bar and the words of who holds what."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu, GpuProcess, Host, HostFailure, HostStatus
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.planning.allocatable import account, ours_by_gpu, ours_on
from gpuplan.present import age
from gpuplan.present.document import Line, Role, text_of, width_of
from gpuplan.present.fleet_rows import (
    HostLook,
    columns,
    gpu_line,
    header,
    health_of,
    host_line,
    markable,
    memory_bar,
    owner_words,
    status_of,
)
from gpuplan.present.fleet_status import fleet_words, progress_words, source_words
from gpuplan.present.host_detail import Seen, gpu_detail, host_detail
from gpuplan.present.steady import steady
from gpuplan.units import GIB
from tests.fleets import host, probed_fleet

NOW = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
WIDTHS = (60, 75, 76, 79, 80, 97, 98, 99, 119, 120, 159, 160, 200, 300)
HOSTILE = ("a", "n" * 300, "主机" * 40, "[red]\x1b[31m", "क्षि\u200b\u202e", "❤\ufe0f🇩🇪")


def text(row: Line) -> str:
    return text_of((row,))


def shared() -> Host:
    """GPU 0 has a deployment of ours that is still to grow, alice's program, a reserve, and 3 GiB nobody owns."""
    made = host("h1", "H100", 2, free={0: 60.0})
    processes = (
        GpuProcess(pid=4242, name="/usr/bin/python -m train", used_bytes=9 * GIB, user="alice"),
        GpuProcess(pid=12, name="vllm", used_bytes=4 * GIB, container="gpuplan-qwen-0"),
    )
    ours = OurContainer(
        id="1" * 64,
        name="gpuplan-qwen-0",
        deployment="qwen",
        state="running",
        gpus=("GPU-0",),
        claims=(("GPU-0", 20 * GIB),),
    )
    first = replace(made.gpus[0], uuid="GPU-0", processes=processes, reserved_bytes=GIB)
    return replace(made, gpus=(first, made.gpus[1]), facts=HostFacts(docker=Docker(containers=(ours,))))


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_fit_and_have_one_shape_whatever_the_names(width: int) -> None:
    shape = columns(width, 300)
    ends = set()
    for name in HOSTILE:
        made = replace(shared(), name=name, link=name, labels=((name, name),))
        gpu = replace(made.gpus[0], name=name, utilization_percent=100, temperature_celsius=101)
        row, below = host_line(made, shape, HostLook(opened=True)), gpu_line(made, gpu, shape)
        assert sum(width_of(span.text) for span in row) <= width
        assert sum(width_of(span.text) for span in below) <= width
        ends.add(tuple(width_of(span.text) for span in (*row, *below)))
        failure = HostFailure(stage="connect", detail=name)
        failed = host_line(replace(made, status=HostStatus.UNREACHABLE, failure=failure), shape, HostLook())
        assert sum(width_of(span.text) for span in failed) <= width
    assert len(ends) == 1
    assert sum(width_of(span.text) for span in header(shape)) <= width


def test_wide_rows_say_more() -> None:
    made = replace(shared(), link="nvlink", labels=(("zone", "a"),))
    wide, narrow = columns(200, 4), columns(79, 4)
    assert "nvlink  zone=a" in text(host_line(made, wide, HostLook()))
    assert "nvlink" not in text(host_line(made, narrow, HostLook()))
    assert "qwen 20.0, python of alice 9.0, unknown 6.2, reserve 1.0" in text(
        gpu_line(made, made.gpus[0], wide)
    )
    assert "free 60.0 of 79.2 GiB" in text(gpu_line(made, made.gpus[0], wide))
    assert "60.0/79.2 GiB free" in text(gpu_line(made, made.gpus[0], columns(60, 4)))


def test_the_bar_is_split_by_owner() -> None:
    made = shared()
    books = account(made.gpus[0], ours_on(made.gpus[0], ours_by_gpu(made)), made)
    bar = memory_bar(books, 79)
    assert [(span.text[0], len(span.text)) for span in bar] == [("█", 20), ("▞", 15), ("░", 1), ("·", 43)]
    assert next(iter(owner_words(books.held))) == "qwen 20.0", "ours first"
    for size in range(1, 60):
        assert sum(len(span.text) for span in memory_bar(books, size)) == size


def test_two_deployments_are_told_apart() -> None:
    made = shared()
    docker = made.facts.docker
    assert docker is not None
    second = replace(docker.containers[0], id="2" * 64, name="gpuplan-tiny-0", deployment="tiny")
    made = replace(made, facts=HostFacts(docker=Docker(containers=(*docker.containers, second))))
    row = gpu_line(made, made.gpus[0], columns(200, 4))
    assert "█" in text(row)
    assert "▓" in text(row)


def test_unknown_memory_is_never_a_bar() -> None:
    made = host("h1", "H100", 1)
    row = text(gpu_line(made, replace(made.gpus[0], total_bytes=None), columns(100, 4)))
    assert "memory unknown" in row
    assert "·" not in row


def fact(code: str, severity: Severity, **subject: object) -> Fact:
    return Fact(code=code, severity=severity, subject={"host": "h1", **subject}, figures={})


def test_health_tells_why_a_gpu_is_not_used_or_what_is_wrong() -> None:
    conditions = (
        fact("GP614", Severity.WARNING, gpu=1),
        fact("GP611", Severity.ERROR, gpu=1),
        fact("GP613", Severity.ERROR, gpu=1),
        fact("GP608", Severity.ERROR, gpu=2),
        fact("GP622", Severity.ERROR),
    )
    made = replace(host("h1", "H100", 4), facts=HostFacts(conditions=conditions))
    words = [health_of(made, gpu, {}).text for gpu in made.gpus]
    assert words == ["ok", "GP611 +1", "lost", "ok"]
    assert health_of(made, replace(made.gpus[1], excluded=True), {}).text == "excluded"


def test_the_status_of_a_host() -> None:
    fine = host("h1", "H100", 1)
    ill = replace(
        fine, facts=HostFacts(conditions=(fact("GP622", Severity.ERROR), fact("GP633", Severity.WARNING)))
    )
    assert status_of(fine, HostLook()).text == "ok"
    assert (status_of(ill, HostLook()).text, status_of(ill, HostLook()).role) == ("1 error", Role.BAD)
    assert status_of(fine, HostLook(old="34 s old")).text == "34 s old"
    assert status_of(ill, HostLook(waiting=True)).text == "waiting"
    assert status_of(fine, HostLook(unread=True)).text == "not read"


def test_what_marking_a_host_marks() -> None:
    card = Gpu(index=0, name="A100")
    slices = tuple(Gpu(index=index, name="A100", parent=0, profile="1g.10gb") for index in (2, 3))
    made = Host(name="h", gpus=(card, Gpu(index=1, name="A100", excluded=True), *slices))
    assert markable(made) == (2, 3)


def test_words_on_a_reading() -> None:
    assert progress_words(40, 26, 2) == "12 of 40 read, 2 failed, 26 waiting"
    assert progress_words(40, 40, 0) == "0 of 40 read, 40 waiting"
    assert fleet_words(probed_fleet().hosts) == "2 hosts, 2 GPUs, 1 failed"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("live", "live, 2 s ago"),
        ("snapshot", "snapshot f.json, taken 3 h ago"),
        ("declared", "declared in f.json, not read"),
        ("demo", "DEMO, 2 s ago"),
    ],
)
def test_words_on_the_source(kind: str, words: str) -> None:
    earlier = NOW - timedelta(hours=3)
    live = {"a": NOW - timedelta(seconds=2)} if kind in ("live", "demo") else {}
    assert source_words(kind, "f.json", NOW, read_at={"a": earlier}, live_at=live) == words


def test_a_source_nobody_dated() -> None:
    assert source_words("snapshot", "f", NOW, read_at={}, live_at={}) == "snapshot f, of unknown age"
    assert source_words("live", "f", NOW, read_at={}, live_at={}) == "live, not read yet"
    assert age.ago(NOW + timedelta(hours=1), NOW) == "0 s ago"


def test_steady_text_has_no_character_of_disputed_width() -> None:
    assert steady("plain [x]") == "plain [x]"
    assert steady("❤\ufe0f") == "❤"
    assert steady("क्षि\x1b") == "क्ष��"
    assert steady("主机") == "主机"


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_host_in_full_fits_and_tells_everything(width: int) -> None:
    first, lost = probed_fleet().hosts
    seen = Seen(now=NOW, read_at=NOW - timedelta(minutes=5), live_at=NOW - timedelta(seconds=2))
    whole = text_of(host_detail(first, width, seen, HostLook()))
    if width >= 80:
        assert all(width_of(row) <= width for row in whole.splitlines())
    flat = " ".join(whole.split())
    for part in (
        "5 min ago",
        "2 s ago",
        "[GP622]",
        "because:",
        "hint: sudo usermod",
        "NV18",
        "NUMA node 0",
        "29.0.1",
        "vLLM 0.33.0",
        "model dir",
        "data interface",
        "MTU 9000",
        "InfiniBand",
        "3.00 GiB available of 4.00 GiB",
        "team=acme-research",
        "of host memory",
        "secret-project",
        "580.82.07",
    ):
        assert part in flat, part
    down = " ".join(text_of(host_detail(lost, width, seen, HostLook())).split())
    assert "login refused – authenticate: alice@gpu2" in down
    assert "hint: put your public key there: ssh-copy-id" in down


def test_a_gpu_in_full() -> None:
    first, _ = probed_fleet().hosts
    seen = Seen(now=NOW, kind="declared")
    page = text_of(gpu_detail(first, 0, 100, seen, HostLook()))
    for part in (
        "GPU-5f0cc8a1",
        "0000:17:00.0, NUMA node 0",
        "pid 4242",
        "to GPU 1",
        "never: the inventory declares it",
    ):
        assert part in page
    assert "MIG 1g.10gb of GPU 0" in text_of(gpu_detail(first, 1, 100, seen, HostLook()))
    assert text_of(gpu_detail(first, 99, 100, seen, HostLook())) == text_of(
        host_detail(first, 100, seen, HostLook())
    )

"""What `gpuplan check` prints, whole: a ladder in every colour, as a table of 80 columns and as data.

`GPUPLAN_UPDATE_GOLDEN=1 pytest tests/golden/test_check.py` writes the files anew; the diff is then read like code.
"""

import json
from dataclasses import replace

import pytest

from gpuplan.domain.fact import Severity
from gpuplan.planning.preflight_measures import (
    GpuTest,
    GpuTestOutcome,
    Measured,
    ModelFiles,
    PortState,
    PortTest,
    Reach,
    Reachability,
    ReachOutcome,
)
from gpuplan.planning.preflight_report import Preflight, Status
from gpuplan.present.check_document import check_document
from gpuplan.present.check_text import WORDS, check_text
from gpuplan.present.check_words import WORDS as RUNG_WORDS
from gpuplan.present.document import text_of, width_of
from gpuplan.units import GIB
from tests.golden.test_cli import compare
from tests.preflights import BUILD, DOCKER, FACTS, FREE, MODEL, host, judged, lost, state, wanted


def well() -> Preflight:
    seen = ("GPU-h1-0", "GPU-h1-1")
    measures = {
        "h1": replace(FREE, gpu_test=GpuTest(outcome=GpuTestOutcome.SEEN, image=BUILD.tags[0], uuids=seen))
    }
    return judged(host("h1"), measured=Measured(hosts=measures))


def mixed() -> Preflight:
    """One host with faults, one with worse, one that is not reached."""
    files = ModelFiles(
        path="/data/models/Qwen/Qwen3-32B",
        revision="9216db5781bf21249d130ec9da846c4624c16137",
        files=(("config.json", 728), ("model-00001-of-00002.safetensors", 31 * GIB)),
    )
    first = host(
        "h1",
        driver_version="570.133.20",
        ephemeral_ports=(32768, 60999),
        conditions=(
            state("GP611", Severity.WARNING, {"gpu": 1}, count=4),
            state("GP624", Severity.INFO),
        ),
    )
    second = host(
        "h2",
        driver_version="470.256.02",
        clock_offset_seconds=-42.0,
        docker=replace(DOCKER, images=(), gpu_support=False),
        disks=tuple(replace(disk, free_bytes=20 * GIB) for disk in FACTS.disks),
        interfaces=(replace(FACTS.interfaces[1], mtu=1500, addresses=("10.0.0.2/24",)),),
        conditions=(state("GP626", Severity.ERROR),),
    )
    second = replace(second, gpus=tuple(replace(gpu, name="NVIDIA GeForce RTX 4090") for gpu in second.gpus))
    busy = ((40000, PortState.BOUND), (40003, PortState.LISTENING))
    there = Reach(
        source="h1",
        target="h2",
        address="10.0.0.2",
        port=40000,
        outcome=ReachOutcome.TIMED_OUT,
        detail="timed out",
    )
    back = replace(
        there, source="h2", target="h1", address="10.0.0.1", outcome=ReachOutcome.REACHED, milliseconds=0.31
    )
    measured = Measured(
        hosts={
            "h1": replace(FREE, model=files, ports=PortTest(tool="python3", busy=busy)),
            "h2": replace(FREE, gpu_test=GpuTest(outcome=GpuTestOutcome.NO_IMAGE)),
        },
        reachability=Reachability(tries=(there, back), pairs=2),
    )
    gone = lost("h3", "authenticate", "the server accepts none of: agent (2 keys), ~/.ssh/id_ed25519")
    return judged(first, second, gone, asked=wanted(model=MODEL), measured=measured)


REPORTS = {"check": well, "check-mixed": mixed}


@pytest.mark.parametrize("name", REPORTS)
def test_the_table(name: str) -> None:
    compare(name, text_of(check_text(REPORTS[name](), 80)) + "\n")


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [80, 120, 300])
def test_no_line_is_wider_than_asked(name: str, width: int) -> None:
    lines = text_of(check_text(REPORTS[name](), width)).splitlines()
    assert [row for row in lines if width_of(row) > width] == []


def test_the_document() -> None:
    compare("check-json", json.dumps(check_document(mixed()), indent=1, ensure_ascii=False) + "\n")


def test_the_document_says_what_the_table_says() -> None:
    report = mixed()
    document = json.loads(json.dumps(check_document(report)))
    assert document["ok"] is False
    assert [item["name"] for item in document["hosts"]] == ["h1", "h2", "h3"]
    assert [item["status"] for item in document["hosts"]] == ["red", "red", "red"]
    table = " ".join(text_of(check_text(report, 300)).split())
    told = [
        rung
        for part in (*(item["rungs"] for item in document["hosts"]), document["across"])
        for rung in part
        if rung["reason"] != "unreached" or rung["name"] == "ssh"
    ]
    for rung in told:
        assert " ".join(rung["headline"].split()) in table
        if rung["fix"] and rung["status"] in {"amber", "red"}:
            assert " ".join(rung["fix"].split()) in table
    assert {rung["status"] for rung in told} == {status.value for status in Status}


def test_every_status_is_a_word() -> None:
    assert set(WORDS) == set(Status)
    assert len({word for word, _ in WORDS.values()}) == len(Status)


def test_a_red_or_amber_rung_has_a_way_out() -> None:
    for report in (well(), mixed()):
        for part in (*check_document(report)["hosts"], {"rungs": check_document(report)["across"]}):
            for rung in part["rungs"]:
                assert rung["status"] not in {"amber", "red"} or rung["fix"], rung


def test_text_of_a_host_is_text() -> None:
    nasty = lost("h\x1b[31m1", "connect", "bad \x1b]0;title\x07 [bold]news\u202e")
    text = text_of(check_text(judged(nasty), 80))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]news" in text


def test_the_tables_of_words_share_no_reason() -> None:
    assert all(reason.isidentifier() for reason in RUNG_WORDS)

"""Deployments a line each: columns that fit, nothing that moves the cursor, and what has no room below."""

from dataclasses import replace

import pytest

from gpuplan.domain.deployment import Load, State
from gpuplan.domain.events import Phase, PhaseStarted, Transfer
from gpuplan.present.document import Line, text_of, width_of
from gpuplan.present.event_words import event_line
from gpuplan.present.outcome_text import question_command
from gpuplan.present.status_rows import (
    BAR,
    GLYPHS,
    address_text,
    columns,
    deployment_line,
    header_line,
    hosts_text,
    keep_alive_text,
    more_text,
    restart_text,
    restarted_words,
    run_line,
)
from gpuplan.present.stop_text import leaving_changes_text
from tests.unit.present.test_status_text import LEADER, RUNNING, SILENT, fits

LONG = replace(
    RUNNING,
    name="meta-llama-llama-3-3-70b-instruct-fp8",
    endpoint="http://a-long-name.of-a-host.example.org:40000",
)
HOSTILE = replace(
    RUNNING, name="\x1b[31m[red]\u202e宽宽宽宽宽宽宽宽", endpoint="http://宽:1", model="\x07[/]"
)


def text(line: Line) -> str:
    return text_of((line,))


def cells(line: Line) -> int:
    return sum(width_of(span.text) for span in line)


@pytest.mark.parametrize("width", [60, 76, 78, 100, 118, 200])
def test_all_lines_of_a_list_are_as_wide_as_it_is(width: int) -> None:
    shown = (RUNNING, LONG, HOSTILE)
    fitted = columns([one.name for one in shown], [address_text(one) for one in shown], width)
    lines = [header_line(fitted), *(deployment_line(one, fitted) for one in shown)]
    assert len({cells(line) for line in lines}) == 1
    assert cells(lines[0]) <= max(width, 76)
    assert cells(run_line("n", "w" * 300, fitted)) <= max(width, 76)
    for line in lines:
        assert "\x1b" not in text(line)
        assert "\u202e" not in text(line)


def test_a_line_says_it_all() -> None:
    fitted = columns([RUNNING.name], [address_text(RUNNING)], 150)
    words = text(deployment_line(RUNNING, fitted))
    assert words.split() == [
        "qwen3-32b", "●", "running", "10.10.100.11:40000", "3", "+", "2", "wait", "█░░░", "12", "%", "2.5", "h",
        "Qwen/Qwen3-32B", "on", "h100-a:0-1,", "h100-b:0-1",
    ]  # fmt: skip
    assert text(header_line(fitted)).split()[:2] == ["deployment", "state"]


def test_every_state_has_a_glyph_of_its_own() -> None:
    assert set(GLYPHS) == set(State)
    assert len(set(GLYPHS.values())) == len(GLYPHS)


@pytest.mark.parametrize(
    ("share", "bar"),
    [(0.0, "░░░░   0 %"), (0.01, "█░░░   1 %"), (0.5, "██░░  50 %"), (1.0, "████ 100 %"), (7.0, "████")],
)
def test_the_bar_of_the_cache(share: float, bar: str) -> None:
    fitted = columns(["n"], [], 100)
    words = text(deployment_line(replace(RUNNING, load=Load(kv_cache_share=share)), fitted))
    assert bar in words
    assert words.count("█") + words.count("░") == BAR


def test_what_has_no_room_stands_below() -> None:
    two = replace(
        RUNNING, endpoints=("http://a:1", "http://b:1"), state=State.UNHEALTHY, message="it is [not] well"
    )
    words = fits(text_of(more_text(two, (), 80)))
    assert "qwen3-32b: Qwen/Qwen3-32B on h100-a:0-1, h100-b:0-1 and 1 endpoint more" in words
    assert "it is [not] well" in words


def test_hosts_that_did_not_answer_are_named() -> None:
    words = fits(text_of(hosts_text(2, [SILENT], 3, 80)))
    assert words.startswith("2 deployments on 3 hosts; 1 host did not answer")
    assert "h2 – connect: no route to the host" in words
    assert fits(text_of(hosts_text(0, [], 1, 80))) == "nothing is deployed on 1 host"


def test_keep_alive_is_told_with_what_changes_it() -> None:
    never = fits(text_of(keep_alive_text(replace(RUNNING, keep_alive_seconds=-1), 80)))
    assert "none, it runs until it is stopped" in never
    some = " ".join(fits(text_of(keep_alive_text(replace(RUNNING, keep_alive_seconds=600), 80))).split())
    assert "stops it after 10 min without requests" in some
    assert "gpuplan deploy Qwen/Qwen3-32B --name qwen3-32b --keep-alive SECONDS" in some


def test_a_restart_says_what_it_does() -> None:
    words = " ".join(fits(text_of(restart_text(RUNNING, 90, 80))).split())
    assert "h100-a: gpuplan-qwen3-32b-n0 (running)" in words
    assert "3 requests in flight: they have 90 s to end" in words
    assert "answers nothing until the model is loaded again" in words
    assert "they are cut off" in text_of(restart_text(RUNNING, 0, 80))
    idle = replace(RUNNING, load=Load(running=0), members=(LEADER,))
    assert "in flight" not in text_of(restart_text(idle, 0, 80))


def test_a_restart_ends_with_every_address() -> None:
    assert restarted_words(RUNNING) == "qwen3-32b serves again at http://10.10.100.11:40000"
    two = replace(RUNNING, endpoints=("http://a:1", "http://b:1"))
    assert restarted_words(two) == "qwen3-32b serves again at http://a:1, http://b:1"
    assert restarted_words(replace(RUNNING, endpoint=None, endpoints=())).endswith("at its address")


def test_leaving_says_what_it_breaks_off() -> None:
    words = " ".join(fits(text_of(leaving_changes_text(["restart qwen3"], 80))).split())
    assert "Under way: restart qwen3." in words
    assert "containers may be left stopped" in words


def test_a_request_to_paste_is_one_line_that_a_shell_takes() -> None:
    import shlex

    command = question_command(replace(RUNNING, served_name="it's; rm -rf \x1b[0m"))
    assert command is not None
    assert "\n" not in command
    assert "\x1b" not in command
    words = shlex.split(command)
    assert words[:2] == ["curl", "http://10.10.100.11:40000/v1/completions"]
    assert len(words) == 6
    assert question_command(replace(RUNNING, endpoint=None)) is None


def test_events_of_no_known_time_have_their_line() -> None:
    assert event_line(
        PhaseStarted(phase=Phase.STOP, awaits="3 [containers]\x1b to end", deadline_seconds=60)
    ) == ("stop, waiting for 3 [containers]� to end (at most 60 s)")
    line = event_line(Transfer(phase=Phase.IMAGE, host="a", done_bytes=1, total_bytes=2))
    assert line is not None
    assert line.startswith("a: ")

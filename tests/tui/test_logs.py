"""Logs on the screen: any text, any number of lines, followed, searched, filtered, saved; the reader ends with it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from gpuplan.domain.deployment import Member
from gpuplan.errors import NoDeployment, UsageError
from gpuplan.operations.logs import LogChoice, Printed
from gpuplan.present.document import width_of
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.screens.confirm import PromptScreen
from gpuplan.tui.screens.logs import LogReader, LogsScreen
from gpuplan.tui.widgets.log_rows import LogLines, LogRows
from tests.tui.deploy_apps import until
from tests.tui.deploys import FOLLOWER, LEADER, DeployServices
from tests.tui.screen import shown

HOSTILE = (
    "[red]no [/markup] here[/foo]",
    "a\x1b[31mred\x1b[0m \x1b]0;title\x07 bell\x07",
    "tab\there and \r\n carriage",
    "宽字符 wide 한",
    "zero\u200bwidth \u202eright to left\u202c e\u0301",
)


def printed(text: str, number: int = 0, *, follower: bool = False) -> Printed:
    member = FOLLOWER if follower else LEADER
    return Printed(member=member, at=f"2026-11-22T01:00:{number % 60:02}.250000000Z", text=text, error=False)


@pytest.fixture
def services() -> Iterator[DeployServices]:
    made = DeployServices()
    yield made
    made.logs_hold.set()


async def opened(pilot: Pilot[None], app: GpuplanApp, lines: int) -> LogsScreen:
    app.open_logs("qwen3")
    await until(pilot, lambda: bool(app.screen.query(LogRows)))
    screen = app.screen
    assert isinstance(screen, LogsScreen)
    await until(pilot, lambda: screen.rows.lines.total >= lines)
    return screen


def rows(app: GpuplanApp) -> list[str]:
    """The log's rows on screen, without the scrollbar."""
    return [row[:60].rstrip() for row in shown(app).split("\n")[2:20]]


async def test_hostile_text_is_shown_and_harmless(services: DeployServices) -> None:
    services.printed = [printed(text) for text in HOSTILE]
    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app, len(HOSTILE))
        text = shown(app)
        assert "[red]no [/markup] here[/foo]" in text
        assert "宽字符 wide" in text
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
        assert all(width_of(row) <= 80 for row in text.split("\n"))


async def test_a_hundred_thousand_lines(services: DeployServices) -> None:
    services.printed = [printed(f"line {number} of [many]", number) for number in range(100_000)]
    app = GpuplanApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot, app, 100_000)
        assert "line 99999 of [many]" in shown(app)
        assert "100,000 lines" in shown(app)
        assert screen.rows.following
        await pilot.press("up")
        await pilot.pause()
        assert not screen.rows.following
        assert "paused" in shown(app)
        await pilot.press("home")
        await until(pilot, lambda: "line 0 of" in shown(app))
        await pilot.press("f")
        await until(pilot, lambda: "line 99999 of" in shown(app))
        assert screen.rows.following


async def test_going_up_pauses_and_new_lines_do_not_move_it(services: DeployServices) -> None:
    services.printed = [printed(f"line {number}") for number in range(200)]
    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, app, 200)
        await pilot.press("pageup", "pageup")
        await pilot.pause()
        before = rows(app)
        screen.rows.append([printed(f"later {number}") for number in range(50)])
        await pilot.pause()
        assert rows(app) == before
        await pilot.press("end")
        await until(pilot, lambda: "later 49" in shown(app))
        assert screen.rows.following
        screen.rows.append([printed("the newest")])
        await until(pilot, lambda: "the newest" in shown(app))


async def test_search_goes_up_then_on(services: DeployServices) -> None:
    services.printed = [
        printed(f"line {number}" + (" NEEDLE" if number in {5, 50} else "")) for number in range(100)
    ]
    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, app, 100)
        await pilot.press("slash", *"needle", "enter")
        await until(pilot, lambda: screen.rows.cursor == 50)
        await pilot.press("N")
        await until(pilot, lambda: screen.rows.cursor == 5)
        await pilot.press("n")
        await until(pilot, lambda: screen.rows.cursor == 50)
        await pilot.press("n")
        await until(pilot, lambda: screen.rows.cursor == 5)
        await pilot.press("escape")
        assert app.screen is screen
        assert screen.rows.lines.found == ""
        await pilot.press("escape")
        assert app.screen is not screen


async def test_what_is_nowhere_is_said(services: DeployServices) -> None:
    services.printed = [printed("one"), printed("two")]
    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await opened(pilot, app, 2)
        await pilot.press("slash", *"[red]", "enter")
        await until(pilot, lambda: any("no line has [red]" in one.message for one in app._notifications))


async def test_members_and_times(services: DeployServices) -> None:
    services.printed = [printed("from one"), printed("from two", follower=True), "h2: connecting again"]
    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, app, 3)
        assert "h100-a/leader" in shown(app)
        assert "h2: connecting again" in shown(app)
        await pilot.press("t")
        await until(pilot, lambda: "01:00:00.250" in shown(app))
        await pilot.press("m")
        await until(pilot, lambda: "from two" not in shown(app))
        assert "2 of 3 lines, h100-a/leader alone" in shown(app)
        screen.rows.append([printed("again one"), printed("again two", follower=True)])
        await until(pilot, lambda: "again one" in shown(app))
        assert "again two" not in shown(app)
        await pilot.press("m", "m")
        await until(pilot, lambda: "again two" in shown(app))


async def test_saving_asks_where_and_writes_over_nothing(
    services: DeployServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    services.printed = [printed("one [x]"), printed("two", follower=True)]
    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await opened(pilot, app, 2)
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        assert app.screen.query_one(Input).value == str(tmp_path / "qwen3.log")
        await pilot.press("enter")
        await until(pilot, lambda: bool(app._notifications))
        saved = (tmp_path / "qwen3.log").read_text()
        assert saved.splitlines()[0].endswith("one [x]")
        assert (tmp_path / "qwen3.log").stat().st_mode & 0o077 == 0
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        await pilot.press("enter")
        await until(pilot, lambda: any("is there already" in one.message for one in app._notifications))
        assert (tmp_path / "qwen3.log").read_text() == saved


async def test_a_line_is_copied(services: DeployServices) -> None:
    services.members = (LEADER,)
    services.printed = [printed("first"), printed("second [line]")]
    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app, 2)
        await pilot.press("y")
        assert app.clipboard == "second [line]"


async def test_leaving_ends_the_reader(services: DeployServices) -> None:
    services.printed = [printed("one")]
    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app, 1)
        await pilot.press("escape")
        await until(pilot, services.logs_ended.is_set)


async def test_why_they_cannot_be_read(services: DeployServices) -> None:
    services.logs_error = UsageError("there is no deployment [x]", hint="gpuplan status")
    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app, 1)
        await until(pilot, lambda: "not read" in shown(app))
        assert "there is no deployment [x]" in shown(app)
        assert "hint: gpuplan status" in shown(app)


async def test_logs_of_a_deploy_that_has_no_container_yet_are_waited_for(services: DeployServices) -> None:
    services.printed = [printed("the first line")]
    early: list[NoDeployment] = [NoDeployment("there is no deployment qwen3")]

    class Early(DeployServices):
        def logs(
            self,
            name: str,
            choice: LogChoice,
            begin: Callable[[Sequence[Member]], Callable[[Printed], None]],
            talk: Callable[[str], None],
            stop: Event,
        ) -> None:
            if early:
                raise early[0]
            services.logs(name, choice, begin, talk, stop)

    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = LogsScreen("qwen3", Early(), coming=lambda: True)
        await app.push_screen(screen)
        await until(pilot, lambda: "no container yet" in shown(app))
        early.clear()
        await until(pilot, lambda: "the first line" in shown(app))
        assert "following" in shown(app)


async def test_the_end_is_told(services: DeployServices) -> None:
    services.printed = [printed("one")]
    services.logs_hold.set()
    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app, 2)
        assert "every member has ended" in shown(app)
        assert "ended" in shown(app).split("\n")[1]


def test_a_ring_of_lines_keeps_numbers_and_filters() -> None:
    lines = LogLines(most=100)
    lines.meet((LEADER, FOLLOWER))
    lines.show_only(FOLLOWER)
    for start in range(0, 300, 30):
        lines.add([printed(str(n), follower=n % 3 == 0) for n in range(start, start + 30)])
    assert lines.total <= 100
    assert lines.dropped + lines.total == 300
    assert all(lines.number(index) % 3 == 0 for index in range(len(lines)))
    assert [lines.index(lines.key(index)) for index in range(len(lines))] == list(range(len(lines)))
    assert lines.index(0) is None
    lines.show_only(None)
    assert len(lines) == lines.total
    assert lines.text(0).endswith(str(lines.dropped))


def test_a_batch_larger_than_the_ring() -> None:
    lines = LogLines(most=10)
    assert lines.add([printed(str(n)) for n in range(35)])
    assert (lines.total, lines.dropped) == (10, 25)


def test_search_is_done_in_pieces() -> None:
    lines = LogLines()
    lines.add([printed(f"line {n}") for n in range(50)])
    lines.found = "line 49"
    assert lines.next_hit(0, 1, most=20) == (None, 20)
    assert lines.next_hit(40, 1, most=20) == (49, None)
    lines.found = "LINE 49"
    assert lines.next_hit(0, 1) == (None, None)
    assert lines.next_hit(49, -1) == (None, None)


def test_who_reads_faster_than_is_shown_waits(services: DeployServices) -> None:
    services.printed = [printed("x")] * 150_000
    services.logs_hold.set()
    reader = LogReader(services, "qwen3", LogChoice(follow=True))
    reader.start()
    taken = 0
    while not reader.all_taken:
        taken += len(reader.take(20_000))
        assert len(reader._lines) <= 100_000
    assert taken == 150_000


def test_members_of_one_kind_are_told_apart() -> None:
    lines = LogLines()
    second = replace(FOLLOWER, rank=2)
    lines.meet((LEADER, FOLLOWER, second))
    assert len({lines.label(member) for member in lines.members}) == 3

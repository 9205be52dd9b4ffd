"""The fleet screen: reading, rows, folding, sorting, filtering, marking, live figures, quitting."""

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import pytest
from textual.widgets import Input

from gpuplan.domain.fleet import Fleet, Gpu, GpuProcess, HostFailure, HostStatus
from gpuplan.errors import NoHostError
from gpuplan.present.document import Line, text_of
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.fleet_rows import FleetRows
from gpuplan.tui.messages import FleetRead, HostRead, ReadingBegan, ReadingFailed
from gpuplan.tui.screens.host_detail import HostDetailScreen
from gpuplan.tui.services import OnGpus, OnHost, Source, SourceKind
from gpuplan.units import GIB
from tests.fleets import host, probed_fleet
from tests.tui.fakes import FakeServices
from tests.tui.fleet_apps import Clock, FleetApp, SlowServices, many, named, ready, until
from tests.tui.screen import shown

THREE = named(host("h100-a", "H100", 2), host("lab", "L40S", 1, free={0: 10.0}), host("h2", "A100", 4))
BROKEN = replace(
    host("down", "H100", 0),
    status=HostStatus.UNREACHABLE,
    failure=HostFailure(stage="connect", detail="connection refused [by 10.0.0.9]"),
)


def first_column(app: FleetApp) -> list[str]:
    """Host names in the order they are shown."""
    return list(app.fleet.source.names)


async def test_hosts_are_shown_as_they_answer() -> None:
    services = SlowServices(named(*THREE.hosts, BROKEN))
    seen: list[object] = []
    app = FleetApp(services)
    async with app.run_test(size=(80, 24), message_hook=seen.append) as pilot:
        await until(pilot, lambda: app.state.total == 4)
        assert app.state.waiting == {"h100-a", "lab", "h2", "down"}
        await pilot.pause()
        assert shown(app).count("waiting") == 5, "each host, and the line on the reading"
        services.let["h100-a"].set()
        await until(pilot, lambda: "1 of 4 read, 3 waiting" in shown(app))
        assert "2 × H100 80GB HBM3" in shown(app)
        services.let_all()
        await ready(pilot)
        text = shown(app)
        assert "4 hosts, 7 GPUs, 1 failed · live, 0 s ago" in text
        assert "unreachable  connect: connection refused [by 10.0.0.9]" in text
        kinds = [type(one) for one in seen if isinstance(one, (ReadingBegan, HostRead, FleetRead))]
        assert kinds == [ReadingBegan, *[HostRead] * 4, FleetRead]


async def test_answers_are_gathered_into_few_repaints() -> None:
    app = FleetApp(FakeServices(many(1000, 1)))
    changes = 0
    async with app.run_test(size=(80, 24)) as pilot:

        def count() -> None:
            nonlocal changes
            changes += 1

        app.fleet.watch(app, "state", count, init=False)
        await ready(pilot)
        assert len(app.state.fleet.hosts) == 1000
        assert changes < 40, "not one for each host"


async def test_a_reading_that_cannot_begin_says_so_and_can_be_tried_again() -> None:
    services = SlowServices(THREE)
    services.let_all()
    services.failure = NoHostError("there is no [inventory]", hint="gpuplan init writes one")
    app = FleetApp(services)
    seen: list[object] = []
    async with app.run_test(size=(80, 24), message_hook=seen.append) as pilot:
        await ready(pilot)
        text = shown(app)
        assert "there is no [inventory]" in text
        assert "gpuplan init writes one; R tries again" in text
        assert any(isinstance(one, ReadingFailed) for one in seen)
        services.failure = None
        await pilot.press("R")
        await ready(pilot)
        assert "h100-a" in shown(app)
        assert "no [inventory]" not in shown(app)


async def test_a_failed_rereading_keeps_what_is_known() -> None:
    services = SlowServices(THREE)
    services.let_all()
    app = FleetApp(services)
    async with app.run_test(size=(120, 24)) as pilot:
        await ready(pilot)
        services.failure = NoHostError("the inventory is [gone]")
        await pilot.press("R")
        await ready(pilot)
        assert "not read: the inventory is [gone]" in shown(app)
        assert first_column(app) == ["h100-a", "lab", "h2"]


async def test_one_host_is_read_again_and_what_was_waited_for_with_it() -> None:
    services = SlowServices(THREE)
    app = FleetApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        services.let["h100-a"].set()
        await until(pilot, lambda: "h100-a" in app.state.read_at)
        await pilot.press("r")
        await until(pilot, lambda: len(services.asked) == 2)
        assert services.asked == [(), ("h100-a", "lab", "h2")]
        services.let_all()
        await ready(pilot)
        await pilot.press("end", "r")
        await ready(pilot)
        assert services.asked[2] == ("h2",)
        assert services.cancelled == 3
        assert not app.state.waiting


async def test_a_reading_that_was_superseded_tells_nothing() -> None:
    services = SlowServices(THREE)
    app = FleetApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: services.asked)
        await pilot.press("R")
        await until(pilot, lambda: len(services.asked) == 2)
        app.post_message(HostRead(replace(THREE.hosts[0], gpus=()), serial=1))
        app.post_message(FleetRead(Fleet(hosts=()), serial=1))
        await pilot.pause()
        assert app.state.waiting == {"h100-a", "lab", "h2"}
        services.let_all()
        await ready(pilot)
        assert [len(one.gpus) for one in app.state.fleet.hosts] == [2, 1, 4]


async def test_quitting_waits_for_no_host() -> None:
    never = threading.Event()

    class Hanging(FakeServices):
        def read_fleet(self, on_host: OnHost, only: Sequence[str] = ()) -> Fleet:
            never.wait()
            raise AssertionError

    app = FleetApp(Hanging(THREE))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.state.reading)
        await pilot.press("q")
    assert app._exit
    assert not never.is_set()


async def test_hosts_are_folded_and_unfolded() -> None:
    app = FleetApp(FakeServices(THREE))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        rows = app.fleet.rows
        assert len(rows.source) == 10
        await pilot.press("down", "down", "left")
        assert rows.key == ("h100-a", None), "from a GPU to its host first"
        await pilot.press("left")
        assert len(rows.source) == 8
        await pilot.press("right")
        assert len(rows.source) == 10
        await pilot.press("down", "space")
        assert (len(rows.source), rows.key) == (8, ("h100-a", None))
        await pilot.press("c")
        assert len(rows.source) == 3
        await pilot.press("c")
        assert len(rows.source) == 10


async def test_a_click_moves_folds_and_opens() -> None:
    app = FleetApp(FakeServices(THREE))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        rows = app.fleet.rows
        await pilot.click(rows, offset=(0, 1))
        await pilot.pause()
        assert len(rows.source) == 8
        await pilot.click(rows, offset=(10, 3))
        await pilot.pause()
        assert rows.key == ("lab", 0)
        assert app.screen is app.screen_stack[0]
        await pilot.click(rows, offset=(10, 3))
        await pilot.pause()
        assert isinstance(app.screen, HostDetailScreen)


async def test_a_large_fleet_starts_folded() -> None:
    app = FleetApp(FakeServices(many(51, 2)))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        assert len(app.fleet.rows.source) == 51
        await pilot.press("right")
        assert len(app.fleet.rows.source) == 53


async def test_hosts_are_sorted_and_the_cursor_stays_on_its_host() -> None:
    mixed = named(
        host("gpu10", "L40S", 1),
        host("gpu9", "T4", 4),
        host("gpu1", "H100", 2, free={0: 1.0, 1: 1.0}),
        BROKEN,
    )
    app = FleetApp(FakeServices(mixed))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        orders = []
        for _ in range(5):
            await pilot.press("s")
            await pilot.pause()
            orders.append(first_column(app))
            assert app.fleet.rows.key == ("gpu10", None)
        assert orders == [
            ["down", "gpu1", "gpu9", "gpu10"],
            ["gpu9", "gpu10", "gpu1", "down"],
            ["gpu9", "gpu1", "gpu10", "down"],
            ["down", "gpu10", "gpu9", "gpu1"],
            ["gpu10", "gpu9", "gpu1", "down"],
        ]
        assert "sorted: inventory order" in shown(app)


def owned() -> Fleet:
    """Alice holds memory on the second GPU of a host; another has a label."""
    busy = host("busy", "H100", 2, free={1: 10.0})
    process = GpuProcess(pid=7, name="/usr/bin/python", used_bytes=60 * GIB, user="alice", container="lab-7")
    second = replace(busy.gpus[1], processes=(process,))
    labelled = replace(host("lab", "L40S", 2), labels=(("zone", "b"),))
    return named(replace(busy, gpus=(busy.gpus[0], second)), labelled, BROKEN)


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("alice", [("busy", None), ("busy", 1)]),
        ("ALICE h100", [("busy", None), ("busy", 1)]),
        ("lab-7", [("busy", None), ("busy", 1)]),
        ("zone=b", [("lab", None), ("lab", 0), ("lab", 1)]),
        ("unreach", [("down", None)]),
        ("free>50", [("busy", None), ("busy", 0)]),
        ("free<=10 h100", [("busy", None), ("busy", 1)]),
        ("free>40gib l40s", [("lab", None), ("lab", 0), ("lab", 1)]),
        ("nobody", []),
        ("[/b] [red]", []),
    ],
)
async def test_a_filter_leaves_what_matches_every_word(words: str, keys: list[Hashable]) -> None:
    app = FleetApp(FakeServices(owned()))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("slash")
        app.fleet.query_one(Input).value = words
        await pilot.pause()
        source = app.fleet.source
        assert [source.key(index) for index in range(len(source))] == keys
        assert "filtered: " in shown(app)
        await pilot.press("enter")
        assert app.focused is app.fleet.rows
        await pilot.press("escape")
        await pilot.pause()
        assert len(source) == 7
        assert not app.fleet.query_one(Input).display


async def test_typing_filters_and_reaches_no_command() -> None:
    app = FleetApp(FakeServices(owned()))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("slash", *"m R q1")
        await pilot.pause()
        assert app.fleet.query_one(Input).value == "m R q1"
        assert not app.marked
        assert app.is_running


async def test_gpus_are_marked_one_by_one_and_by_host() -> None:
    excluded = host("mixed", "H100", 3)
    gpus = (replace(excluded.gpus[0], excluded=True), *excluded.gpus[1:])
    app = FleetApp(FakeServices(named(replace(excluded, gpus=gpus), host("lab", "L40S", 1))))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("m")
        assert app.marked == {("mixed", 1), ("mixed", 2)}, "not what the inventory leaves out"
        await pilot.pause()
        text = shown(app)
        assert "● 2 GPUs marked" in text
        assert text.count("●") == 4, "the host, two GPUs, and the words"
        await pilot.press("down", "down", "m")
        await pilot.pause()
        assert app.marked == {("mixed", 2)}
        assert "○mixed" in shown(app), "partly"
        await pilot.press("M")
        await pilot.pause()
        assert not app.marked
        assert "●" not in shown(app)


async def test_marks_of_gpus_that_are_gone_are_dropped() -> None:
    services = FakeServices(THREE)
    app = FleetApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        app.marked = frozenset({("h100-a", 1), ("h2", 3)})
        services.answer = named(host("h100-a", "H100", 1), *THREE.hosts[1:])
        await pilot.press("R")
        await ready(pilot)
        assert app.marked == {("h2", 3)}


async def test_enter_opens_a_host_and_a_gpu() -> None:
    app = FleetApp(FakeServices(probed_fleet()))
    async with app.run_test(size=(120, 50)) as pilot:
        await ready(pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, HostDetailScreen)
        text = shown(app)
        for part in (
            "GP622",
            "hint: sudo usermod",
            "python of alice, pid 4242",
            "vLLM 0.33.0",
            "NV18",
            "0 s ago",
        ):
            assert part in text
        await pilot.press("escape", "down", "enter")
        await pilot.pause()
        assert "GPU-5f0cc8a1" in shown(app)
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is app.screen_stack[0]


def figures(gpus: tuple[Gpu, ...], free: float, load: int = 97) -> tuple[Gpu, ...]:
    return tuple(replace(gpu, free_bytes=int(free * GIB), utilization_percent=load) for gpu in gpus)


async def test_live_figures_change_the_rows_and_leave_cursor_scroll_and_marks() -> None:
    services = SlowServices(many(40, 4))
    services.let_all()
    clock = Clock()
    app = FleetApp(services, clock)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await until(pilot, services.watching.is_set)
        await pilot.press("s", "s", *["pagedown"] * 3, "up", "up", "m")
        await pilot.pause()
        rows = app.fleet.rows
        before = rows.key, rows.scroll_offset.y, app.marked
        order = first_column(app)
        name = str(before[0][0]) if isinstance(before[0], tuple) else ""
        clock.go(5)
        told = {
            one.name: figures(one.gpus, 7.5) for one in services.answer.hosts if one.name in (name, "gpu-0")
        }
        assert services.tell is not None
        services.tell(told)
        await until(pilot, lambda: "7.5/79.2 GiB free" in shown(app))
        assert "97 %" in shown(app)
        assert (rows.key, rows.scroll_offset.y, app.marked) == before
        assert first_column(app) == order, "figures move no row"
        assert "live, 0 s ago" in shown(app)
        clock.go(30)
        app.fleet._tick()
        await pilot.pause()
        assert "30 s old" in shown(app)
        assert "live, 30 s ago" in shown(app)


async def test_pausing_ends_the_watch_and_going_on_begins_one() -> None:
    services = SlowServices(THREE)
    services.let_all()
    app = FleetApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await until(pilot, services.watching.is_set)
        await pilot.press("p")
        await until(pilot, lambda: not services.watching.is_set())
        assert "live, paused, 0 s ago" in shown(app)
        assert services.tell is not None
        services.tell({"lab": figures(THREE.hosts[1].gpus, 1.0)})
        await pilot.press("p")
        await until(pilot, lambda: services.watches == 2 and services.watching.is_set())
        assert "10.0/44.4 GiB free" in shown(app), "what a watch told after its end is dropped"
    assert services.rests.wait(10), "leaving ends it"


async def test_a_watch_that_cannot_be_is_told_and_a_bug_in_it_is_loud() -> None:
    class Unwatched(FakeServices):
        error: Exception = NoHostError("the inventory is [gone]")

        def watch(self, every_seconds: float, stop: threading.Event, on_gpus: OnGpus) -> None:
            raise self.error

    services = Unwatched(THREE)
    app = FleetApp(services)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "the inventory is [gone]" in shown(app))
        assert "h100-a" in shown(app)
    services.error = ValueError("a bug")
    app = FleetApp(services)
    with pytest.raises(ValueError, match="a bug"):
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: False)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (SourceKind.LIVE, "live, 0 s ago"),
        (SourceKind.SNAPSHOT, "snapshot fleet.json, taken 3 h ago"),
        (SourceKind.DECLARED, "declared in fleet.json, not read"),
        (SourceKind.DEMO, "DEMO, 0 s ago"),
    ],
)
async def test_the_source_and_its_age_are_always_told(kind: SourceKind, words: str) -> None:
    class Told(FakeServices):
        @property
        def source(self) -> Source:
            return Source(kind=kind, name="fleet.json", acts=False)

    app = FleetApp(Told(replace(THREE, taken_at="2026-11-20T23:00:00Z")))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        assert words in shown(app)


HOSTILE = (
    "plain",
    "[red]x[/red] [/foo]",
    "\x1b[31mred\x1b[0m\x07",
    "主机-一号",
    "a\u200bb\u200dc\ufeff",
    "\u202egnp.exe",
    "זקן-שרת",
    "❤\ufe0f👩\u200d💻",
    "e\u0301\u0327क्षि",
    "n" * 200,
)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_hostile_names_are_shown_and_columns_stand(size: tuple[int, int]) -> None:
    hosts = []
    for name in HOSTILE:
        one = host(name, "H100", 1)
        process = GpuProcess(pid=1, name=name, used_bytes=GIB, user=name)
        gpu = replace(one.gpus[0], name=f"NVIDIA {name}", free_bytes=70 * GIB, processes=(process,))
        hosts.append(replace(one, gpus=(gpu,), link=name[:5], labels=((name, name),)))
    app = FleetApp(FakeServices(named(*hosts)))
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        text = shown(app)
        assert "[red]x[/red]" in text
        assert "\x1b" not in text
        for position, word in (
            (0, "ok"),
            (1, "70.0/79.2 GiB free" if size[0] == 80 else "free 70.0 of 79.2 GiB"),
        ):
            strips = [app.fleet.rows._strip(index, size[0]) for index in range(position, 20, 2)]
            assert all(strip.cell_length <= size[0] for strip in strips)
            starts = {_cells_before(strip.text, word) for strip in strips}
            assert len(starts) == 1, f"{word} stands in one column"
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, HostDetailScreen)


def _cells_before(text: str, word: str) -> int:
    from rich.cells import cell_len

    return cell_len(text[: text.rindex(f" {word}")])


class Counting:
    """How many rows were worded."""

    def __init__(self, source: FleetRows) -> None:
        self.rows: list[Hashable] = []
        self._line: Callable[[int, int], Line] = source.line
        self._source = source
        source.line = self.line  # type: ignore[method-assign]

    def line(self, index: int, width: int) -> Line:
        self.rows.append(self._source.key(index))
        return self._line(index, width)


async def test_a_thousand_hosts_word_only_what_is_on_the_screen() -> None:
    services = SlowServices(many(1000))
    services.let_all()
    app = FleetApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await until(pilot, services.watching.is_set)
        await pilot.press("c")
        assert len(app.fleet.rows.source) == 9000
        counted = Counting(app.fleet.source)
        await pilot.press("end")
        await pilot.pause()
        assert 0 < len(counted.rows) <= 80
        counted.rows.clear()
        await pilot.press("up", "up", "up")
        await pilot.pause()
        assert not counted.rows, "moving the cursor words nothing anew"
        assert services.tell is not None
        changed = services.answer.hosts[999]
        services.tell({"gpu-999": figures(changed.gpus, 3.0), "gpu-5": figures(changed.gpus, 3.0)})
        await until(pilot, lambda: "free 3.0 of 79.2" in shown(app))
        assert {key[0] for key in counted.rows if isinstance(key, tuple)} == {"gpu-999"}
        assert len(counted.rows) <= 9


async def test_hosts_that_answer_above_do_not_move_the_row_under_the_cursor() -> None:
    services = SlowServices(many(30, 4))
    app = FleetApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.state.reading)
        await pilot.press("end")
        await pilot.pause()
        rows = app.fleet.rows
        on_screen = rows.cursor - rows.scroll_offset.y
        services.let["gpu-0"].set()
        services.let["gpu-1"].set()
        await until(pilot, lambda: len(rows.source) == 38)
        assert rows.key == ("gpu-29", None)
        assert rows.cursor - rows.scroll_offset.y == on_screen


async def test_lines_of_the_screen_are_as_wide_as_the_terminal() -> None:
    app = FleetApp(FakeServices(probed_fleet()))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        source = app.fleet.source
        for width in (60, 79, 80, 100, 120, 159, 160, 200, 300):
            for index in range(len(source)):
                assert len(text_of((source.line(index, width),))) <= width


async def test_the_app_opens_on_its_fleet() -> None:
    app = GpuplanApp(FakeServices(THREE), now=Clock())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        assert "3 hosts, 7 GPUs · live, 0 s ago" in shown(app)
        await pilot.press("m", "2")
        await pilot.pause()
        assert app.marked == {("h100-a", 0), ("h100-a", 1)}, "the plan screen has them"

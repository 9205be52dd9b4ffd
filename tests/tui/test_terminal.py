"""The app in a real terminal, as a process: how it opens, what a small window shows, how it leaves."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "inventory.example.yaml"
AT_ONCE = 2.0
"""Seconds within which the app has ended; it takes a third of one where nothing else runs."""
TRIES = 3
"""Of which one has to be so quick: another process may have had the machine."""
GREYS = {0, 7, 8, 15, 16, 231, *range(232, 256)}
"""Colours that are black, white or between."""
SILENT_HOSTS = 30


def environment(home: Path, **more: str) -> dict[str, str]:
    """A person's, who has used neither gpuplan nor ssh before."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GPUPLAN_", "TEXTUAL_", "XDG_", "SSH_")) and name not in {"NO_COLOR", "TERM"}
    }
    return {**kept, "HOME": str(home), **more}


def app(*words: str) -> list[str]:
    return [sys.executable, "-m", "gpuplan", "tui", *words]


# ---------------------------------------------------------------------- opening and leaving


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_it_opens_follows_the_window_and_leaves_the_terminal_as_it_was(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    columns, lines = size
    with Terminal(
        app("-i", str(EXAMPLE), "--no-probe"),
        columns=columns,
        lines=lines,
        environment=environment(tmp_path),
    ) as terminal:
        terminal.until("h100-a", "lab", "not probed", "Quit")
        assert not terminal.is_restored
        for wide, high in ((60, 15), (200, 60), (80, 24)):
            terminal.resize(wide, high)
            terminal.until_it(
                lambda screen, wide=wide, high=high: _fills(screen, wide, high),  # type: ignore[misc]
                f"{wide} by {high}",
            )
        terminal.press("q")
        assert terminal.exit_status() == 0
        assert terminal.is_restored


def _fills(screen: str, columns: int, lines: int) -> bool:
    """Whether the last line is the footer, up to its right end."""
    shown = screen.split("\n")
    last = shown[lines - 1] if len(shown) >= lines else ""
    return last.endswith("More") and columns - 4 < len(last) <= columns and "h100-a" in screen


def test_a_killed_terminal_takes_the_app_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    words = ["sh", "-c", f'echo $$ > {pid}; exec "$@"', "sh", *app("-i", str(EXAMPLE), "--no-probe")]
    with Terminal(words, environment=environment(tmp_path)) as terminal:
        terminal.until("h100-a", "Quit")
        running = Path(f"/proc/{pid.read_text().strip()}")
        assert running.exists()
    deadline = time.monotonic() + 20
    while running.exists() and "Z" not in (running / "stat").read_text().split(")")[1].split()[0]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_without_a_terminal_it_says_what_works_there(tmp_path: Path) -> None:
    done = subprocess.run(
        app("-i", str(EXAMPLE), "--no-probe"),
        env=environment(tmp_path, TERM="xterm-256color"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage: gpuplan tui" in done.stderr
    assert "the app needs a terminal" in done.stderr
    assert "gpuplan plan MODEL" in done.stderr


@pytest.mark.parametrize("name", ["dumb", "unknown", ""])
def test_a_terminal_that_cannot_draw_is_not_drawn_on(tmp_path: Path, name: str) -> None:
    words = ["env", f"TERM={name}", *app("-i", str(EXAMPLE), "--no-probe")]
    with Terminal(words, environment=environment(tmp_path)) as terminal:
        assert terminal.exit_status() == 2
        assert terminal.is_restored
        assert "TERM" in terminal.screen
        assert "gpuplan plan MODEL" in " ".join(terminal.screen.split())


def test_without_colour_every_state_has_a_word(tmp_path: Path) -> None:
    with Terminal(app("--demo"), environment=environment(tmp_path, NO_COLOR="1")) as terminal:
        terminal.until("h100-a", "12 hosts", "1 failed", "ours", "others", "free")
        assert terminal.colours <= GREYS
        terminal.press("c")
        terminal.until("h100-e    unreachable", "h100-d    1 error", "spark-a   ok")
        assert terminal.colours <= GREYS
        terminal.press("2")
        terminal.until("No model is chosen")
        terminal.press("3")
        terminal.until("llama-70b", "running", "did not answer")
        assert terminal.colours <= GREYS
        terminal.press("q")
        assert terminal.exit_status() == 0
    with Terminal(app("--demo"), environment=environment(tmp_path)) as terminal:
        terminal.until("h100-a", "12 hosts", "1 failed")
        assert not terminal.colours <= GREYS, "the comparison sees colours where there are some"


# ---------------------------------------------------------------------- hosts that never answer


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """An inventory of hosts that take a connection and never say a word on it."""
    with ExitStack() as stack:
        held: list[socket.socket] = []
        hosts: list[dict[str, object]] = []
        for number in range(SILENT_HOSTS):
            address = f"127.0.0.{number + 1}"
            server = stack.enter_context(socket.create_server((address, 0)))
            stack.callback(server.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=_accept, args=(server, held), daemon=True).start()
            hosts.append({"name": f"host-{number:02}", "address": address, "port": server.getsockname()[1]})
        path = tmp_path / "inventory.yaml"
        path.write_text(yaml.safe_dump({"defaults": {"user": "nobody"}, "hosts": hosts}))
        yield path
    for one in held:
        one.close()


def _accept(server: socket.socket, held: list[socket.socket]) -> None:
    while True:
        try:
            held.append(server.accept()[0])
        except OSError:
            return


@pytest.mark.parametrize("key", ["q", "C-q"])
def test_leaving_while_hosts_hang_is_immediate(hanging: Path, tmp_path: Path, key: str) -> None:
    def leave() -> float:
        with Terminal(app("-i", str(hanging)), environment=environment(tmp_path)) as terminal:
            terminal.until("host-00", f"0 of {SILENT_HOSTS}", "Quit")
            return _seconds_to_leave(terminal, key)

    assert any(leave() < AT_ONCE for _ in range(TRIES))


def test_leaving_every_other_screen_while_hosts_hang_is_immediate(hanging: Path, tmp_path: Path) -> None:
    def leave() -> float:
        words = app("Qwen/Qwen3-32B", "-i", str(hanging))
        with Terminal(words, environment=environment(tmp_path)) as terminal:
            terminal.until("host-00", "Quit")
            terminal.press("2")
            terminal.until("▸2 Plan", "Qwen/Qwen3-32B", "the fleet is being read")
            terminal.press("3")
            terminal.until("▸3 Deployments", "The hosts are asked what runs on them")
            return _seconds_to_leave(terminal, "q")

    assert any(leave() < AT_ONCE for _ in range(TRIES))


def _seconds_to_leave(terminal: Terminal, key: str) -> float:
    began = time.monotonic()
    terminal.press(key)
    assert terminal.exit_status() == 0
    seconds = time.monotonic() - began
    assert terminal.is_restored
    return seconds


# ---------------------------------------------------------------------- the demo


def test_the_demo_from_a_model_to_a_deployment_and_its_end(tmp_path: Path) -> None:
    with Terminal(app("--demo"), environment=environment(tmp_path)) as terminal:
        terminal.until("DEMO", "h100-a", "12 hosts")
        terminal.press("2")
        terminal.until("No model is chosen")
        _pick_a_model(terminal)
        _ask_too_much_and_apply_the_remedy(terminal)
        _deploy(terminal)
        _stop(terminal)
        terminal.press("q")
        assert terminal.exit_status() == 0
        assert terminal.is_restored


def _pick_a_model(terminal: Terminal) -> None:
    terminal.press("o")
    terminal.until("hub id", "DeepSeek")
    terminal.type("qwen3 32b")
    terminal.until("Qwen/Qwen3-32B", "as typed")
    terminal.press("Enter")
    terminal.until("Recommended: single GPU", "✓ fits")


def _ask_too_much_and_apply_the_remedy(terminal: Terminal) -> None:
    terminal.press("e")
    terminal.until("KV dtype", "Back to the strategies")
    terminal.type("88888888")
    terminal.until("context 88888888")
    terminal.press("C-u")
    terminal.until("all at their defaults")
    terminal.type("99999999")
    terminal.until("context 99999999", "Nothing fits", "✗ no fit")
    terminal.press("Escape")
    terminal.until("Nothing fits", "Why not")
    terminal.press("a")
    terminal.until("Recommended", "u: undo", "✓ fits")


def _deploy(terminal: Terminal) -> None:
    terminal.press("d")
    terminal.until("Deploy qwen3-32b", "Keep alive", "Cancel")
    terminal.press("Enter")
    terminal.until_gone("Keep alive")
    terminal.until("Recommended")
    terminal.press("d")
    terminal.until("Keep alive", "Cancel")
    terminal.press("Right", "Enter")
    terminal.until("deploying qwen3-32b", "Events", "Take back")
    terminal.press("l")
    terminal.until("Logs of qwen3-32b", "APIServer", "following")
    terminal.press("Escape")
    terminal.until("It has ended", "predicted", "actual", "weights")


def _stop(terminal: Terminal) -> None:
    terminal.press("Enter")
    screen = terminal.until("▸3 Deployments", "llama-70b", "qwen3-32b")
    assert "● running" in screen
    terminal.press("Down")
    terminal.until("qwen3-32b: Qwen/Qwen3-32B on ")
    terminal.press("x")
    terminal.until("Stop qwen3-32b", "gpuplan-qwen3-32b-s0n0", "Wait for requests")
    terminal.press("Enter")
    terminal.until_gone("Wait for requests")
    terminal.press("x")
    terminal.until("Wait for requests")
    terminal.press("Right", "Enter")
    terminal.until("1 container on 1 host stopped and removed", "Close")
    terminal.press("Enter")
    terminal.until("1 deployment on")
    assert "qwen3-32b" not in terminal.until_gone("Close")

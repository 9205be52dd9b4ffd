"""`gpuplan tui` and `gpuplan` alone: what they need, what they refuse, how they end. On a terminal of this test's own."""

import errno
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from gpuplan.cli.app import run
from gpuplan.errors import ExitCode

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "inventory.example.yaml")
LEAVES_THE_SCREEN = "\x1b[?1049l"
MAIN = "import sys; from gpuplan.cli.main import main; sys.exit(main())"
BROKEN = (
    "import sys; from gpuplan.tui.app import GpuplanApp; GpuplanApp.action_help = lambda self: 1 // 0; "
    "from gpuplan.cli.main import main; sys.exit(main())"
)


class Session:
    """A program on a terminal of 100×30."""

    def __init__(self, words: Sequence[str], *, code: str = MAIN, **environ: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color", **environ}
        self.before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=env,
            cwd=ROOT,
            start_new_session=True,
        )
        self._ours, self._theirs = ours, theirs
        self.text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def press(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, text: str, seconds: float = 60) -> None:
        """Read on until this was written."""
        deadline = time.monotonic() + seconds
        while text not in self.text:
            assert time.monotonic() < deadline, f"no {text!r} in {self.text[-3000:]!r}"
            assert self.process.poll() is None or self._read(), (
                f"ended without {text!r}: {self.text[-3000:]!r}"
            )
            self._read()

    def ended(self, seconds: float = 60) -> int:
        """The exit status, all that was written read."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"does not end: {self.text[-3000:]!r}"
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def is_as_before(self) -> bool:
        """Whether the terminal's settings are those it had."""
        return termios.tcgetattr(self._theirs) == self.before

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 0.05)[0]:
            return False
        try:
            self.text += os.read(self._ours, 65536).decode("utf-8", "replace")
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        return True


@pytest.fixture
def opened() -> Iterator[Session]:
    with Session(["tui", "-i", EXAMPLE, "--no-probe"]) as session:
        session.until("Deployments")
        yield session


@pytest.mark.parametrize("words", [[], ["tui"]])
def test_without_a_terminal_there_is_the_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == ExitCode.USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert "Usage: gpuplan" in told.err
    assert ("the app needs a terminal" in told.err) == bool(words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tui", "--demo", "--snapshot", "x.json"], "--demo and --snapshot: the demo has its own fleet"),
        (["tui", "--demo", "-i", "x.yaml"], "--demo and --inventory: the demo has its own fleet"),
        (["tui", "--concurrency", "many"], "--concurrency many: not a whole number"),
        (
            ["tui", "--max-num-seqs", "4"],
            "write it after --, for example gpuplan tui MODEL … -- --max-num-seqs",
        ),
        (["tui", "a", "b"], "'b' is more than it takes"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("term", ["dumb", "", "unknown"])
@pytest.mark.parametrize("words", [[], ["tui"]])
def test_a_terminal_that_cannot_draw_is_refused(words: list[str], term: str) -> None:
    with Session(words, TERM=term) as session:
        assert session.ended() == ExitCode.USAGE
        assert "error: TERM" in session.text
        assert "hint: every command works without it" in session.text
        assert LEAVES_THE_SCREEN not in session.text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host-key", "never"], "--host-key never: not one of ask, strict, accept-new"),
        (["--jobs", "0"], "--jobs 0: must lie between 1 and"),
    ],
)
def test_wrong_options_are_told_before_the_app_opens(words: list[str], said: str) -> None:
    with Session(["tui", "-i", EXAMPLE, *words]) as session:
        assert session.ended() == ExitCode.USAGE
        assert said in session.text
        assert "\x1b[?1049h" not in session.text


def test_leaving_is_exit_0_and_the_terminal_is_as_before(opened: Session) -> None:
    opened.until("declared, not probed")
    opened.press("\x03")
    opened.until("Press q to leave")
    opened.press("q")
    assert opened.ended() == ExitCode.DONE
    assert LEAVES_THE_SCREEN in opened.text
    assert opened.is_as_before()


def test_gpuplan_alone_opens_the_app() -> None:
    with Session([], GPUPLAN_INVENTORY=str(ROOT / "no-such-inventory.yaml")) as session:
        session.until("Deployments")
        session.until("no such file")
        session.press("q")
        assert session.ended() == ExitCode.DONE


def test_the_demo_opens_without_an_inventory_or_a_network() -> None:
    with Session(["tui", "--demo", "--read-only"]) as session:
        session.until("READ ONLY")
        session.until("DEMO")
        session.press("q")
        assert session.ended() == ExitCode.DONE
        assert session.is_as_before()


def test_a_bug_is_told_once_the_terminal_is_back() -> None:
    with Session(["tui", "-i", EXAMPLE, "--no-probe"], code=BROKEN) as session:
        session.until("Deployments")
        session.press("?")
        assert session.ended() == ExitCode.UNEXPECTED
        _, _, after = session.text.rpartition(LEAVES_THE_SCREEN)
        assert "gpuplan: unexpected failure: ZeroDivisionError" in after
        assert "GPUPLAN_DEBUG=1" in after
        assert "Traceback" not in session.text
        assert session.is_as_before()


def test_options_and_defaults_reach_the_question(tmp_path: Path) -> None:
    """What is on the command line wins over `[plan]` of config.toml, that over the defaults."""
    (tmp_path / "gpuplan").mkdir()
    (tmp_path / "gpuplan" / "config.toml").write_text(
        '[plan]\nreplicas = 3\ncontext = "16k"\nconcurrency = 9\nexecutor = "ray"\n', encoding="utf-8"
    )
    code = (
        "import sys, gpuplan.tui.app as app\n"
        "class Told:\n"
        "    failure = None\n"
        "    def __init__(self, services, *, question, read_only, preferences):\n"
        "        serving = question.serving\n"
        "        print('TOLD', question.reference, question.hosts, serving.context, serving.concurrency,\n"
        "              serving.replicas, serving.executor, serving.engine_args, read_only)\n"
        "    def run(self, mouse): print('MOUSE', mouse)\n"
        "app.GpuplanApp = Told\n" + MAIN
    )
    words = ["tui", "Qwen/Qwen3-4B", "--read-only", "--host", "lab", "-i", EXAMPLE]
    words += ["--context", "8k", "--replicas", "1", "--", "--max-num-seqs", "4"]
    with Session(words, code=code, XDG_CONFIG_HOME=str(tmp_path)) as session:
        assert session.ended() == ExitCode.DONE
        assert "TOLD Qwen/Qwen3-4B ('lab',) 8k 9 1 ray ('--max-num-seqs', '4') True" in session.text
        assert "MOUSE True" in session.text


def test_it_can_be_served() -> None:
    """`textual serve` talks to it through pipes, with a driver of its own."""
    environ = {**os.environ, "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver"}
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "tui", "-i", EXAMPLE, "--no-probe"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.read(13) == b"__GANGLION__\n"
    finally:
        process.kill()
        process.communicate()

"""The process around the commands: exit statuses and what is said, whatever the command does."""

import os
import signal
import subprocess
import sys

import pytest

# Stands in for the command line: the statement under test runs where the real one would.
_PROCESS = """
import sys, types
app = types.ModuleType("gpuplan.cli.app")
def run(argv):
{body}
    return 0
app.run = run
sys.modules["gpuplan.cli.app"] = app
from gpuplan.cli.main import main
sys.exit(main())
"""


def _start(body: str, *, debug: bool = False) -> subprocess.Popen[str]:
    code = _PROCESS.format(body="\n".join(f"    {line}" for line in body.splitlines()))
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "GPUPLAN_DEBUG": "1" if debug else ""},
    )


@pytest.mark.parametrize("status", [0, 2, 3, 6])
def test_exit_status_is_the_commands(status: int) -> None:
    process = _start(f"return {status}")
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == status


def test_bug_is_one_line_and_the_way_to_its_traceback() -> None:
    process = _start("raise KeyError('first\\nsecond')")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("gpuplan: unexpected failure: KeyError: ")
    assert "GPUPLAN_DEBUG=1" in second


def test_debug_shows_the_traceback() -> None:
    process = _start("raise KeyError('name')", debug=True)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err.startswith("Traceback")


def test_interrupt_is_quiet() -> None:
    process = _start("import time\nprint('started', flush=True)\ntime.sleep(30)")
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert err == "gpuplan: interrupted\n"


@pytest.mark.parametrize("lines", [1, 100_000], ids=["at exit", "while printing"])
def test_reader_that_goes_away_is_no_failure(lines: int) -> None:
    process = _start(f"for _ in range({lines}): print('line')")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=30) == 141

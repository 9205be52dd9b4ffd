"""The process: what every command shares before it starts and after it ends.

Nothing heavy is imported here, so `gpuplan --version` and Ctrl-C answer at once.
"""

import errno
import gc
import io
import os
import sys
from types import TracebackType

from gpuplan.errors import ExitCode
from gpuplan.version import __version__

DEBUG_VARIABLE = "GPUPLAN_DEBUG"
COLLECT_RARELY = (100_000, 50, 50)
"""The process is short-lived: looking for cycles takes longer than what they hold is worth."""
READER_GONE = 141
"""128 + SIGPIPE, what a shell reports of any program whose reader closed the pipe."""


def main() -> int:
    """Run the command line of this process; the exit status is one of `ExitCode`, or `READER_GONE`."""
    if os.environ.get(DEBUG_VARIABLE, "0") in {"", "0"}:
        sys.excepthook = _report_bug
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    gc.set_threshold(*COLLECT_RARELY)
    try:
        status = _dispatch(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        _say("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _discard_output(1, 2)
        return READER_GONE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO):
            raise
        _discard_output(1)
        _say(f"the output cannot be written: {error.strerror}")
        return ExitCode.UNEXPECTED
    return status


def _dispatch(argv: list[str]) -> int:
    if argv[:1] == ["--version"]:
        print(f"gpuplan {__version__}")
        return ExitCode.DONE
    from gpuplan.cli.app import run

    return run(argv)


def _report_bug(kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    """Say in one line what failed; the interpreter then exits with `ExitCode.UNEXPECTED`."""
    text = "".join(char if char.isprintable() else " " for char in str(error))
    text = " ".join(text.split())
    _say(f"unexpected failure: {kind.__name__}{': ' if text else ''}{text}")
    _say(f"set {DEBUG_VARIABLE}=1 and run it again to see the traceback")


def _say(line: str) -> None:
    if sys.stderr is not None:
        print(f"gpuplan: {line}", file=sys.stderr)


def _discard_output(*streams: int) -> None:
    """Send what is still buffered nowhere, or the interpreter complains about it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream)

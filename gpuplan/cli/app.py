"""The command line: one thin command a file, gathered here."""

import sys
from collections.abc import Sequence
from importlib import import_module

import typer

from gpuplan.cli import output
from gpuplan.cli.usage import REFUSED, usage_error
from gpuplan.errors import ExitCode, GpuplanError
from gpuplan.version import __version__

COMMANDS = (
    "tui",
    "init",
    "probe",
    "check",
    "plan",
    "verify",
    "deploy",
    "status",
    "logs",
    "stop",
    "sweep",
    "restart",
    "unlock",
    "estimate",
    "lint",
    "learn",
    "explain",
    "models",
    "gpus",
    "schema",
)
"""In the order the help lists them; each is a module beside this one."""


def _version(asked: bool) -> None:
    if asked:
        print(f"gpuplan {__version__}")
        raise typer.Exit(ExitCode.DONE)


def root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Whether a language model fits on your GPU hosts, where, with which flags, why not, and what would make it fit.

    Everything after -- is passed to vLLM in vLLM's own syntax and read by the planner first.

    Without a command: `gpuplan tui`.
    """
    del version
    if context.invoked_subcommand is None:
        from gpuplan.cli.tui import has_terminal, open_plain

        if has_terminal():
            open_plain(context)
            return
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(ExitCode.USAGE)


def application(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands: one of them is all a call needs, the help shows all."""
    app = typer.Typer(
        name="gpuplan",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(root)
    for name in names:
        module = import_module(f"gpuplan.cli.{name}")
        app.command(name, help=module.HELP, epilog=module.EXAMPLE)(module.command)
    return app


def run(argv: Sequence[str]) -> int:
    """Run the command line; the words after the first `--` are the engine's.

    Interrupts and a closed stdout are left to the caller.
    """
    words = list(argv)
    engine: list[str] = []
    if "--" in words:
        at = words.index("--")
        words, engine = words[:at], words[at + 1 :]
    asked = words[:1] if words and words[0] in COMMANDS else COMMANDS
    command = typer.main.get_command(application(asked))
    try:
        with command.make_context("gpuplan", words, obj=engine) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except REFUSED as error:
        output.complain(usage_error(error, words))
        return ExitCode.USAGE
    except GpuplanError as error:
        output.complain(error)
        return error.exit_code
    return ExitCode.DONE

"""What the command line's parser refuses, in the words of every other error: what is wrong, then the way out."""

import re
from collections.abc import Sequence

import typer

from gpuplan.errors import UsageError

REFUSED: type[Exception] = typer.BadParameter.__mro__[1]
"""The parser's usage error, whichever package of typer or click it lives in."""

_LONGEST = 80


def usage_error(error: Exception, words: Sequence[str]) -> UsageError:
    """The parser's refusal of `words` as an error of ours: near misses, and vLLM's own flags sent behind `--`."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else " ".join(["gpuplan", *words[:1]])
    help_hint = f"`{command} --help` shows what it takes"
    option = getattr(error, "option_name", None)
    kind = type(error).__name__
    if kind == "NoSuchOption" and option is not None:
        written = next((word for word in words if word.startswith(option)), option).partition("=")[0]
        return _unknown_option(written, command, _options_of(context))
    if kind == "BadOptionUsage" and option is not None:
        problem = "takes no value" if "not take" in str(error) else "needs a value"
        return UsageError(f"{_short(option)} {problem}", hint=help_hint)
    if kind == "MissingParameter":
        parameter = getattr(error, "param", None)
        return _missing(parameter, command, _example_of(context) or help_hint)
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    if match := re.search(r"No such command '(.*?)'", text, re.DOTALL):
        return _unknown_command(match.group(1), _commands_of(context))
    if match := re.search(
        r"unexpected extra arguments? \((.*)\)|extra argument\(s\) \((.*)\)", text, re.DOTALL
    ):
        extra = match.group(1) or match.group(2)
        return UsageError(f"{command}: {_short(extra)!r} is more than it takes", hint=help_hint)
    return UsageError(text.rstrip("."), hint=help_hint)


def _unknown_option(option: str, command: str, known: list[str]) -> UsageError:
    from gpuplan.engine.flags import spellings
    from gpuplan.sources.catalogue.names import near_misses

    dashed = option.replace("_", "-")
    takes_engine = command.endswith((" plan", " estimate", " tui"))
    if takes_engine and dashed in spellings():
        flag = spellings()[dashed].flag
        value = " VALUE" if flag.takes_value else ""
        return UsageError(
            f"{option}: an argument of vLLM, not of `{command}`",
            hint=f"write it after --, for example {command} MODEL … -- {dashed}{value}",
        )
    near = near_misses(option, known, limit=1)
    if not near and takes_engine and (engine := near_misses(option, list(spellings()), limit=1)):
        meant = f"did you mean vLLM's {engine[0]}? Write it after --: -- {engine[0]}; "
    else:
        meant = f"did you mean {near[0]}? " if near else ""
    return UsageError(
        f"{_short(option)}: `{command}` has no such option", hint=f"{meant}`{command} --help` lists them"
    )


def _unknown_command(name: str, known: list[str]) -> UsageError:
    from gpuplan.sources.catalogue.names import near_misses

    near = near_misses(name, known, limit=1)
    meant = f"did you mean `gpuplan {near[0]}`? " if near else ""
    return UsageError(
        f"{_short(name)!r}: gpuplan has no such command", hint=f"{meant}commands: {', '.join(known)}"
    )


def _missing(parameter: object, command: str, way_out: str) -> UsageError:
    names = [*getattr(parameter, "opts", ())]
    long = max(names, key=len, default="")
    name = long if long.startswith("-") else str(getattr(parameter, "metavar", None) or long.upper())
    return UsageError(f"{command}: {name} is missing", hint=way_out)


def _options_of(context: typer.Context | None) -> list[str]:
    if context is None:
        return []
    return [
        name for item in context.command.get_params(context) for name in item.opts if name.startswith("-")
    ]


def _commands_of(context: typer.Context | None) -> list[str]:
    return list(getattr(context.command, "commands", ())) if context is not None else []


def _example_of(context: typer.Context | None) -> str | None:
    text = getattr(context.command, "epilog", None) if context is not None else None
    return f"for example: {text.removeprefix('Example: ')}" if isinstance(text, str) else None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

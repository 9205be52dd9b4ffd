"""Reading and writing `vllm serve` arguments in vLLM's own syntax.

`parse` accepts what the engine's parser accepts and refuses the rest in clearer words; what it returns is
valid. `render` writes the command that is launched: what we add first, what the user wrote last, so the
user's words win (S1.10).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.argument_checks import READ_FROM, check_value, notices_of, typed_fields
from gpuplan.engine.argument_tokens import flatten, is_number, normalize, shorten
from gpuplan.engine.argument_values import convert
from gpuplan.engine.flags import Flag, Spelling, completions, flags_by_destination, nearest, spellings
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.errors import UsageError

_SHORTHAND_UNTIL = EngineVersion(0, 12)
_COMMANDS = (("vllm", "serve"), ("serve",))


def without_command(argv: Sequence[str]) -> tuple[str, ...]:
    """The arguments after a leading `vllm serve` or `serve`, which people paste along."""
    words = tuple(argv)
    for command in _COMMANDS:
        if words[: len(command)] == command:
            return words[len(command) :]
    return words


def parse(
    entries: Iterable[str], *, version: EngineVersion = DEFAULT, model_given: bool = False
) -> EngineArguments:
    """Read what the user wrote after `--`.

    `model_given`: the model is named elsewhere, so a positional argument is a mistake. Raises UsageError,
    naming the flag, for an unknown or ambiguous flag, a missing or malformed value, a value outside its
    range, or a flag the chosen release no longer has. The last of several values wins, as in argparse.
    """
    user_args = flatten(entries)
    reader = _Reader(
        normalize(without_command(user_args), compilation_shorthand=version < _SHORTHAND_UNTIL), version
    )
    reader.read()
    model = reader.model(model_given)
    values = reader.values
    fields = typed_fields(values)
    if model is not None:
        fields["model"] = model
    return EngineArguments(
        **fields,
        user_args=user_args,
        user_set=frozenset(values) | ({"model"} if model is not None else set()),
        values=values,
        notices=notices_of(values, version),
    )


class _Reader:
    """One pass over a normalized argv, as argparse goes over it."""

    def __init__(self, argv: list[str], version: EngineVersion) -> None:
        self.argv = argv
        self.version = version
        self.position = 0
        self.values: dict[str, Any] = {}
        self.positionals: list[str] = []

    def read(self) -> None:
        while self.position < len(self.argv):
            token = self.argv[self.position]
            self.position += 1
            if token == "--":
                self.positionals += self.argv[self.position :]
                return
            if not looks_like_flag(token):
                self.positionals.append(token)
                continue
            name, equals, value = token.partition("=")
            spelling, attached = self._find(name)
            self._take(name, spelling, value if equals else attached)

    def model(self, given_elsewhere: bool) -> str | None:
        """The model among the arguments, at most one."""
        named = self.values.get("model")
        candidates = self.positionals + ([named] if isinstance(named, str) else [])
        allowed = 0 if given_elsewhere else 1
        if len(candidates) > allowed:
            extra = shorten(str(candidates[allowed]))
            raise UsageError(
                f"{extra!r} is an argument without a flag"
                + (", and the model is named already" if allowed == 0 else ""),
                hint="a value follows its flag (--flag value), and the model is given once",
            )
        return candidates[0] if candidates else None

    def _find(self, name: str) -> tuple[Spelling, str | None]:
        """The flag behind a name, and the value glued to a short one (`-n2`)."""
        spelling = spellings().get(name)
        if spelling is not None:
            self._check_release(name, spelling.flag)
            return spelling, None
        if not name.startswith("--") and name[:2] in spellings():
            return spellings()[name[:2]], name[2:]
        matches = completions(name)
        flags = {(spellings()[match].flag.name, spellings()[match].negative) for match in matches}
        if len(flags) == 1:
            return spellings()[matches[0]], None
        if flags:
            raise UsageError(
                f"{shorten(name)} is ambiguous: it could be {', '.join(matches[:6])}"
                + (", …" if len(matches) > 6 else ""),
                hint=f"write the whole name, for example {matches[0]}",
            )
        raise UsageError(
            f"{shorten(name)} is not an argument of vllm serve ({self.version})",
            hint=suggestion(name) or "`vllm serve --help=all` lists its arguments",
        )

    def _check_release(self, name: str, flag: Flag) -> None:
        if flag.removed_in is None or self.version < flag.removed_in:
            return
        raise UsageError(
            f"{name} is gone: vLLM {self.version} refuses it, {flag.last_in} still had it",
            hint=f"use {flag.instead} instead" if flag.instead else f"leave {name} out",
        )

    def _take(self, name: str, spelling: Spelling, attached: str | None) -> None:
        flag = spelling.flag
        if not flag.takes_value:
            if attached is not None:
                no = f"--no-{flag.name.removeprefix('--')}"
                off = f" or {no}" if flag.kind == "bool" else ""
                raise UsageError(
                    f"{name} takes no value, got {shorten(attached)!r}", hint=f"write {flag.name}{off}"
                )
            self.values[flag.destination] = not spelling.negative
            return
        texts = [attached] if attached is not None else self._texts(flag)
        if not texts:
            if flag.arity == "~":
                self.values[flag.destination] = True
                return
            raise UsageError(f"{name} needs a value", hint=f"write {name} {_placeholder(flag)}")
        read = tuple(self._convert(name, flag, text) for text in texts)
        self.values[flag.destination] = read if flag.arity == "+" else read[0]

    def _texts(self, flag: Flag) -> list[str]:
        most = len(self.argv) if flag.arity == "+" else 1
        texts: list[str] = []
        while (
            self.position < len(self.argv)
            and len(texts) < most
            and not looks_like_flag(self.argv[self.position])
        ):
            texts.append(self.argv[self.position])
            self.position += 1
        return texts

    def _convert(self, name: str, flag: Flag, text: str) -> Any:
        try:
            value = convert(flag, text, check_choices=self.version >= READ_FROM)
            check_value(flag.destination, value, self.version)
        except ValueError as error:
            raise UsageError(f"{name}: {error}", hint=_value_hint(flag)) from None
        return value


def looks_like_flag(token: str) -> bool:
    """Whether argparse takes a token for a flag: a dash, no number, no space in its name."""
    if not token.startswith("-") or token == "-" or is_number(token):
        return False
    name = token.partition("=")[0]
    return " " not in name


def suggestion(name: str) -> str | None:
    """What an unknown flag was probably meant to be."""
    if not name.startswith("--") and (double := nearest("-" + name)) is not None:
        return f"did you mean {double}?"
    near = nearest(name)
    return f"did you mean {near}?" if near is not None else None


def _placeholder(flag: Flag) -> str:
    if flag.choices:
        return flag.choices[0]
    samples = {"int": "N", "float": "X", "size": "32k", "length": "32k", "json": "'{…}'", "config": "'{…}'"}
    return samples.get(flag.kind, "VALUE")


def _value_hint(flag: Flag) -> str | None:
    match flag.kind:
        case "json" | "config" | "json_or_str":
            return f"quote it for the shell: {flag.name} '{{\"key\": 1}}', or write {flag.name}.key 1"
        case "size" | "length":
            return f"write for example {flag.name} 32768, 32k (32,000) or 32K (32,768)"
        case _ if flag.name == "--gpu-memory-utilization":
            return "write a share of the GPU's memory, for example --gpu-memory-utilization 0.9"
        case "int" | "float":
            return f"write for example {flag.name} 1, or leave it out for the default"
        case _:
            return f"leave {flag.name} out for the default"


# -- writing ------------------------------------------------------------


def written(destination: str, value: Any) -> tuple[str, ...]:
    """One argument as it is written: `("--tensor-parallel-size", "2")`; nothing for None.

    JSON is compact and sorted, so the same value gives the same bytes.
    """
    flag = flags_by_destination()[destination]
    match value:
        case None:
            return ()
        case bool():
            return (flag.name if value else "--no-" + flag.name.removeprefix("--"),)
        case Mapping():
            return (flag.name, compact_json(value))
        case tuple() | list():
            return (flag.name, *(str(item) for item in value))
        case _:
            return (flag.name, str(value))


def compact_json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), sort_keys=True, separators=(",", ":"), default=dict)


def render(
    model: str,
    ours: Sequence[tuple[str, Any]],
    user: EngineArguments,
    *,
    serving: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """The whole `vllm` argv: `serve MODEL`, what we add, what the user wrote.

    `ours` are (destination, value) pairs in order. Sizes of the parallel layout are left out as soon as the
    user gave one of them (S1.4); any other argument of ours that the user gave is left out too, as the
    user's word would win anyway. `serving` holds host, port and served model name, added only when absent
    (S1.10).
    """
    added: list[str] = []
    sized = user.parallel_sizes_set
    for destination, value in (*ours, *(serving or {}).items()):
        parallel = destination in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
        if destination in user.user_set or (parallel and sized):
            continue
        added += written(destination, value)
    return ("serve", model, *added, *engine_words(user))


def engine_words(user: EngineArguments) -> tuple[str, ...]:
    """The user's words as the engine is given them: without a pasted `vllm serve`."""
    return without_command(user.user_args)


def layout_arguments(
    *, tensor: int, pipeline: int, hosts: int, user: EngineArguments
) -> tuple[tuple[str, Any], ...]:
    """The parallel sizes a placement adds: none when the user gave one; TP alone on one host, TP and PP on
    several (S1.4).
    """
    if user.parallel_sizes_set:
        return ()
    sizes: list[tuple[str, Any]] = []
    if tensor > 1 or hosts > 1:
        sizes.append(("tensor_parallel_size", tensor))
    if pipeline > 1 or hosts > 1:
        sizes.append(("pipeline_parallel_size", pipeline))
    return tuple(sizes)


def speculative_config(
    method: str,
    *,
    draft_tokens: int | None = None,
    draft_model: str | None = None,
    lookup_min: int | None = None,
    lookup_max: int | None = None,
) -> dict[str, Any]:
    """The one JSON value behind EAGLE3, MTP, n-gram and draft-model decoding (S1.5)."""
    fields = {
        "method": method,
        "model": draft_model,
        "num_speculative_tokens": draft_tokens,
        "prompt_lookup_min": lookup_min,
        "prompt_lookup_max": lookup_max,
    }
    return {key: value for key, value in fields.items() if value is not None}


def injected(final: Sequence[str], prefix: Sequence[str], user: Sequence[str]) -> tuple[str, ...]:
    """What we added to a command: final command − prefix − user arguments (S2.7).

    Each word of the user is taken away once, from the end, where the user's words stand.
    """
    words = list(final)
    if tuple(words[: len(prefix)]) == tuple(prefix):
        words = words[len(prefix) :]
    user_words = list(user)
    if user_words and words[-len(user_words) :] == user_words:
        return tuple(words[: -len(user_words)])
    for word in reversed(user_words):
        for position in range(len(words) - 1, -1, -1):
            if words[position] == word:
                del words[position]
                break
    return tuple(words)


def serving_flags(version: EngineVersion, user: EngineArguments) -> tuple[tuple[str, Any], ...]:
    """Version-gated comforts of a served model, each left out when the user set it or its negation (S1.6).

    Prompt token details from 0.9.0.1, the access-log filter for `/metrics` from 0.16.0.
    """
    gated = (
        ("enable_prompt_tokens_details", True, EngineVersion(0, 9, 0, 1)),
        ("disable_access_log_for_endpoints", "/metrics", EngineVersion(0, 16)),
    )
    return tuple(
        (name, value) for name, value, since in gated if version >= since and name not in user.user_set
    )

"""What a deploy is going to do, for people: where, what, in which order, and the commands that do the same by hand."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from gpuplan.deploying.docker_run import command_texts
from gpuplan.deploying.steps import (
    AskOnce,
    AwaitRegistered,
    AwaitServing,
    Check,
    Create,
    HaveWeights,
    Lock,
    PullImage,
    PutSecrets,
    RemoveOld,
    Start,
    Step,
    StopOld,
    Unlock,
    steps,
)
from gpuplan.domain.deployment import ContainerSpec, DeploymentSpec, Member, Prediction
from gpuplan.domain.plan import Eviction
from gpuplan.domain.secret_text import masked_words
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, width_of, wrapped
from gpuplan.present.eviction_text import evictions_text
from gpuplan.present.numbers import count, gib, gpu_range, listed, times, tokens
from gpuplan.units import plural


def dry_run_text(
    spec: DeploymentSpec, width: int, replaced: Sequence[Member] = (), evicts: Sequence[Eviction] = ()
) -> Lines:
    """What `deploy` would do, in lines of at most `width` cells; a command's words are never broken."""
    return (
        *_header(spec, width),
        *evictions_text(evicts, width),
        EMPTY,
        *_steps(spec, replaced, width),
        EMPTY,
        *_commands(spec, width),
        *_arguments(spec, width),
        *_notes(spec, width),
    )


def confirm_text(
    spec: DeploymentSpec, replaces: Sequence[Member], width: int, evicts: Sequence[Eviction] = ()
) -> Lines:
    """What somebody is asked to agree to: what starts where, what stops for it, and what to know beforehand."""
    stopped: list[Line] = []
    if replaces:
        names = listed([f"{member.host}:{member.container}" for member in replaces], most=4)
        text = f"stops {names} unless that is what is asked for; it runs again if the new one does not serve"
        stopped += wrapped(text, width, first="  ", role=Role.WARNING)
    return (*_header(spec, width), *evictions_text(evicts, width), *stopped, *_notes(spec, width))


def steps_text(spec: DeploymentSpec, replaces: Sequence[Member], width: int) -> Lines:
    """Every step in the order it is taken in, with its hosts."""
    return tuple(_steps(spec, replaces, width))


def _header(spec: DeploymentSpec, width: int) -> Iterator[Line]:
    yield line(Span("Deploy ", Role.TITLE), Span(visible(spec.name), Role.TITLE), f"  {visible(spec.model)}")
    yield from wrapped(f"on {_places(spec)}", width, first="  ")
    yield from wrapped(f"{spec.image} (vLLM {spec.vllm_version})", width, first="  ", role=Role.DIM)
    how = ", ".join(dict.fromkeys(_LAUNCHES[server.launch.value] for server in spec.servers))
    endpoints = listed([server.endpoint for server in spec.servers], most=4)
    yield from wrapped(f"{spec.served_name} at {endpoints} · {how}", width, first="  ")
    predicted = prediction_words(spec.predicted)
    if predicted:
        yield from wrapped(f"predicted: {predicted}", width, first="  ", role=Role.DIM)


_LAUNCHES = {
    "single": "one host",
    "mp_only": "one server over several hosts (vLLM's own multi-node)",
    "dp_only": "data-parallel ranks over several hosts (vLLM's own multi-node)",
    "nested": "data-parallel ranks, each over several hosts (vLLM's own multi-node)",
    "ray": "one server over a Ray cluster",
}


def _places(spec: DeploymentSpec) -> str:
    """`h100-a:0-3, h100-b:0-3`."""
    given: dict[str, set[int]] = {}
    for container in spec.containers:
        given.setdefault(container.host, set()).update(container.gpu_indexes)
    return ", ".join(
        f"{host}:{gpu_range(tuple(indexes))}" if indexes else host for host, indexes in given.items()
    )


def prediction_words(predicted: Prediction) -> str:
    """`weights 61.02 GiB, KV cache 8.00 GiB, 60,000 tokens, …`: what is known of it."""
    words = []
    if predicted.weights_bytes is not None:
        words.append(f"weights {gib(predicted.weights_bytes)}")
    if predicted.kv_cache_bytes is not None:
        words.append(f"KV cache {gib(predicted.kv_cache_bytes)}")
    if predicted.kv_cache_tokens is not None:
        words.append(tokens(predicted.kv_cache_tokens))
    if predicted.max_model_len is not None:
        words.append(f"context {count(predicted.max_model_len)}")
    if predicted.max_concurrency is not None:
        words.append(f"{times(predicted.max_concurrency)} such requests at once")
    if not words and predicted.per_gpu_bytes is not None:
        words.append(f"{gib(predicted.per_gpu_bytes)} a GPU")
    return ", ".join(words)


_HOSTS = 22
"""Columns of the hosts of a step."""


def _steps(spec: DeploymentSpec, replaced: Sequence[Member], width: int) -> Iterator[Line]:
    """Every step in order; the same on several hosts in a row is one line."""
    yield line(Span("Steps", Role.TITLE))
    told = [(step.host, step_words(step)) for step in steps(spec, replaced)]
    rows = [(words, [host for host, _ in group]) for words, group in groupby(told, key=lambda item: item[1])]
    column = min(_HOSTS, max((width_of(visible(_hosts(hosts))) for _, hosts in rows), default=0)) + 2
    for number, (words, hosts) in enumerate(rows, 1):
        first = f"  {number:>2}. {padded(visible(_hosts(hosts)), column)}"
        yield from wrapped(words, width, first=first)


def _hosts(hosts: Sequence[str]) -> str:
    names = ", ".join(hosts)
    return names if len(hosts) == 1 or len(names) <= _HOSTS else f"{len(hosts)} hosts"


def step_words(step: Step) -> str:
    """A step in a few words, without its host."""
    match step:
        case Lock():
            return "lock it against other deploys"
        case Check():
            return "look again: the plan still holds, the host is ready"
        case PullImage(image=image):
            return f"have {image}, the same on every host"
        case HaveWeights(model=model):
            return f"have the files of {model}, complete"
        case StopOld(container=name):
            return f"stop {name}, which runs now, and set it aside"
        case Create(container=container):
            return f"create {container.name} ({_what(container)})"
        case PutSecrets(container=name, names=names):
            return f"put {', '.join(names)} into {name} as files"
        case Start(container=name):
            return f"start {name}"
        case AwaitRegistered(hosts=hosts, gpus=gpus):
            return f"wait until {plural(len(hosts), 'host')} with {plural(gpus, 'GPU')} joined"
        case AwaitServing(server=server, served_name=name):
            return f"wait until {server.endpoint} serves {name}"
        case AskOnce():
            return "ask for one completion"
        case RemoveOld(container=name):
            return f"remove {name}, which was set aside"
        case Unlock():
            return "unlock it"


def _what(container: ContainerSpec) -> str:
    """Its role and what it is given."""
    words = [container.role.value]
    if container.rank:
        words.append(f"rank {container.rank}")
    if container.gpu_indexes:
        words.append(f"GPU {gpu_range(container.gpu_indexes)}")
    return ", ".join(words)


def _commands(spec: DeploymentSpec, width: int) -> Iterator[Line]:
    yield line(Span("The same by hand", Role.TITLE))
    if any(container.secrets for container in spec.containers):
        yield from wrapped(
            "secrets are files of the directory `secrets`, one each; their values are nowhere in this text",
            width,
            first="  ",
            role=Role.DIM,
        )
    for container in spec.containers:
        yield EMPTY
        yield from wrapped(
            f"# on {container.host}: {container.name} ({_what(container)})", width, role=Role.DIM
        )
        for text in command_texts(container, width):
            for row in text.split("\n"):
                yield line(Span(visible(row), Role.COMMAND))
    yield EMPTY


def _arguments(spec: DeploymentSpec, width: int) -> Iterator[Line]:
    """What gpuplan added to the user's own arguments (S2.7)."""
    if not spec.injected:
        return
    yield from wrapped(
        f"added by gpuplan: {' '.join(masked_words(spec.injected))}", width, rest="    ", role=Role.DIM
    )
    written = _written(spec)
    if written:
        yield from wrapped(f"yours: {' '.join(masked_words(written))}", width, rest="    ", role=Role.DIM)
    yield EMPTY


def _written(spec: DeploymentSpec) -> tuple[str, ...]:
    """The user's own arguments, as the request has them."""
    given = spec.request.get("engine_args", spec.request.get("vllm_args", ()))
    return tuple(str(word) for word in given) if isinstance(given, (list, tuple)) else ()


def _notes(spec: DeploymentSpec, width: int) -> Iterator[Line]:
    for note in spec.notes:
        yield from wrapped(note, width, first="! ", role=Role.WARNING)

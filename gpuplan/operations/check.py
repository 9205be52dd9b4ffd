"""`gpuplan check`: probe the fleet, measure what a probe does not, judge it. Nothing stays on a host.

Everything has a limit: each question to a host its own, the measuring of all hosts one deadline. A host that runs
out of it keeps what was measured until then.
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from gpuplan.domain.fleet import Fleet, Host, HostStatus
from gpuplan.domain.inventory import HostEntry, Inventory
from gpuplan.engine.arguments import parse
from gpuplan.engine.versions import DEFAULT
from gpuplan.errors import ModelError
from gpuplan.operations.across import in_time
from gpuplan.operations.check_reach import measure_reachability
from gpuplan.planning.planner import model_summary
from gpuplan.planning.preflight import preflight
from gpuplan.planning.preflight_images import image_on
from gpuplan.planning.preflight_measures import (
    GpuTest,
    GpuTestOutcome,
    HostMeasures,
    Measured,
    ModelNeed,
    Wanted,
)
from gpuplan.planning.preflight_report import Preflight
from gpuplan.probing.host_measures import model_command, model_of, model_places, ports_command, ports_of
from gpuplan.probing.output import NOT_RUN
from gpuplan.probing.script import OUTPUT_LIMIT, longest, script, sections
from gpuplan.remote.connection import Connection, ConnectionFailed

if TYPE_CHECKING:
    from gpuplan.operations.probe import OnProgress, ProbeOptions
    from gpuplan.remote.docker_engine import Engine

MEASURE_SECONDS = 90.0
"""For the measures of all hosts, before their reachability; one with many hosts gets more."""
GPU_TEST_SECONDS = 60.0
"""For the container: a driver without persistence mode takes half a minute to wake eight GPUs."""

OnStep = Callable[[str], None]
"""Told of each stage of the measuring, in words."""


class Opened(Protocol):
    """A fleet that was probed, with what it was probed over."""

    @property
    def fleet(self) -> Fleet: ...
    @property
    def entries(self) -> Mapping[str, HostEntry]: ...
    @property
    def connections(self) -> Mapping[str, Connection]: ...
    def engine_of(self, host: str) -> "Engine": ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What is asked of a check, as written on the command line."""

    image: str | None = None
    """None: the inventory's, else that of the newest vLLM known."""
    model: str | None = None
    gpu_test: bool = False


def check(
    inventory: Inventory,
    reach: "ProbeOptions",
    options: CheckOptions,
    on_progress: "OnProgress | None" = None,
    on_step: OnStep | None = None,
    *,
    only: Collection[str] | None = None,
) -> Preflight:
    """Probe the hosts, or those named in `only`, measure, and judge.

    Raises ModelError when the model cannot be read; a host's failure is part of its ladder. On Ctrl-C every
    connection is closed at once, which ends what was started on the hosts.
    """
    from gpuplan.operations.probe import open_fleet

    model = model_need(options.model)
    with open_fleet(inventory, reach, on_progress, only=only) as opened:
        wanted = Wanted(
            image=options.image or inventory.vllm.image or f"vllm/vllm-openai:v{DEFAULT}",
            settings=inventory.vllm,
            model=model,
            entries=opened.entries,
        )
        return check_opened(opened, wanted, options, on_step)


def check_opened(
    opened: Opened, wanted: Wanted, options: CheckOptions, on_step: OnStep | None = None
) -> Preflight:
    """Measure and judge a fleet that is open."""
    tell = on_step or (lambda _: None)
    hosts = [
        host
        for host in opened.fleet.hosts
        if host.status is HostStatus.OK and host.name in opened.connections
    ]
    tell("ports and model files")
    measures = _measure_hosts(opened, hosts, wanted)
    if options.gpu_test:
        tell("a container with the GPUs on every host")
        measures = _with_gpu_tests(opened, hosts, wanted, measures)
    reachability = None
    if len(hosts) > 1:
        tell("connections between the hosts")
        reachability = measure_reachability(hosts, opened.connections, wanted, measures)
    return preflight(opened.fleet.hosts, wanted, Measured(hosts=measures, reachability=reachability))


def model_need(reference: str | None) -> ModelNeed | None:
    """The model of `--model`. A path may exist on the hosts alone: then its size is not known."""
    if reference is None:
        return None
    from gpuplan.operations.models import read_model

    try:
        profile = read_model(reference, parse([], version=DEFAULT, model_given=True)).profile
    except ModelError:
        if reference.startswith(("/", "~/")):
            return ModelNeed(name=reference, reference=reference)
        raise
    weights = model_summary(profile)["weights_bytes"]
    size = profile.checkpoint_bytes or (weights if isinstance(weights, int) else None)
    return ModelNeed(name=profile.name, reference=reference, weights_bytes=size or None)


def _measure_hosts(opened: Opened, hosts: Sequence[Host], wanted: Wanted) -> dict[str, HostMeasures]:
    """Ports and model files of every host; one that does not answer has none."""
    calls = {host.name: partial(_measure, opened.connections[host.name], host, wanted) for host in hosts}
    found = in_time(calls, seconds=MEASURE_SECONDS)
    return {host.name: found.get(host.name) or HostMeasures() for host in hosts}


def _measure(connection: Connection, host: Host, wanted: Wanted) -> HostMeasures:
    """One session for both questions."""
    entry = wanted.entries.get(host.name)
    commands = [ports_command((wanted.settings.service_ports, wanted.settings.ray_ports))]
    if wanted.model is not None:
        places = model_places(
            wanted.model.reference, wanted.model.name, entry.model_dir if entry is not None else None
        )
        commands.append(model_command(places))
    mark = f"gp{secrets.token_hex(12)}"
    try:
        done = connection.run(
            ["sh", "-s"], stdin=script(commands, mark), timeout=longest(commands), limit=OUTPUT_LIMIT
        )
    except ConnectionFailed:
        return HostMeasures(model_looked_for=wanted.model is None)
    outputs = sections(done.stdout, commands, mark)
    files = outputs.get(commands[-1].name, NOT_RUN) if wanted.model is not None else NOT_RUN
    return HostMeasures(
        ports=ports_of(outputs[commands[0].name]),
        model=model_of(files),
        model_looked_for=wanted.model is None or files.exit_code == 0,
    )


def _with_gpu_tests(
    opened: Opened, hosts: Sequence[Host], wanted: Wanted, measures: Mapping[str, HostMeasures]
) -> dict[str, HostMeasures]:
    from gpuplan.operations.check_gpu import run_gpu_test

    import_module("docker")  # by one thread: those that run the tests would find it half made

    calls: dict[str, Callable[[], GpuTest]] = {}
    tests: dict[str, GpuTest] = {}
    for host in hosts:
        image = image_on(host, wanted.image)
        if host.facts.docker is None or not host.gpus:
            continue
        if image is None:
            tests[host.name] = GpuTest(outcome=GpuTestOutcome.NO_IMAGE, image=wanted.image)
        else:
            calls[host.name] = partial(
                run_gpu_test, partial(opened.engine_of, host.name), image.id, wanted.image, GPU_TEST_SECONDS
            )
    tests |= in_time(calls, seconds=GPU_TEST_SECONDS + 15)
    late = GpuTest(outcome=GpuTestOutcome.TIMED_OUT, image=wanted.image, seconds=GPU_TEST_SECONDS)
    tests |= {name: late for name in calls if name not in tests}
    return {
        name: replace(measure, gpu_test=tests.get(name)) if name in tests else measure
        for name, measure in measures.items()
    }

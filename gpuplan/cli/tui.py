"""`gpuplan tui`: the app. The only command that draws, and the only module here that sees the other face."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuplan.cli import options as o
from gpuplan.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gpuplan.operations.fleet import FleetOptions
    from gpuplan.operations.plan import ServingOptions
    from gpuplan.tui.services import Services
    from gpuplan.tui.settings import Preferences

HELP = (
    "The app: see the fleet, turn the knobs of a plan, deploy, watch it run. Options of plan are what it asks at first. "
    "--demo opens a recorded fleet on which everything can be tried."
)
EXAMPLE = "Example: gpuplan tui Qwen/Qwen3-32B -i inventory.yaml --context 32768 -- --max-num-seqs 64"
DRIVEN = "TEXTUAL_DRIVER"
"""Set by `textual serve`: no terminal is there, and none is needed."""
WAY_OUT = (
    "every command works without it: `gpuplan plan MODEL`, `gpuplan status`; `gpuplan --help` lists them"
)

OptionalModel = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]", help="Planned at first: Hugging Face id, directory, config.json or catalogue name."
    ),
]
Demo = Annotated[
    bool, typer.Option("--demo", help="A recorded fleet instead of yours: nothing is reached or started.")
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Nothing can be started or stopped.")]


def command(
    context: typer.Context,
    model: OptionalModel = None,
    demo: Demo = False,
    read_only: ReadOnly = False,
    inventory: o.Inventory = None,
    snapshot: o.Snapshot = None,
    no_probe: o.NoProbe = False,
    host: o.Hosts = None,
    label: o.Labels = None,
    gpus: o.Gpus = None,
    strategy: o.Strategies = None,
    length: o.Context = None,
    concurrency: o.Concurrency = None,
    kv_cache_dtype: o.KvCacheDtype = None,
    replicas: o.Replicas = 1,
    placement: o.PlacementOption = None,
    no_distributed: o.NoDistributed = False,
    executor: o.Executor = "auto",
    allow_overcommit: o.AllowOvercommit = False,
    no_calibration: o.NoCalibration = False,
    category: o.CategoryOption = None,
    image: o.Image = None,
    vllm_version: o.VllmVersion = None,
    vram_claim: o.VramClaim = None,
    ram_claim: o.RamClaim = None,
    host_key: o.HostKey = None,
    jobs: o.Jobs = None,
) -> None:
    """Open the app; exit 0 when it is left."""
    given = {"--inventory": inventory, "--snapshot": snapshot, "--no-probe": no_probe}
    other = next((word for word, value in given.items() if value), None)
    if demo and other is not None:
        raise UsageError(f"--demo and {other}: the demo has its own fleet", hint="leave one of the two out")
    require_terminal(context)
    from gpuplan.operations.plan import ServingOptions
    from gpuplan.tui.settings import Preferences

    preferences = Preferences.read(os.environ)
    named = {
        "context": length,
        "concurrency": concurrency,
        "kv_cache_dtype": kv_cache_dtype,
        "category": category,
        "replicas": replicas,
        "placement": placement,
        "executor": executor,
        "image": image,
        "vllm_version": vllm_version,
        "vram_claim": vram_claim,
        "ram_claim": ram_claim,
        "allow_overcommit": allow_overcommit,
        "no_distributed": no_distributed,
        "no_calibration": no_calibration,
        "strategies": tuple(strategy or ()),
        "gpus": tuple(gpus or ()),
        "engine_args": tuple(context.obj or ()),
    }
    serving = ServingOptions(**_with_defaults(context, named, dict(preferences.settings.plan)))
    fleet = o.fleet_options(
        inventory=inventory,
        snapshot=snapshot,
        no_probe=no_probe,
        hosts=host,
        labels=label,
        host_key=host_key,
        jobs=jobs,
    )
    open_app(
        fleet,
        serving,
        preferences,
        reference=model or "",
        demo=demo,
        read_only=read_only,
        host_key=host_key,
        jobs=jobs,
    )


def open_plain(context: typer.Context) -> None:
    """`gpuplan` alone, on a terminal."""
    require_terminal(context)
    from gpuplan.operations.plan import ServingOptions
    from gpuplan.tui.settings import Preferences

    preferences = Preferences.read(os.environ)
    fleet = o.fleet_options(inventory=None, snapshot=None, hosts=None, labels=None, host_key=None, jobs=None)
    open_app(fleet, ServingOptions(**dict(preferences.settings.plan)), preferences)


def open_app(
    fleet: "FleetOptions",
    serving: "ServingOptions",
    preferences: "Preferences",
    *,
    reference: str = "",
    demo: bool = False,
    read_only: bool = False,
    host_key: str | None = None,
    jobs: int | None = None,
) -> None:
    """Run the app until it is left; a bug in it is raised here, the terminal restored."""
    from gpuplan.cli.reaching import probe_options
    from gpuplan.tui.app import GpuplanApp
    from gpuplan.tui.questions import AppQuestions
    from gpuplan.tui.services import Question

    asking = AppQuestions()
    services: Services
    if demo:
        from gpuplan.tui.demo import DemoServices

        services = DemoServices()
    else:
        from gpuplan.tui.live import LiveServices

        probe_options(host_key, jobs, asking)  # what is wrong with them is told before the app opens
        services = LiveServices(fleet, lambda: probe_options(host_key, jobs, asking))
    latest = preferences.remembered.models[:1] if not demo else ()
    question = Question(
        reference=reference or "".join(latest), serving=serving, hosts=fleet.hosts, labels=fleet.labels
    )
    app = GpuplanApp(services, question=question, read_only=read_only, preferences=preferences)
    app.questions = asking
    app.run(mouse=preferences.settings.mouse)
    if app.failure is not None:
        raise app.failure


def require_terminal(context: typer.Context) -> None:
    """Raise Exit after the help where there is no terminal, UsageError where it cannot draw."""
    if os.environ.get(DRIVEN):
        return
    if not has_terminal():
        print(context.get_help(), file=sys.stderr)
        print(f"\nerror: the app needs a terminal; {WAY_OUT}", file=sys.stderr)
        raise typer.Exit(ExitCode.USAGE)
    if os.environ.get("TERM", "") in {"", "dumb", "unknown"}:
        named = os.environ.get("TERM", "")
        raise UsageError(
            f"TERM={named}: the app cannot draw on this terminal" if named else "TERM is not set",
            hint=WAY_OUT,
        )


def has_terminal() -> bool:
    """Whether a person sits at all three ends."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


_PARAMETERS = {"context": "length", "strategies": "strategy"}
"""Names of options in the signature that differ from those in `ServingOptions`."""


def _with_defaults(context: typer.Context, named: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The options, those not on the command line as `[plan]` of config.toml has them."""
    for name, value in defaults.items():
        source = context.get_parameter_source(_PARAMETERS.get(name, name))
        if source is None or source.name == "DEFAULT":
            named[name] = value
    return named

"""Plans on a fleet that others use too: whose memory it is, what is loading, the share that would pass.

`GPUPLAN_UPDATE_GOLDEN=1` writes the files anew.
"""

from dataclasses import replace

import pytest

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.domain.workload import Category
from gpuplan.engine.versions import DEFAULT
from gpuplan.operations.models import Model
from gpuplan.operations.plan import ServingOptions, plan_model, workload_of
from gpuplan.present.document import text_of
from gpuplan.present.plan_text import plan_text
from gpuplan.sources import snapshot_json
from gpuplan.units import GIB
from tests.fleets import profile
from tests.golden.test_cli import FLEETS, compare

CHAT = OurContainer(
    id="c" * 64,
    name="gpuplan-chat-n0",
    deployment="chat",
    state="running",
    gpus=("GPU-h1-1",),
    claims=(("GPU-h1-1", 70 * GIB),),
    loading=True,
)
EMBED = OurContainer(
    id="e" * 64,
    name="gpuplan-embed-n0",
    deployment="embed",
    state="running",
    gpus=("GPU-h2-0",),
    claims=(("GPU-h2-0", 32 * GIB),),
)
STATES = {
    "h1": HostFacts(docker=Docker(containers=(CHAT,))),
    "h2": HostFacts(
        docker=Docker(containers=(EMBED,)),
        conditions=(
            Fact(code="GP626", severity=Severity.ERROR, subject={}, figures={}),
            Fact(
                code="GP614",
                severity=Severity.WARNING,
                subject={"gpu": 1},
                figures={"reasons": "thermal slowdown"},
            ),
        ),
    ),
}


def fleet() -> Fleet:
    """The snapshot, with what a probe says of Docker and the cards beside it."""
    seen = snapshot_json.load(FLEETS / "shared.json")
    return replace(seen, hosts=tuple(_with_states(host) for host in seen.hosts))


def _with_states(host: Host) -> Host:
    return replace(host, facts=STATES[host.name])


CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "shared-no-fit": ("Qwen__Qwen3-32B", ()),
    "shared-lower-share": ("Qwen__Qwen3-4B", ()),
    "shared-fits": (
        "Qwen__Qwen3-4B",
        ("--tensor-parallel-size", "2", "--gpu-memory-utilization", "0.55"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_plan_reads(name: str) -> None:
    config, arguments = CASES[name]
    described = profile(config)
    model = Model(profile=described, category=Category.LLM, path=described.name)
    workload = workload_of(ServingOptions(engine_args=arguments), DEFAULT)
    made = plan_model(model, fleet(), workload, DEFAULT)
    compare(name, text_of(plan_text(made, 80)) + "\n")

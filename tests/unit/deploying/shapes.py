"""Real plans on declared fleets, compiled: one deployment for every way vLLM is started.

`SHAPES` maps a name to a function that plans and compiles it. Versions, hosts and cards are part of the shape.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuplan.deploying.compile import CompileRequest, compile_deployment, default_name
from gpuplan.deploying.image_probe import UNKNOWN, ImageFacts
from gpuplan.deploying.images import image_for
from gpuplan.domain.deployment import DeploymentSpec, DirectoryModel, HubModel, ServedModel
from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.host_facts import Disk, HostFacts, Interface, RdmaDevice
from gpuplan.domain.inventory import HostEntry, Inventory, VllmSettings
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Candidate
from gpuplan.domain.workload import Category, ExecutorChoice, GpuSelection, Placement, Workload
from gpuplan.engine.architectures import describe
from gpuplan.engine.arguments import parse
from gpuplan.engine.utilization import gpu_memory_utilization
from gpuplan.engine.versions import version_of
from gpuplan.planning.planner import candidate_of, plan
from gpuplan.planning.request import PlanRequest
from gpuplan.units import GIB
from tests.fleets import CARDS, CONFIGS

SMALL = "Qwen__Qwen3-4B"
LARGE = "Qwen__Qwen3-32B"
EXPERTS = "Qwen__Qwen3-30B-A3B"
MANY_EXPERTS = "Qwen__Qwen3-235B-A22B"
HUGE = "meta-llama__Meta-Llama-3.1-405B"
SECRETS = {"VLLM_API_KEY": "sk-planted-api-key-0123456789", "HF_TOKEN": "hf_PlantedTokenPlantedToken12"}
WITH_RAY = ImageFacts(ray=True, ray_version="2.60.0", vllm_command=True)
RDMA = (RdmaDevice(name="mlx5_0", state="ACTIVE", link_layer="InfiniBand"),)


def host(
    number: int,
    card: str = "H100",
    count: int = 8,
    *,
    rdma: tuple[RdmaDevice, ...] = (),
    driver: str = "580.82.07",
    runtime: str = "13.0",
    gpus: tuple[Gpu, ...] | None = None,
    architecture: str = "x86_64",
) -> Host:
    """`hN` at 10.0.0.N, its cards with UUIDs that tell host and index."""
    name = f"h{number}"
    return Host(
        name=name,
        address=f"10.0.0.{number}",
        gpus=gpus if gpus is not None else tuple(nvidia(number, index, card) for index in range(count)),
        ram_available_bytes=900 * GIB,
        facts=HostFacts(
            architecture=architecture,
            user="root",
            driver_version=driver or None,
            runtime_version=runtime or None,
            disks=(
                Disk(
                    purpose="huggingface_cache",
                    path="/root/.cache/huggingface",
                    total_bytes=2000 * GIB,
                    free_bytes=1000 * GIB,
                ),
            ),
            interfaces=(
                Interface(name="lo", addresses=("127.0.0.1/8",), virtual=True),
                Interface(name="eth0", addresses=(f"10.0.0.{number}/24",)),
                Interface(name="eth1", addresses=(f"192.168.0.{number}/24",)),
            ),
            data_interface="eth1",
            rdma=rdma,
        ),
    )


def nvidia(number: int, index: int, card: str = "H100") -> Gpu:
    name, total, capability = CARDS[card]
    return Gpu(
        index=index,
        name=name,
        uuid=f"GPU-{number:08d}-0000-0000-0000-{index:012d}",
        compute_capability=capability,
        total_bytes=int(total * GIB),
    )


def slices(number: int) -> tuple[Gpu, ...]:
    """A card in two MIG slices."""
    card = nvidia(number, 0)
    parts = (
        replace(
            card,
            index=index,
            name="NVIDIA H100 80GB HBM3 MIG 3g.40gb",
            uuid=f"MIG-{number:08d}-0000-0000-0000-{index:012d}",
            total_bytes=int(39.5 * GIB),
            parent=0,
            profile="3g.40gb",
        )
        for index in (1, 2)
    )
    return (card, *parts)


def amd(number: int, count: int) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(
            index=index,
            name="AMD Instinct MI300X",
            uuid=f"{number:02d}ff74a1-0000-1000-8000-{index:012d}",
            vendor="amd",
            backend="rocm",
            total_bytes=192 * GIB,
        )
        for index in range(count)
    )


def ascend(count: int, name: str = "910B3", total: int = 64) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(index=index, name=name, vendor="ascend", backend="cann", total_bytes=total * GIB)
        for index in range(count)
    )


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is planned, and the parts of a compilation a plan does not know."""

    model: str = LARGE
    hosts: tuple[Host, ...]
    arguments: tuple[str, ...] = ()
    version: str = "0.33.0"
    category: Category = Category.LLM
    pooling: bool = False
    settings: VllmSettings = field(default_factory=VllmSettings)
    facts: ImageFacts = UNKNOWN
    directory: bool = False
    secrets: tuple[str, ...] = ()
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    compile: Mapping[str, Any] = field(default_factory=dict)

    def profile(self) -> ModelProfile:
        config = json.loads((CONFIGS / f"{self.model}.json").read_text())
        return describe(self.model.replace("__", "/"), config, pooling=self.pooling)

    def candidate(self, profile: ModelProfile, workload: Workload) -> Candidate:
        made = plan(
            PlanRequest(
                fleet=Fleet(hosts=self.hosts),
                profile=profile,
                workload=workload,
                version=version_of(self.version),
                utilization=gpu_memory_utilization(
                    workload.engine,
                    category=self.category,
                    architectures=(profile.architecture,),
                    version=version_of(self.version),
                ),
                model_path=profile.name,
            )
        )
        best = candidate_of(made)
        assert best is not None, [fact for result in made.strategies for fact in result.facts]
        return best

    def request(self) -> CompileRequest:
        """The compilation of the recommended candidate."""
        profile, version = self.profile(), version_of(self.version)
        engine = parse(self.arguments, version=version, model_given=True)
        workload = Workload(engine=engine, category=self.category, **self.workload)
        candidate = self.candidate(profile, workload)
        fleet = Fleet(hosts=self.hosts)
        image = image_for(
            explicit=None,
            settings=self.settings,
            fleet=fleet,
            candidate=candidate,
            version=version,
            category=self.category,
        )
        entries = tuple(
            HostEntry(
                **{
                    "name": each.name,
                    "address": str(each.address),
                    "user": "root",
                    **self.entries.get(each.name, {}),
                }
            )
            for each in self.hosts
        )
        request = CompileRequest(
            name=default_name(profile.name),
            candidate=candidate,
            profile=profile,
            category=self.category,
            workload=workload,
            version=version,
            fleet=fleet,
            inventory=Inventory(path="hosts.yaml", hosts=entries, vllm=self.settings),
            image=image.reference,
            image_facts=self.facts,
            model=self._model(profile),
            secrets=self.secrets,
            asked={"model": profile.name, "engine_args": list(self.arguments)},
        )
        return replace(request, **self.compile)

    def spec(self) -> DeploymentSpec:
        return compile_deployment(self.request())

    def _model(self, profile: ModelProfile) -> ServedModel:
        if not self.directory:
            return HubModel(id=profile.name)
        last = profile.name.rpartition("/")[2]
        paths = {each.name: f"/srv/{each.name}/models/{last}" for each in self.hosts}
        return DirectoryModel(paths=paths, inside=f"/models/{last}")


def _gpus(*chosen: tuple[str, str]) -> dict[str, Any]:
    return {
        "selection": tuple(GpuSelection(host=name, devices=tuple(text.split(","))) for name, text in chosen)
    }


RAY = {"executor": ExecutorChoice.RAY}
TWO = (host(1, count=2), host(2, count=2))
PAIRS: Mapping[str, Shape] = {
    "single": Shape(model=SMALL, hosts=(host(1, "4090", 1),)),
    "single-directory": Shape(model=SMALL, hosts=(host(1, "4090", 1),), directory=True),
    "single-0.8.5": Shape(model=SMALL, hosts=(host(1, "4090", 1),), version="0.8.5"),
    "single-0.11.2": Shape(model=SMALL, hosts=(host(1, "4090", 1),), version="0.11.2"),
    "single-0.16.0": Shape(model=SMALL, hosts=(host(1, "4090", 1),), version="0.16.0"),
    "old-driver": Shape(model=SMALL, hosts=(host(1, "4090", 1, driver="570.124.06", runtime="12.8"),)),
    "tensor": Shape(hosts=(host(1, "L40S", 4),)),
    "pipeline": Shape(hosts=(host(1, "L40S", 4),), arguments=("--pipeline-parallel-size 4",)),
    "tensor-pipeline": Shape(hosts=(host(1, "L40S", 4),), arguments=("-tp 2 -pp 2",)),
    "mp-2-hosts": Shape(hosts=TWO, arguments=("-tp 2 -pp 2",), directory=True),
    "mp-2-hosts-0.11.2": Shape(hosts=TWO, arguments=("-tp 2 -pp 2",), version="0.11.2"),
    "mp-3-hosts": Shape(
        hosts=tuple(host(number, count=2) for number in (1, 2, 3)), arguments=("-tp 2 -pp 3",)
    ),
    "mp-3-hosts-huge": Shape(model=HUGE, hosts=tuple(host(number) for number in (1, 2, 3))),
    "mp-rdma": Shape(
        hosts=(host(1, count=2, rdma=RDMA), host(2, count=2, rdma=RDMA)), arguments=("-tp 2 -pp 2",)
    ),
    "ray-2-hosts": Shape(hosts=TWO, arguments=("-tp 2 -pp 2",), facts=WITH_RAY, workload=RAY),
    "ray-0.8.5": Shape(hosts=TWO, arguments=("-tp 2 -pp 2",), version="0.8.5"),
    "ray-uneven": Shape(
        model=LARGE,
        hosts=(host(1, "L40S", 2), host(2, "L40S", 1)),
        arguments=("-pp 3",),
        facts=WITH_RAY,
    ),
    "ray-uneven-partition": Shape(
        hosts=(host(1, "A100", 1), host(2, "4090", 2)),
        arguments=("-pp 3 --max-model-len 8192",),
        facts=WITH_RAY,
        workload={"strategies": ("multi_host",)},
    ),
    "ray-3-hosts-partition": Shape(
        hosts=(host(1, "A100", 1), host(2, "4090", 1), host(3, "L40S", 1)),
        arguments=("-pp 3 --max-model-len 8192",),
        facts=WITH_RAY,
        workload={"strategies": ("multi_host",), **RAY},
    ),
    "ray-data-parallel": Shape(
        model=EXPERTS,
        hosts=(host(1, count=1), host(2, count=1)),
        arguments=("--data-parallel-size 2 --enable-expert-parallel",),
        facts=WITH_RAY,
        workload=RAY,
    ),
    "replicas-3-dense": Shape(
        model=SMALL,
        hosts=(host(1, "4090", 2), host(2, "4090", 1)),
        workload={"replicas": 3},
    ),
    "replicas-dense-by-data-parallel-size": Shape(
        model=SMALL, hosts=(host(1, "4090", 2),), arguments=("--data-parallel-size 2",)
    ),
    "replicas-2-over-hosts": Shape(
        hosts=tuple(host(number, "L40S", 1) for number in (1, 2, 3, 4)),
        arguments=("-tp 1 -pp 2",),
        workload={"replicas": 2},
    ),
    "experts-one-host": Shape(
        model=EXPERTS,
        hosts=(host(1, count=2),),
        arguments=("--data-parallel-size 2 --enable-expert-parallel",),
    ),
    "experts-over-hosts": Shape(
        model=EXPERTS,
        hosts=(host(1, count=2), host(2, count=2)),
        arguments=("--data-parallel-size 4 --enable-expert-parallel",),
    ),
    "experts-tensor-over-hosts": Shape(
        model=EXPERTS,
        hosts=(host(1, "L40S", 4), host(2, "L40S", 4)),
        arguments=("--data-parallel-size 4 --enable-expert-parallel --tensor-parallel-size 2",),
    ),
    "experts-uneven": Shape(
        model=EXPERTS,
        hosts=(host(1, count=2), host(2, count=1)),
        arguments=("--data-parallel-size 3 --enable-expert-parallel",),
        workload={"placement": Placement.BINPACK},
    ),
    "experts-two-servers": Shape(
        model=EXPERTS,
        hosts=(host(1, count=2), host(2, count=2)),
        arguments=("--data-parallel-size 2 --enable-expert-parallel",),
        workload={"replicas": 2},
    ),
    "nested": Shape(
        model=EXPERTS,
        hosts=tuple(host(number, "L40S", 1) for number in (1, 2, 3, 4)),
        arguments=("--data-parallel-size 2 -pp 2 --enable-expert-parallel",),
    ),
    "expert-parallel": Shape(
        model=MANY_EXPERTS, hosts=(host(1),), arguments=("--enable-expert-parallel -tp 8",)
    ),
    "embedding": Shape(model=SMALL, hosts=(host(1, "4090", 1),), category=Category.EMBEDDING, pooling=True),
    "omni": Shape(model=SMALL, hosts=(host(1, "H100", 1),), category=Category.OMNI, version="0.28.0"),
    "speculative": Shape(
        model=SMALL,
        hosts=(host(1, "4090", 1),),
        arguments=(
            '--speculative-config {"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":5,"prompt_lookup_min":2}',
        ),
    ),
    "speculative-draft": Shape(
        hosts=(host(1, count=2),),
        arguments=("--spec-method eagle3 --spec-model /srv/drafts/eagle --spec-tokens 3",),
    ),
    "lora": Shape(
        model=SMALL,
        hosts=(host(1, "H100", 1),),
        arguments=("--enable-lora --lora-modules sql=/srv/lora/sql chat=/srv/lora/chat",),
    ),
    "lmcache": Shape(
        model=SMALL,
        hosts=(host(1, "H100", 1),),
        arguments=('--kv-transfer-config {"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}',),
        workload={"ram_claim_bytes": 40 * GIB},
    ),
    "offload": Shape(hosts=(host(1, "L40S", 1),), arguments=("--cpu-offload-gb 40 --max-model-len 4096",)),
    "mig": Shape(model=SMALL, hosts=(host(1, gpus=slices(1)),), workload=_gpus(("h1", "1"))),
    "amd": Shape(
        model=HUGE, hosts=(host(1, gpus=amd(1, 8), driver="", runtime="7.2"),), arguments=("-tp 8",)
    ),
    "amd-2-hosts": Shape(
        model=LARGE,
        hosts=tuple(host(number, gpus=amd(number, 2), driver="", runtime="7.2") for number in (1, 2)),
        arguments=("-tp 2 -pp 2",),
        settings=VllmSettings(user="1000:1000"),
    ),
    "ascend": Shape(hosts=(host(1, gpus=ascend(4), driver="", runtime="9.1"),), version="0.23.0"),
    "ascend-2-hosts": Shape(
        hosts=tuple(host(number, gpus=ascend(2), driver="", runtime="9.1") for number in (1, 2)),
        arguments=("-tp 2 -pp 2",),
        version="0.23.0",
    ),
    "ascend-310p": Shape(
        model=SMALL,
        hosts=(host(1, gpus=ascend(1, "310P3", 44), driver="", runtime="9.1"),),
        version="0.23.0",
    ),
    "secrets": Shape(
        model=SMALL,
        hosts=(host(1, "4090", 1),),
        arguments=(f"--api-key {SECRETS['VLLM_API_KEY']} --hf-token={SECRETS['HF_TOKEN']}",),
        settings=VllmSettings(env=(("AWS_SECRET_ACCESS_KEY", "planted-aws-value"), ("NCCL_DEBUG", "INFO"))),
    ),
    "packages": Shape(
        model=SMALL,
        hosts=(host(1, "4090", 1),),
        settings=VllmSettings(env=(("PYPI_PACKAGES_INSTALL", "timm==1.0.9"),)),
    ),
    "mirror-user-keep-alive": Shape(
        model=SMALL,
        hosts=(host(1, "4090", 1),),
        settings=VllmSettings(registry="mirror.lan:5000", user="1000:1000", cache_dir="/srv/cache"),
        compile={"keep_alive_seconds": 600},
    ),
}

SHAPES: Mapping[str, Callable[[], DeploymentSpec]] = {name: shape.spec for name, shape in PAIRS.items()}

RELEASES = ("0.9.2", "0.10.2", "0.11.2", "0.14.1", "0.18.0", "0.20.0", "0.26.0", "0.30.0", "0.33.0")
_EVERYWHERE = (
    "single",
    "tensor",
    "tensor-pipeline",
    "replicas-3-dense",
    "experts-one-host",
    "embedding",
    "lora",
)
_NATIVE = ("mp-2-hosts", "nested", "replicas-2-over-hosts")
VERSIONED: Mapping[str, Callable[[], DeploymentSpec]] = {
    f"{name}-{release}": replace(PAIRS[name], version=release).spec
    for release in RELEASES
    for name in (
        *_EVERYWHERE,
        "experts-over-hosts",
        "ray-2-hosts",
        *(_NATIVE if version_of(release) >= version_of("0.11.2") else ()),
    )
}
"""Shapes of every kind in the releases whose flags were read."""

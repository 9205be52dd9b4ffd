"""Which image is chosen for the hosts of a placement."""

from dataclasses import replace

import pytest

from gpuplan.deploying.images import image_for, mirrored
from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.inventory import VllmSettings
from gpuplan.domain.memory import EngineAnswer
from gpuplan.domain.plan import Candidate, Parallelism, PlacedGpu, PlacedHost, Role, Score, Verdict
from gpuplan.domain.workload import Category
from gpuplan.engine.versions import version_of
from gpuplan.errors import UsageError
from tests.unit.deploying.shapes import amd, ascend, host


def candidate(hosts: tuple[Host, ...]) -> Candidate:
    placement = tuple(
        PlacedHost(
            host=each.name,
            role=Role.REPLICA,
            gpus=tuple(
                PlacedGpu(index=gpu.index, claim_bytes=1, allocatable_bytes=1, total_bytes=1)
                for gpu in each.gpus
            ),
        )
        for each in hosts
    )
    return Candidate(
        verdict=Verdict.FITS,
        parallelism=Parallelism(),
        placement=placement,
        memory=None,
        engine=EngineAnswer(starts=True),
        score=Score(ray=False, gpus=1, hosts=1, stages=1, total_bytes=1, free_bytes=1),
    )


def chosen(
    *hosts: Host,
    version: str = "0.33.0",
    explicit: str | None = None,
    settings: VllmSettings | None = None,
    category: Category = Category.LLM,
) -> str:
    return image_for(
        explicit=explicit,
        settings=settings or VllmSettings(),
        fleet=Fleet(hosts=hosts),
        candidate=candidate(hosts),
        version=version_of(version),
        category=category,
    ).reference


def test_explicit_then_configured_then_automatic() -> None:
    settings = VllmSettings(image="acme/vllm:1")
    assert chosen(host(1), explicit="other/vllm:2", settings=settings) == "other/vllm:2"
    assert chosen(host(1), settings=settings) == "acme/vllm:1"
    assert chosen(host(1)) == "vllm/vllm-openai:v0.33.0"


@pytest.mark.parametrize(
    ("version", "driver", "tag"),
    [
        ("0.33.0", "580.82.07", "v0.33.0"),
        ("0.33.0", "575.57.08", "v0.33.0-cu129"),
        ("0.33.0", "535.54.03", "v0.33.0-cu129"),
        ("0.33.0", "470.57.02", "v0.33.0-cu129"),
        ("0.19.1", "580.82.07", "v0.19.1-cu130"),
        ("0.19.1", "570.124.06", "v0.19.1"),
        ("0.11.2", "580.82.07", "v0.11.2"),
        ("0.8.5", "580.82.07", "v0.8.5"),
    ],
)
def test_newest_runtime_the_driver_serves(version: str, driver: str, tag: str) -> None:
    assert chosen(host(1, driver=driver), version=version) == f"vllm/vllm-openai:{tag}"


def test_one_image_for_all_hosts_and_both_architectures() -> None:
    old = host(2, driver="570.124.06", runtime="12.8")
    assert chosen(host(1), old) == "vllm/vllm-openai:v0.33.0-cu129"
    arm = host(2, architecture="aarch64")
    assert chosen(host(1), arm) == "vllm/vllm-openai:v0.33.0"
    with pytest.raises(UsageError, match="aarch64"):
        chosen(host(1), arm, version="0.9.2")


def test_card_that_needs_cuda_13_gets_it() -> None:
    card = host(1, count=1).gpus[0]
    b300 = host(1, gpus=(replace(card, name="NVIDIA B300", compute_capability="10.3"),), driver="575.57.08")
    assert chosen(b300) == "vllm/vllm-openai:v0.33.0"


def test_unknown_driver_gets_the_plain_tag() -> None:
    assert chosen(host(1, driver="", runtime=""), version="0.19.1") == "vllm/vllm-openai:v0.19.1"


def test_other_vendors() -> None:
    assert chosen(host(1, gpus=amd(1, 1))) == "vllm/vllm-openai-rocm:v0.33.0"
    assert chosen(host(1, gpus=ascend(1)), version="0.23.0") == "quay.io/ascend/vllm-ascend:v0.23.0"
    assert chosen(host(1, gpus=ascend(1, "310P3"))).endswith("-310p")
    assert chosen(host(1, gpus=ascend(1, "Ascend910C"))).endswith("-a3")
    assert chosen(host(1), category=Category.OMNI, version="0.28.0") == "vllm/vllm-omni:v0.28.0"
    with pytest.raises(UsageError, match="ROCm"):
        chosen(host(1, gpus=amd(1, 1)), version="0.9.2")
    with pytest.raises(UsageError, match="no one image"):
        chosen(host(1), host(2, gpus=amd(2, 1)))
    with pytest.raises(UsageError, match="no one image"):
        chosen(host(1, gpus=ascend(1)), host(2, gpus=ascend(1, "310P3")))
    with pytest.raises(UsageError, match="intel GPUs"):
        chosen(host(1, gpus=(Gpu(index=0, name="Max 1550", vendor="intel", backend="xpu"),)))


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("vllm/vllm-openai:v1", "mirror.lan:5000/vllm/vllm-openai:v1"),
        ("mirror.lan:5000/vllm/vllm-openai:v1", "mirror.lan:5000/vllm/vllm-openai:v1"),
        ("ghcr.io/acme/vllm:1", "ghcr.io/acme/vllm:1"),
        ("localhost/vllm:1", "localhost/vllm:1"),
        ("vllm@sha256:0", "mirror.lan:5000/vllm@sha256:0"),
    ],
)
def test_mirror_is_applied_once_and_only_to_the_hub(reference: str, expected: str) -> None:
    assert mirrored(reference, "mirror.lan:5000") == expected
    assert mirrored(reference, None) == reference
    assert mirrored(mirrored(reference, "mirror.lan:5000"), "mirror.lan:5000") == expected


def test_mirror_takes_the_place_of_another_registry_for_images_we_choose() -> None:
    settings = VllmSettings(registry="mirror.lan:5000/hub")
    made = chosen(host(1, gpus=ascend(1)), version="0.23.0", settings=settings)
    assert made == "mirror.lan:5000/hub/ascend/vllm-ascend:v0.23.0"

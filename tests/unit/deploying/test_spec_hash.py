"""Equal hashes exactly where starting again would start the same."""

from dataclasses import replace

import pytest

from gpuplan.deploying import spec_hash as module
from gpuplan.deploying.spec_hash import secrets_digest, spec_hash
from gpuplan.domain import labels
from gpuplan.domain.deployment import ContainerSpec, DeploymentSpec, Mount, SecretValues
from tests.unit.deploying.specs import SINGLE, deployed

IDS = {"h100-a": "sha256:aa", "h100-b": "sha256:aa"}


def hashed(spec: DeploymentSpec, digest: str = "") -> str:
    return spec_hash(spec, image_ids=IDS, secrets_digest=digest)


BASE = hashed(deployed(SINGLE))


def labelled(container: ContainerSpec, **changed: str) -> ContainerSpec:
    names = {key.replace("_", "-"): value for key, value in changed.items()}
    merged = {**dict(container.labels), **{labels.PREFIX + key: value for key, value in names.items()}}
    return replace(container, labels=tuple(sorted(merged.items())))


@pytest.mark.parametrize(
    "container",
    [
        replace(SINGLE, host="h100-b"),
        replace(SINGLE, name="gpuplan-qwen3-n1"),
        replace(SINGLE, command=(*SINGLE.command, "--max-num-seqs", "8")),
        replace(SINGLE, entrypoint=("vllm",)),
        replace(SINGLE, env=()),
        replace(SINGLE, gpus=SINGLE.gpus[:1]),
        replace(SINGLE, mounts=(Mount(source="/x", target="/y"),)),
        replace(SINGLE, shm_bytes=1),
        replace(SINGLE, user=None),
        replace(SINGLE, health=None),
        replace(SINGLE, stop_seconds=31),
        replace(SINGLE, secrets=("HF_TOKEN",)),
        labelled(SINGLE, keep_alive="60"),
    ],
    ids=range(13),
)
def test_a_change_of_the_container_is_a_change(container: ContainerSpec) -> None:
    assert hashed(deployed(container)) != BASE


def test_what_only_describes_is_no_change() -> None:
    described = labelled(
        SINGLE,
        plan_id="x",
        spec_hash="y",
        version="9.9",
        predicted="{}",
        claims="{}",
        request="{}",
        image_ref="z",
    )
    assert hashed(deployed(described)) == BASE
    assert hashed(replace(deployed(SINGLE), notes=(), injected=(), model="other")) == BASE


def test_another_image_is_a_change() -> None:
    spec = deployed(SINGLE)
    assert spec_hash(spec, image_ids={"h100-a": "sha256:bb"}, secrets_digest="") != BASE


def test_another_secret_is_a_change() -> None:
    digests = {secrets_digest("qwen3", SecretValues({"HF_TOKEN": value})) for value in ("one", "two")}
    assert len({BASE, *(hashed(deployed(SINGLE), digest) for digest in digests)}) == 3


def test_a_secret_that_is_drawn_anew_is_none() -> None:
    first, second = (SecretValues({"RAY_AUTH_TOKEN": value, "HF_TOKEN": "x"}) for value in ("one", "two"))
    assert secrets_digest("qwen3", first) == secrets_digest("qwen3", second) != ""
    assert secrets_digest("qwen3", SecretValues({"RAY_AUTH_TOKEN": "one"})) == ""


def test_digests_cannot_be_compared_across_deployments_nor_guessed_quickly() -> None:
    values = SecretValues({"VLLM_API_KEY": "1234"})
    assert secrets_digest("a", values) != secrets_digest("b", values)
    assert "1234" not in secrets_digest("a", values)
    assert module.ROUNDS >= 600_000


def test_the_hash_is_the_same_on_every_machine() -> None:
    assert hashed(deployed(SINGLE)) == BASE
    assert len(BASE) == 64
    assert set(BASE) <= set("0123456789abcdef")

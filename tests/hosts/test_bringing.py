"""Images and weights brought to real hosts: copied, pulled, downloaded, short of space, cut off in the middle."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.deploying.weights_download import TOKEN
from gpuplan.domain.deployment import DirectoryModel, HubModel, SecretValues
from gpuplan.domain.events import Event, Transfer
from gpuplan.domain.fact import Fact
from gpuplan.domain.inventory import Inventory
from gpuplan.domain.workload import Category
from gpuplan.operations.deploy_images import bring_images
from gpuplan.operations.deploy_weights import bring_weights
from gpuplan.operations.image_facts import image_facts
from gpuplan.operations.models import Model, nothing_known
from gpuplan.operations.probe import OpenFleet, ProbeOptions, open_fleet
from gpuplan.operations.served_model import locate
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings, Timeouts
from gpuplan.sources import inventory_yaml
from tests.hosts.fleet import STAND_IN, Fleet, TestHost
from tests.hosts.images import ImageSpec, archive, image_id
from tests.hosts.models import lay_model, shorten
from tests.hosts.python_image import PACKAGES
from tests.hosts.waiting import wait_for
from tests.registry import Registry, registry_at

A, B, C = "gpu-a", "gpu-b", "gpu-c"
MIB = 1024**2
BUILT = ImageSpec(tag="team/engine:1", env=(("BUILD", "here"),))
OTHER = ImageSpec(tag="team/engine:1", env=(("BUILD", "elsewhere"),))
HUGGINGFACE = "/srv/models/huggingface"
ID = "org/tiny"
SECRET = "hf_AbCdEfGhIjKlMnOpQrStUvWx"
HUB_LIBRARY = """
import os, time
from types import SimpleNamespace as Of

COMMIT = "5f0b02c75b57c5855da9ae460ce51323ea669d8a"
FILES = {"config.json": 20, "model.safetensors": 4 * 1024**2}


class HfApi:
    def model_info(self, model, revision, files_metadata):
        return Of(sha=COMMIT, siblings=[Of(rfilename=name, size=size) for name, size in FILES.items()])


def snapshot_download(model, revision, allow_patterns):
    home = os.environ["HF_HOME"]
    token = open(os.environ["HF_TOKEN_PATH"]).read() if "HF_TOKEN_PATH" in os.environ else ""
    root = os.path.join(home, "hub", "models--" + model.replace("/", "--"))
    snapshot = os.path.join(root, "snapshots", COMMIT)
    for folder in (os.path.join(root, "blobs"), os.path.join(root, "refs"), snapshot):
        os.makedirs(folder, exist_ok=True)
    for number, (name, size) in enumerate(FILES.items()):
        with open(os.path.join(root, "blobs", str(number)), "wb") as stream:
            if name == "config.json":
                stream.write(b'{"model_type": "t" }')
            else:
                head = b'{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,%d]}}' % (size - 8 - 62)
                head = head.ljust(62)
                stream.write(len(head).to_bytes(8, "little") + head)
                stream.write(b"x" * (size - 8 - len(head)))
        link = os.path.join(snapshot, name)
        if not os.path.islink(link):
            os.symlink(os.path.join("..", "..", "blobs", str(number)), link)
    with open(os.path.join(root, "refs", "main"), "w") as stream:
        stream.write(COMMIT)
    with open(os.path.join(home, "seen"), "w") as stream:
        stream.write(str(len(token)))
    while not os.path.exists(os.path.join(home, "go")):
        time.sleep(0.1)
"""
"""A library of that name which writes what the real one would, then waits for a file."""
WITH_HUB = replace(
    STAND_IN,
    tag="team/with-hub:1",
    files=(*STAND_IN.files, (f"{PACKAGES}/huggingface_hub/__init__.py", HUB_LIBRARY)),
)


@pytest.fixture
def inventory(deploy_fleet: Fleet, tmp_path: Path) -> Inventory:
    path = deploy_fleet.inventory(tmp_path / "inventory.yaml", vllm={"huggingface_home": HUGGINGFACE})
    return inventory_yaml.load(path)


@contextmanager
def opened(fleet: Fleet, inventory: Inventory, *names: str) -> Iterator[OpenFleet]:
    settings = SshSettings(
        known_hosts=fleet.known_hosts,
        home=fleet.home,
        policy=HostKeyPolicy.STRICT,
        timeouts=Timeouts(connect=5, banner=5, authenticate=10),
    )
    with open_fleet(inventory, ProbeOptions(ssh=settings), only=names) as found:
        yield found


def id_of(host: TestHost, reference: str) -> str:
    return (
        host.run("docker", "image", "inspect", "-f", "{{.Id}}", reference, check=False)
        .stdout.decode()
        .strip()
    )


def codes(facts: Sequence[Fact]) -> list[tuple[str, str]]:
    return [(item.code, item.subject["host"]) for item in facts]


def test_an_image_missing_on_one_host_is_copied_from_another(
    deploy_fleet: Fleet, inventory: Inventory
) -> None:
    deploy_fleet[A].load(BUILT)
    events: list[Event] = []
    with opened(deploy_fleet, inventory, A, B) as fleet:
        brought = bring_images(fleet, (A, B), BUILT.tag, emit=events.append, environ={})
    assert brought.failures == ()
    assert brought.ids == {A: image_id(BUILT), B: image_id(BUILT)}
    assert id_of(deploy_fleet[B], image_id(BUILT)) == image_id(BUILT)
    assert id_of(deploy_fleet[B], BUILT.tag) == ""
    moved = [event for event in events if isinstance(event, Transfer)]
    assert {event.host for event in moved} == {B}
    assert moved[-1].done_bytes > 0
    assert any(f"from {A}" in event.about for event in moved)


def test_the_leader_lacks_it_and_another_host_has_it(deploy_fleet: Fleet, inventory: Inventory) -> None:
    deploy_fleet[B].load(BUILT)
    with opened(deploy_fleet, inventory, A, B) as fleet:
        brought = bring_images(fleet, (A, B), BUILT.tag, policy="fleet", emit=lambda _: None, environ={})
    assert brought.ids == {A: image_id(BUILT), B: image_id(BUILT)}


def test_another_image_under_the_same_tag_keeps_its_tag(deploy_fleet: Fleet, inventory: Inventory) -> None:
    deploy_fleet[A].load(BUILT)
    deploy_fleet[B].load(OTHER)
    with opened(deploy_fleet, inventory, A, B) as fleet:
        never = bring_images(fleet, (A, B), BUILT.tag, policy="never", emit=lambda _: None, environ={})
        brought = bring_images(fleet, (A, B), BUILT.tag, emit=lambda _: None, environ={})
    assert codes(never.failures) == [("GP832", B)]
    assert (codes(brought.facts), brought.failures) == ([("GP832", B)], ())
    assert brought.ids[B] == image_id(BUILT)
    assert id_of(deploy_fleet[B], BUILT.tag) == image_id(OTHER)


def test_an_image_for_another_architecture(deploy_fleet: Fleet, inventory: Inventory) -> None:
    arm = replace(BUILT, tag="team/arm:1", architecture="arm64")
    deploy_fleet[A].load(arm)
    with opened(deploy_fleet, inventory, A, B) as fleet:
        brought = bring_images(fleet, (A, B), arm.tag, emit=lambda _: None, environ={})
    assert codes(brought.failures) == [("GP833", A), ("GP833", B)]
    assert id_of(deploy_fleet[B], image_id(arm)) == ""


def test_a_disk_that_gets_full_is_told_with_its_file_system(
    deploy_fleet: Fleet, inventory: Inventory
) -> None:
    big = replace(BUILT, tag="team/big:1", files=(("big", "x" * 40 * MIB),))
    deploy_fleet[A].load(big)
    with opened(deploy_fleet, inventory, A, B) as fleet:
        deploy_fleet[B].fill(leave=8 * MIB)
        brought = bring_images(fleet, (A, B), big.tag, emit=lambda _: None, environ={})
    assert codes(brought.failures) == [("GP835", B)]
    assert brought.failures[0].figures["path"] == "/srv/docker"


def test_an_archive_of_this_machine(deploy_fleet: Fleet, inventory: Inventory, tmp_path: Path) -> None:
    file = tmp_path / "engine.tar"
    file.write_bytes(archive(BUILT))
    deploy_fleet[A].load(OTHER)
    with opened(deploy_fleet, inventory, A, B) as fleet:
        brought = bring_images(fleet, (A, B), BUILT.tag, policy=str(file), emit=lambda _: None, environ={})
    assert brought.failures == ()
    assert brought.ids == {A: image_id(BUILT), B: image_id(BUILT)}
    assert id_of(deploy_fleet[A], BUILT.tag) == image_id(OTHER)


# ---------------------------------------------------------------------- with a registry


@pytest.fixture
def registry(deploy_fleet: Fleet) -> Iterator[Registry]:
    with registry_at(str(deploy_fleet.bridge.network[254])) as running:
        yield running


def test_the_leader_pulls_the_tag_the_others_its_digest(
    deploy_fleet: Fleet, inventory: Inventory, registry: Registry
) -> None:
    pushed = registry.push("team/engine", "1.0", archive(BUILT), padding=MIB)
    with opened(deploy_fleet, inventory, A, B, C) as fleet:
        place = ("-p", "tcp", "--dport", registry.place.rpartition(":")[2], "-j", "REJECT")
        deploy_fleet[C].run("iptables", "-w", "-I", "OUTPUT", *place)
        deploy_fleet[C].later(lambda: deploy_fleet[C].run("iptables", "-w", "-D", "OUTPUT", *place))
        brought = bring_images(fleet, (A, B, C), pushed.reference, emit=lambda _: None, environ={})
    assert brought.failures == ()
    assert brought.ids == dict.fromkeys((A, B, C), pushed.id)
    assert codes(brought.facts) == [("GP838", C)]
    assert brought.details[B].digests == (pushed.by_digest,)
    assert id_of(deploy_fleet[B], pushed.reference) == ""


def test_dockerd_restarted_in_the_middle_of_a_pull(
    deploy_fleet: Fleet, inventory: Inventory, registry: Registry
) -> None:
    pushed = registry.push("team/engine", "1.0", archive(BUILT), padding=8 * MIB)

    def restart() -> None:
        wait_for("a pull under way", lambda: any("/blobs/" in request for request in registry.asked))
        deploy_fleet[B].stop_dockerd()
        registry.faults.stall_after = None
        deploy_fleet[B].start_dockerd()
        deploy_fleet[B].await_dockerd()

    with opened(deploy_fleet, inventory, A, B) as fleet, ThreadPoolExecutor(1) as beside:
        assert bring_images(fleet, (A,), pushed.reference, emit=lambda _: None, environ={}).failures == ()
        registry.faults.stall_after = 2 * MIB
        registry.asked.clear()
        restarted = beside.submit(restart)
        brought = bring_images(
            fleet, (A, B), pushed.reference, policy="registry", emit=lambda _: None, environ={}
        )
        restarted.result()
    assert brought.failures == ()
    assert brought.ids == {A: pushed.id, B: pushed.id}
    blobs = Counter(request for request in registry.asked if "/blobs/" in request)
    assert max(blobs.values()) >= 2


def test_what_no_registry_has(deploy_fleet: Fleet, inventory: Inventory, registry: Registry) -> None:
    with opened(deploy_fleet, inventory, A, B) as fleet:
        brought = bring_images(
            fleet, (A, B), f"{registry.place}/team/none:1", emit=lambda _: None, environ={}
        )
        assert codes(brought.failures) == [("GP836", A)]
        registry.faults.status = 403
        brought = bring_images(
            fleet, (A, B), f"{registry.place}/team/none:1", emit=lambda _: None, environ={}
        )
        assert codes(brought.failures) == [("GP837", A)]


# ---------------------------------------------------------------------- what is in an image


def test_what_is_in_an_image_is_asked_and_nothing_is_left(
    deploy_fleet: Fleet, inventory: Inventory, tmp_path: Path
) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    with opened(deploy_fleet, inventory, A) as fleet:
        facts = image_facts(fleet, A, image_id(STAND_IN), environ)
        deploy_fleet[A].load(BUILT)
        bare = image_facts(fleet, A, image_id(BUILT), environ)
    assert (facts.vllm_version, facts.ray_version, facts.vllm_command) == ("0.33.0", "2.53.0", True)
    assert (facts.architecture, facts.cuda_version) == ("x86_64", "12.9.1")
    assert facts.python_version is not None
    assert (bare.vllm_version, bare.python_version, bare.vllm_command) == (None, None, False)
    assert deploy_fleet[A].text("docker", "ps", "-aq") == ""


# ---------------------------------------------------------------------- the model


def model(path: str) -> Model:
    return Model(profile=nothing_known(path), category=Category.LLM, path=path)


def test_a_model_that_is_missing_or_shorter_on_one_host(deploy_fleet: Fleet, inventory: Inventory) -> None:
    path = lay_model(deploy_fleet[A])
    lay_model(deploy_fleet[B])
    with opened(deploy_fleet, inventory, A, B, C) as fleet:
        place = locate(path, model(path), inventory, fleet, (A, B))
        assert place.model == DirectoryModel(paths={A: path, B: path}, inside="/models/tiny")
        assert place.facts == ()
        assert codes(locate(path, model(path), inventory, fleet, (A, B, C)).facts) == [("GP840", C)]
        shorten(deploy_fleet[B], path)
        short = locate(path, model(path), inventory, fleet, (A, B))
    assert codes(short.facts) == [("GP842", B)]
    assert (short.facts[0].figures["bytes"], short.facts[0].figures["have"]) == (100_000, A)


def test_a_download_as_the_login_with_a_token_that_nothing_shows(
    deploy_fleet: Fleet, inventory: Inventory
) -> None:
    for name in (A, B):
        deploy_fleet[name].load(WITH_HUB)
    inspected: dict[str, str] = {}

    def told(event: Event) -> None:
        if isinstance(event, Transfer) and event.done_bytes > MIB and event.host not in inspected:
            host = deploy_fleet[event.host]
            containers = json.loads(host.run("sh", "-c", "docker inspect $(docker ps -q)").stdout)
            inspected[event.host] = json.dumps(containers) + host.text("ps", "-eo", "args")
            host.write(f"{HUGGINGFACE}/go", "")

    with opened(deploy_fleet, inventory, A, B) as fleet:
        place = locate(ID, model(ID), inventory, fleet, (A, B))
        assert (place.model, place.missing) == (HubModel(id=ID), (A, B))
        done = bring_weights(
            fleet,
            place,
            inventory,
            image_ids=dict.fromkeys((A, B), image_id(WITH_HUB)),
            emit=told,
            secrets=SecretValues({TOKEN: SECRET}),
        )
    assert (done.facts, done.missing, done.model) == ((), (), HubModel(id=ID))
    for name in (A, B):
        assert SECRET not in inspected[name]
        assert "gpuplan-helper-weights" in inspected[name]
        assert deploy_fleet[name].text("cat", f"{HUGGINGFACE}/seen") == str(len(SECRET))
        assert deploy_fleet[name].text("docker", "ps", "-aq") == ""


def test_a_download_that_fills_the_disk(deploy_fleet: Fleet, inventory: Inventory) -> None:
    deploy_fleet[A].load(WITH_HUB)
    with opened(deploy_fleet, inventory, A) as fleet:
        place = locate(ID, model(ID), inventory, fleet, (A,))
        too_much = brought_weights(fleet, inventory, place_bytes=2**50)
        deploy_fleet[A].fill("/srv/models", leave=MIB)
        done = bring_weights(fleet, place, inventory, image_ids={A: image_id(WITH_HUB)}, emit=lambda _: None)
    assert codes(too_much) == [("GP844", A)]
    assert codes(done.facts) == [("GP845", A)]
    assert done.facts[0].figures["free_bytes"] < MIB
    assert deploy_fleet[A].text("docker", "ps", "-aq") == ""


def brought_weights(fleet: OpenFleet, inventory: Inventory, *, place_bytes: int) -> Sequence[Fact]:
    place = locate(ID, model(ID), inventory, fleet, (A,))
    ids: Mapping[str, str] = {A: image_id(WITH_HUB)}
    return bring_weights(
        fleet, place, inventory, image_ids=ids, emit=lambda _: None, expected_bytes=place_bytes
    ).facts

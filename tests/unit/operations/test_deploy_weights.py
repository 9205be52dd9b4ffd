"""Weights downloaded where they are missing: what is run there, how far it is, how it ends, what it leaves."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuplan.deploying.weights_download import TOKEN, helper_name
from gpuplan.domain.deployment import (
    ContainerRole,
    ContainerSpec,
    DeploymentSpec,
    HubModel,
    Mount,
    SecretValues,
)
from gpuplan.domain.events import Event, Phase, Transfer
from gpuplan.domain.inventory import VllmSettings
from gpuplan.operations.deploy_weights import bring_weights, prepare_directories
from gpuplan.operations.helper_containers import Files
from gpuplan.operations.host_directories import one_of_each
from gpuplan.operations.served_model import ModelPlace, WantedModel, look
from gpuplan.remote.connection import ConnectionFailed, HostCallFailed, Stage
from gpuplan.remote.docker_engine import RequestRefused
from tests.local_hosts import LocalHosts
from tests.model_files import COMMIT, in_cache, model_files

ID = "org/model"
WANTED = WantedModel(name="model", id=ID)
SECRET = "hf_AbCdEfGhIjKlMnOpQrStUvWx"
DONE = ("gpuplan-download total 1000", "gpuplan-download done 400", "gpuplan-download complete " + COMMIT)


class FakeHelpers:
    """Containers that print lines; one that says it is complete has filled the host's cache."""

    def __init__(self, hosts: LocalHosts, **lines: tuple[str | HostCallFailed, ...]) -> None:
        self._hosts = hosts
        self._lines = lines
        self.begun: dict[str, Mapping[str, Any]] = {}
        self.files: dict[str, Files | None] = {}
        self.names: list[str] = []
        self.removed: list[str] = []
        self.refused: dict[str, HostCallFailed] = {}
        self.fill: Callable[[str], None] = self._fill
        self._lock = threading.Lock()

    def begin(self, host: str, name: str, body: Mapping[str, Any], files: Files | None) -> str:
        if host in self.refused:
            raise self.refused[host]
        with self._lock:
            self.begun[host] = body
            self.files[host] = files
            self.names.append(name)
        return f"container of {host}"

    def lines(self, host: str, container: str) -> Iterator[str]:
        pending = list(self._lines.get(host, DONE))
        for line in pending:
            if isinstance(line, HostCallFailed):
                self._lines[host] = tuple(pending[pending.index(line) + 1 :])
                raise line
            if line.startswith("gpuplan-download complete"):
                self.fill(host)
            yield line

    def exit_code(self, host: str, container: str) -> int | None:
        return 137

    def remove(self, host: str, container: str) -> None:
        self.removed.append(host)

    def _fill(self, host: str) -> None:
        in_cache(self._hosts.homes[host] / ".cache" / "huggingface", ID)


@pytest.fixture
def hosts(tmp_path: Path) -> LocalHosts:
    return LocalHosts(tmp_path, "h1", "h2")


def brought(
    hosts: LocalHosts,
    helpers: FakeHelpers,
    *,
    events: list[Event] | None = None,
    secrets: SecretValues | None = None,
    expected_bytes: int | None = None,
    config_only: bool = False,
) -> ModelPlace:
    told: list[Event] = [] if events is None else events
    place = look(WANTED, hosts.inventory, hosts, tuple(hosts.entries), config_only=config_only)
    return bring_weights(
        hosts,
        place,
        hosts.inventory,
        image_ids=dict.fromkeys(hosts.entries, "sha256:0"),
        emit=told.append,
        secrets=secrets or SecretValues(),
        expected_bytes=expected_bytes,
        config_only=config_only,
        helpers=helpers,
        pause=lambda _seconds: None,
    )


def told(place: ModelPlace) -> list[tuple[str, str]]:
    return [(item.code, item.subject["host"]) for item in place.facts]


def cached(hosts: LocalHosts, *names: str) -> None:
    for name in names:
        in_cache(hosts.homes[name] / ".cache" / "huggingface", ID)


def test_what_is_there_is_not_downloaded(hosts: LocalHosts) -> None:
    cached(hosts, "h1", "h2")
    helpers = FakeHelpers(hosts)
    assert brought(hosts, helpers).missing == ()
    assert helpers.begun == {}


def test_every_host_that_lacks_it_downloads_and_says_how_far_it_is(hosts: LocalHosts) -> None:
    helpers = FakeHelpers(hosts)
    events: list[Event] = []
    place = brought(hosts, helpers, events=events)
    assert (place.model, place.missing, place.facts) == (HubModel(id=ID), (), ())
    assert set(helpers.begun) == set(helpers.removed) == {"h1", "h2"}
    assert set(helpers.names) == {helper_name(HubModel(id=ID))}
    moved = [event for event in events if isinstance(event, Transfer)]
    assert {event.host for event in moved} == {"h1", "h2"}
    assert all(event.phase is Phase.WEIGHTS for event in moved)
    assert (hosts.homes["h1"] / ".cache" / "huggingface" / "hub").is_dir()


def test_the_container_writes_as_the_owner_and_sees_nothing_but_the_cache(hosts: LocalHosts) -> None:
    helpers = FakeHelpers(hosts)
    brought(hosts, helpers)
    body = helpers.begun["h1"]
    assert body["User"] == f"{os.getuid()}:{os.getgid()}"
    assert [mount["Source"] for mount in body["HostConfig"]["Mounts"]] == [
        f"{hosts.homes['h1']}/.cache/huggingface"
    ]
    assert body["Cmd"] == [ID, "main", "", "no"]
    assert "DeviceRequests" not in body["HostConfig"]
    assert body["Labels"]["io.gpuplan.role"] == "helper"


def test_the_others_get_the_commit_that_one_host_has(hosts: LocalHosts) -> None:
    cached(hosts, "h1")
    helpers = FakeHelpers(hosts)
    assert brought(hosts, helpers).missing == ()
    assert list(helpers.begun) == ["h2"]
    assert helpers.begun["h2"]["Cmd"] == [ID, "main", COMMIT, "no"]


def test_the_token_is_a_file_and_nothing_else(hosts: LocalHosts) -> None:
    helpers = FakeHelpers(hosts, h1=("gpuplan-download failed denied bad token " + SECRET,))
    place = brought(hosts, helpers, secrets=SecretValues({TOKEN: SECRET}))
    files = helpers.files["h1"]
    assert files is not None
    assert files.contents == {TOKEN: SECRET.encode()}
    assert f"HF_TOKEN_PATH={files.directory}/{TOKEN}" in helpers.begun["h1"]["Env"]
    assert SECRET not in str(helpers.begun) + repr(place) + repr(files)
    assert told(place) == [("GP846", "h1")]
    assert place.facts[0].figures["token"] is True


def test_variables_that_concern_a_download_are_handed_on(tmp_path: Path) -> None:
    env = (
        ("HF_ENDPOINT", "http://mirror.lan"),
        ("HF_HUB_OFFLINE", "0"),
        ("NCCL_DEBUG", "INFO"),
        ("https_proxy", "p"),
    )
    hosts = LocalHosts(tmp_path, "h1", settings=VllmSettings(env=env, user="1000:1001"))
    helpers = FakeHelpers(hosts)
    brought(hosts, helpers)
    variables = helpers.begun["h1"]["Env"]
    assert {"HF_ENDPOINT=http://mirror.lan", "https_proxy=p"} <= set(variables)
    assert not any(name.startswith(("NCCL", "HF_HUB_OFFLINE")) for name in variables)
    assert helpers.begun["h1"]["User"] == "1000:1001"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("full No space left on device", "GP845"),
        ("gated Access to model org/model is restricted", "GP846"),
        ("denied 403 Client Error", "GP846"),
        ("not_found 404 Client Error", "GP847"),
        ("no_revision 404 Client Error", "GP847"),
        ("network [Errno -3] Temporary failure in name resolution", "GP848"),
        ("limited 429 Client Error", "GP848"),
        ("unwritable [Errno 13] Permission denied", "GP849"),
        ("unheard of", "GP848"),
    ],
)
def test_why_a_download_failed(hosts: LocalHosts, line: str, code: str) -> None:
    cached(hosts, "h1")
    helpers = FakeHelpers(hosts, h2=("gpuplan-download done 40", f"gpuplan-download failed {line}"))
    place = brought(hosts, helpers)
    assert told(place) == [(code, "h2")]
    figures = place.facts[0].figures
    assert (figures["model"], figures["done_bytes"], figures["token"]) == (ID, 40, False)
    assert line.partition(" ")[2] in figures["detail"]
    assert helpers.removed == ["h2"]
    if code == "GP845":
        assert figures["free_bytes"] > 0
        assert figures["device"]


def test_a_container_that_ends_without_a_word_is_told_with_its_last_line(hosts: LocalHosts) -> None:
    cached(hosts, "h1")
    helpers = FakeHelpers(hosts, h2=("Traceback (most recent call last):", "MemoryError"))
    place = brought(hosts, helpers)
    assert told(place) == [("GP848", "h2")]
    assert "status 137" in place.facts[0].figures["detail"]
    assert "MemoryError" in place.facts[0].figures["detail"]


def test_an_image_without_python(hosts: LocalHosts) -> None:
    cached(hosts, "h1")
    helpers = FakeHelpers(hosts)
    helpers.refused["h2"] = RequestRefused(400, 'exec: "python3": executable file not found in $PATH')
    place = brought(hosts, helpers)
    assert (told(place), place.facts[0].figures["ending"]) == ([("GP848", "h2")], "no_library")


def test_a_connection_that_breaks_is_taken_up_again(hosts: LocalHosts) -> None:
    cached(hosts, "h1")
    cut = ConnectionFailed(Stage.COMMAND, "connection reset")
    helpers = FakeHelpers(hosts, h2=("gpuplan-download done 40", cut, *DONE))
    assert brought(hosts, helpers).facts == ()
    assert hosts.reopened == ["h2"]
    assert list(helpers.begun) == ["h2"]


def test_a_connection_that_stays_away_is_a_failure_and_its_container_is_removed_if_it_can(
    hosts: LocalHosts,
) -> None:
    cached(hosts, "h1")
    cuts = tuple(ConnectionFailed(Stage.COMMAND, f"reset {number}") for number in range(20))
    helpers = FakeHelpers(hosts, h2=cuts)
    assert told(brought(hosts, helpers)) == [("GP848", "h2")]
    assert helpers.removed == ["h2"]


def test_whatever_ends_it_the_containers_are_removed(hosts: LocalHosts) -> None:
    helpers = FakeHelpers(hosts, h1=DONE, h2=DONE)
    waiting = threading.Event()

    def fill(_host: str) -> None:
        waiting.wait(20)

    def interrupted(_event: Event) -> None:
        raise KeyboardInterrupt

    helpers.fill = fill
    place = look(WANTED, hosts.inventory, hosts, ("h1", "h2"))
    try:
        with pytest.raises(KeyboardInterrupt):
            bring_weights(
                hosts,
                place,
                hosts.inventory,
                image_ids=dict.fromkeys(("h1", "h2"), "sha256:0"),
                emit=interrupted,
                helpers=helpers,
            )
    finally:
        waiting.set()
    assert set(helpers.removed) == set(helpers.begun)


def test_a_disk_that_is_too_small_is_told_before_anything_is_begun(hosts: LocalHosts) -> None:
    cached(hosts, "h1")
    helpers = FakeHelpers(hosts)
    place = brought(hosts, helpers, expected_bytes=2**60)
    assert told(place) == [("GP844", "h2")]
    assert place.facts[0].figures["needed_bytes"] == 2**60
    assert helpers.begun == {}


def test_a_download_that_says_it_is_complete_and_is_not(hosts: LocalHosts) -> None:
    cached(hosts, "h1")
    helpers = FakeHelpers(hosts)
    helpers.fill = lambda _host: None
    place = brought(hosts, helpers)
    assert (told(place), place.facts[0].figures["ending"]) == ([("GP848", "h2")], "incomplete")


def test_only_the_configuration_where_no_weights_are_read(hosts: LocalHosts) -> None:
    helpers = FakeHelpers(hosts)
    small = {name: content for name, content in model_files().items() if not name.endswith("safetensors")}
    helpers.fill = lambda host: _small(hosts, host, small)
    assert brought(hosts, helpers, config_only=True).facts == ()
    assert helpers.begun["h1"]["Cmd"][-1] == "yes"


def _small(hosts: LocalHosts, host: str, files: Mapping[str, bytes]) -> None:
    in_cache(hosts.homes[host] / ".cache" / "huggingface", ID, files)


def test_a_cache_that_cannot_be_made(hosts: LocalHosts) -> None:
    (hosts.homes["h2"] / ".cache").write_text("")
    helpers = FakeHelpers(hosts)
    place = brought(hosts, helpers)
    assert told(place) == [("GP849", "h2")]
    assert helpers.begun == {}


# ---------------------------------------------------------------------- directories


def test_hosts_that_share_a_directory_are_found_by_a_file(hosts: LocalHosts, tmp_path: Path) -> None:
    shared = tmp_path / "nas"
    shared.mkdir()
    same = {"h1": str(shared), "h2": str(shared)}
    own = {name: str(home) for name, home in hosts.homes.items()}
    nas = dict.fromkeys(("h1", "h2"), "nas:/export")
    assert one_of_each(("h1", "h2"), hosts, directories=same, devices=nas) == ("h1",)
    assert one_of_each(("h1", "h2"), hosts, directories=own, devices=nas) == ("h1", "h2")
    assert list(shared.iterdir()) == []
    asked = len(hosts.connections["h1"].scripts)
    disks = dict.fromkeys(("h1", "h2"), "/dev/sda1")
    assert one_of_each(("h1", "h2"), hosts, directories=same, devices=disks) == ("h1", "h2")
    assert len(hosts.connections["h1"].scripts) == asked


def spec(*mounts: tuple[str, Mount]) -> DeploymentSpec:
    containers = tuple(
        ContainerSpec(
            host=host, name="c", role=ContainerRole.SINGLE, image="i", entrypoint=("vllm",), mounts=(mount,)
        )
        for host, mount in mounts
    )
    return DeploymentSpec(
        name="d",
        model="m",
        served_name="m",
        vllm_version="0.33.0",
        image="i",
        servers=(),
        containers=containers,
    )


def test_directories_that_are_ours_are_made_and_no_others(hosts: LocalHosts, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a b" / "cache", tmp_path / "models"
    plan = spec(
        ("h1", Mount(source=str(ours), target="/cache", make=True)),
        ("h2", Mount(source="~/cache", target="/cache", make=True)),
        ("h2", Mount(source=str(theirs), target="/models")),
    )
    assert prepare_directories(hosts, plan, lambda _event: None) == ()
    assert ours.is_dir()
    assert (hosts.homes["h2"] / "cache").is_dir()
    assert not theirs.exists()
    assert prepare_directories(hosts, plan, lambda _event: None) == ()


def test_a_directory_that_cannot_be_made_is_told_with_the_hosts_words(
    hosts: LocalHosts, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    plan = spec(("h1", Mount(source=str(tmp_path / "file" / "cache"), target="/c", make=True)))
    (fact,) = prepare_directories(hosts, plan, lambda _event: None)
    assert (fact.code, fact.subject["host"], fact.figures["user"]) == ("GP849", "h1", "ada")
    assert "Not a directory" in fact.figures["detail"]
    hosts.connections["h1"].lost = True
    (fact,) = prepare_directories(hosts, plan, lambda _event: None)
    assert fact.code == "GP636"

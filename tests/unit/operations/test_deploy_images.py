"""One build on every host: where it is taken from, what is told, what ends it; with engines in memory."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuplan.domain.events import Event, Phase, Remark, Transfer
from gpuplan.domain.fact import Severity
from gpuplan.domain.fleet import Fleet, Host
from gpuplan.operations.deploy_images import Brought, bring_images
from gpuplan.operations.image_stores import THIS_MACHINE
from gpuplan.remote.docker_engine import Cause, EngineFailed
from gpuplan.remote.images import ImageDetails, LoadFailed, PullCause, PullFailed
from tests.image_stores import SIZE, TAG, FakeStores, build, cut, unreached
from tests.preflights import host as whole_host

if TYPE_CHECKING:
    from gpuplan.remote.connection import HostCallFailed

HOSTS = ("h1", "h2", "h3")


class Opened:
    """Hosts that were probed."""

    def __init__(self, *hosts: Host) -> None:
        self.fleet = Fleet(hosts=hosts or tuple(whole_host(name) for name in HOSTS))

    def engine_of(self, host: str) -> Any:
        raise AssertionError("the engines are in memory")

    def reopen(self, host: str) -> None:
        raise AssertionError("the engines are in memory")


def bring(
    stores: FakeStores,
    *,
    policy: str = "auto",
    events: list[Event] | None = None,
    opened: Opened | None = None,
    reference: str = TAG,
    hosts: tuple[str, ...] = HOSTS,
) -> Brought:
    told: list[Event] = [] if events is None else events
    return bring_images(
        opened or Opened(),
        hosts,
        reference,
        policy=policy,
        emit=told.append,
        environ={},
        stores=stores,
        pause=lambda _seconds: None,
    )


def codes(brought: Brought) -> list[tuple[str, str, str]]:
    return [(item.code, item.subject["host"], item.severity.value) for item in brought.facts]


def ids(*builds: ImageDetails) -> dict[str, str]:
    return dict(zip(HOSTS, (item.id for item in builds), strict=True))


def test_what_is_everywhere_is_not_touched() -> None:
    a = build()
    stores = FakeStores(h1=a, h2=a, h3=a)
    brought = bring(stores)
    assert (brought.ids, brought.facts) == (ids(a, a, a), ())
    assert {call[0] for call in stores.calls} == {"inspect"}


def test_the_leaders_build_is_pulled_by_digest_and_no_tag_is_moved() -> None:
    a, b = build("a"), build("b")
    stores = FakeStores(h1=a, h2=b)
    stores.registry[a.digests[0]] = a
    events: list[Event] = []
    brought = bring(stores, events=events)
    assert brought.ids == ids(a, a, a)
    assert sorted(stores.made("pull")) == [("h2", a.digests[0]), ("h3", a.digests[0])]
    assert stores.tags["h2", TAG] == b.id
    assert stores.made("copy") == []
    assert codes(brought) == [("GP832", "h2", "info")]
    assert [event.fact.code for event in events if isinstance(event, Remark)] == ["GP832"]
    moved = [event for event in events if isinstance(event, Transfer)]
    assert {event.host for event in moved} == {"h2", "h3"}
    assert all(event.phase is Phase.IMAGE and event.total_bytes == SIZE for event in moved)


def test_a_host_without_a_way_to_the_registry_is_given_it_by_one_that_has_it() -> None:
    a = build()
    stores = FakeStores(h1=a)
    stores.registry[a.digests[0]] = a
    stores.refused["h3"] = unreached()
    brought = bring(stores)
    assert brought.ids == ids(a, a, a)
    assert stores.made("copy") == [("h1", "h3", a.id)]
    assert codes(brought) == [("GP838", "h3", "info")]
    assert brought.facts[0].figures["source"] == "h1"


def test_a_build_that_is_in_no_registry_is_copied_by_its_id() -> None:
    a = build(digest=False)
    stores = FakeStores(h1=a, h2=build("b"))
    brought = bring(stores)
    assert brought.ids == ids(a, a, a)
    assert stores.made("pull") == []
    assert sorted(stores.made("copy")) == [("h1", "h2", a.id), ("h1", "h3", a.id)]


def test_the_build_is_found_on_a_host_under_no_name() -> None:
    a = build()
    stores = FakeStores(h1=a, h2=build("b"), h3=a)
    stores.put("h2", a)
    assert bring(stores).ids == ids(a, a, a)
    assert stores.made("pull") == stores.made("copy") == []


def test_a_store_that_counts_ids_its_own_way_is_the_same_build_by_digest() -> None:
    a = build()
    other = replace(a, id="sha256:" + "9" * 64)
    stores = FakeStores(h1=a, h2=other, h3=a)
    assert bring(stores).ids == ids(a, other, a)


def test_a_copy_into_a_store_that_counts_ids_its_own_way_is_known_by_the_id_it_has_there() -> None:
    a = build(digest=False)
    stores = FakeStores(h1=a, h2=a)
    stores.renamed = lambda details: replace(details, id="sha256:" + "9" * 64)
    assert bring(stores).ids["h3"] == "sha256:" + "9" * 64


def test_nobody_has_it_the_leader_pulls_the_tag_and_the_others_its_digest() -> None:
    a = build()
    stores = FakeStores()
    stores.registry = {TAG: a, a.digests[0]: a}
    brought = bring(stores)
    assert brought.ids == ids(a, a, a)
    assert stores.made("pull")[0] == ("h1", TAG)
    assert sorted(stores.made("pull")[1:]) == [("h2", a.digests[0]), ("h3", a.digests[0])]


def test_the_leader_lacks_it_and_gets_the_build_another_host_has() -> None:
    a = build()
    stores = FakeStores(h2=a)
    stores.registry[a.digests[0]] = a
    assert bring(stores).ids == ids(a, a, a)
    stores = FakeStores(h2=a)
    stores.refused = dict.fromkeys(HOSTS, unreached())
    assert bring(stores).ids == ids(a, a, a)
    assert sorted(stores.made("copy")) == [("h2", "h1", a.id), ("h2", "h3", a.id)]


def test_only_another_host_reaches_the_registry() -> None:
    a = build()
    stores = FakeStores()
    stores.registry = {TAG: a, a.digests[0]: a}
    stores.refused = {"h1": unreached(), "h3": unreached()}
    brought = bring(stores)
    assert brought.ids == ids(a, a, a)
    assert sorted(stores.made("copy")) == [("h2", "h1", a.id), ("h2", "h3", a.id)]
    assert brought.failures == ()


def test_an_image_of_this_machine_is_copied_from_it() -> None:
    a = build(digest=False)
    stores = FakeStores()
    stores.put(THIS_MACHINE, a, TAG)
    brought = bring(stores)
    assert brought.ids == ids(a, a, a)
    assert stores.made("pull") == [("h1", TAG)]
    assert {call[0] for call in stores.made("copy")} == {THIS_MACHINE}


def test_nobody_has_it_and_nobody_gives_it() -> None:
    stores = FakeStores()
    brought = bring(stores)
    assert (codes(brought), brought.ids) == ([("GP836", "h1", "error")], {})
    stores.refused = dict.fromkeys(HOSTS, unreached())
    assert codes(bring(stores)) == [("GP838", "h1", "error")]


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (PullCause.DENIED, "GP837"),
        (PullCause.RATE_LIMITED, "GP838"),
        (PullCause.STALLED, "GP838"),
        (PullCause.WRONG_ARCHITECTURE, "GP833"),
        (PullCause.NO_SPACE, "GP835"),
    ],
)
def test_why_a_pull_failed(cause: PullCause, code: str) -> None:
    stores = FakeStores()
    stores.refused = dict.fromkeys(HOSTS, PullFailed(cause, "hf_abcdefghijklmnopqrstuvwx said no"))
    brought = bring(stores, policy="registry")
    assert codes(brought) == [(code, "h1", "error")]
    assert "hf_abc" not in str(brought.facts[0].figures)


def test_never_brings_nothing_and_tells_of_every_host() -> None:
    stores = FakeStores(h1=build("a"), h2=build("b"))
    brought = bring(stores, policy="never")
    assert codes(brought) == [("GP832", "h2", "error"), ("GP831", "h3", "error")]
    assert {call[0] for call in stores.calls} == {"inspect"}
    assert codes(bring(FakeStores(), policy="never")) == [("GP831", "h1", "error")]


def test_fleet_asks_no_registry_and_registry_copies_nothing() -> None:
    a = build()
    stores = FakeStores(h1=a)
    stores.registry[a.digests[0]] = a
    assert bring(stores, policy="fleet").ids == ids(a, a, a)
    assert stores.made("pull") == []
    stores = FakeStores(h1=a)
    stores.refused = dict.fromkeys(HOSTS, unreached())
    assert {item.code for item in bring(stores, policy="registry").failures} == {"GP838"}
    assert stores.made("copy") == []


def test_a_tag_that_means_another_build_in_the_registry_is_a_failure_where_nothing_may_be_copied() -> None:
    a, b = build("a", digest=False), build("b")
    stores = FakeStores(h1=a, h2=a)
    stores.registry[TAG] = b
    brought = bring(stores, policy="registry")
    assert codes(brought) == [("GP839", "h3", "error")]


def test_a_host_of_another_architecture_is_told_before_anything_moves() -> None:
    a = build()
    spark = whole_host("h2")
    spark = replace(spark, facts=replace(spark.facts, architecture="aarch64"))
    stores = FakeStores(h1=a)
    stores.registry[a.digests[0]] = a
    brought = bring(stores, opened=Opened(whole_host("h1"), spark, whole_host("h3")))
    assert codes(brought) == [("GP833", "h2", "error")]
    assert brought.facts[0].figures["image_architecture"] == "x86_64"
    assert brought.facts[0].figures["host_architecture"] == "aarch64"
    assert stores.made("pull") == []


def test_a_disk_that_is_too_small_is_told_before_anything_moves() -> None:
    small = whole_host("h2")
    disks = tuple(replace(item, free_bytes=SIZE - 1) for item in small.facts.disks)
    small = replace(small, facts=replace(small.facts, disks=disks))
    stores = FakeStores(h1=build())
    brought = bring(stores, opened=Opened(whole_host("h1"), small, whole_host("h3")))
    assert codes(brought) == [("GP834", "h2", "error")]
    figures = brought.facts[0].figures
    assert (figures["needed_bytes"], figures["path"], figures["device"]) == (SIZE, "/var/lib/docker", "sda")
    assert stores.made("pull") == stores.made("copy") == []


def test_a_pull_that_broke_off_is_begun_again_when_the_engine_is_back() -> None:
    a = build()
    stores = FakeStores(h1=a)
    stores.registry[a.digests[0]] = a
    restarting = EngineFailed(Cause.NOT_RUNNING, "connection refused")
    stores.pull_faults["h2"] = [
        PullFailed(PullCause.LOST, "unexpected EOF"),
        PullFailed(PullCause.LOST, "EOF"),
    ]
    stores.pull_faults["h3"] = [PullFailed(PullCause.LOST, "the link is down")]
    bring_host = stores.inspect
    waits: dict[str, list[HostCallFailed]] = {"h2": [restarting, restarting], "h3": [cut()]}

    def inspect(host: str, reference: str) -> ImageDetails | None:
        if any(call[:2] == ("pull", host) for call in stores.calls) and waits.get(host):
            stores.calls.append(("inspect", host, reference))
            raise waits[host].pop(0)
        return bring_host(host, reference)

    stores.inspect = inspect  # type: ignore[method-assign]  # a question that fails after the pull did
    brought = bring(stores)
    assert brought.ids == ids(a, a, a)
    assert len([call for call in stores.made("pull") if call[0] == "h2"]) == 3
    assert stores.made("reopen") == [("h3",)]


def test_an_engine_that_keeps_going_away_is_given_up() -> None:
    a = build()
    stores = FakeStores(h1=a, h3=a)
    stores.registry[a.digests[0]] = a
    stores.pull_faults["h2"] = [PullFailed(PullCause.LOST, "EOF")] * 9
    stores.copy_faults["h2"] = [LoadFailed(PullCause.LOST, "EOF")] * 9
    brought = bring(stores, policy="registry")
    assert codes(brought) == [("GP830", "h2", "error")]
    assert len(stores.made("pull")) == 3


def test_a_disk_that_gets_full_is_not_tried_from_another_source() -> None:
    a = build()
    stores = FakeStores(h1=a, h3=a)
    stores.refused["h2"] = PullFailed(PullCause.NO_SPACE, "write /layer: no space left on device")
    brought = bring(stores)
    assert codes(brought) == [("GP835", "h2", "error")]
    assert brought.facts[0].figures["path"] == "/var/lib/docker"
    assert stores.made("copy") == []


def test_a_copy_that_fails_names_the_end_that_is_at_fault() -> None:
    a = build(digest=False)
    stores = FakeStores(h1=a, h3=a)
    stores.copy_faults["h2"] = [LoadFailed(PullCause.OTHER, "bad layer", at_source=True)]
    brought = bring(stores)
    assert codes(brought) == [("GP839", "h2", "error")]
    assert brought.facts[0].figures["at_source"] == "h1"


def test_an_engine_that_does_not_answer_is_the_failure_of_its_host() -> None:
    stores = FakeStores(h1=build())
    stores.silent["h2"] = [EngineFailed(Cause.PERMISSION, "permission denied")]
    assert codes(bring(stores)) == [("GP622", "h2", "error")]
    stores.silent["h2"] = [cut()]
    assert codes(bring(stores)) == [("GP830", "h2", "error")]


def archive(path: Path, details: ImageDetails) -> Path:
    manifest = json.dumps(
        [{"Config": f"{details.id.removeprefix('sha256:')}.json", "RepoTags": [TAG]}]
    ).encode()
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(manifest)
        tar.addfile(entry, io.BytesIO(manifest))
    return path


def test_an_archive_is_loaded_on_the_leader_and_copied_to_the_others(tmp_path: Path) -> None:
    a, b = build("a", digest=False), build("b")
    file = archive(tmp_path / "image.tar", a)
    stores = FakeStores(h1=b)
    stores.archives["image.tar"] = a
    brought = bring(stores, policy=str(file))
    assert brought.ids == ids(a, a, a)
    assert stores.tags["h1", TAG] == b.id
    assert {call[0] for call in stores.made("copy")} == {"h1"}
    again = bring(stores, policy=str(file))
    assert again.ids == brought.ids
    assert len(stores.made("load")) == 1


def test_an_archive_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    class Real(FakeStores):
        def load(self, host: str, path: Path, on_progress: Any) -> tuple[str, ...]:
            return (str(path.stat()),)

    brought = bring(Real(), policy=str(tmp_path / "none.tar"))
    assert codes(brought) == [("GP839", "h1", "error")]
    assert "no such file" in brought.facts[0].figures["detail"]


def test_what_is_told_is_told_in_order_and_no_more_than_needed() -> None:
    a = build()

    class Chatty(FakeStores):
        def pull(self, host: str, reference: str, on_progress: Any) -> None:
            for done in range(1000):
                on_progress(done, 1000, "downloading")
            super().pull(host, reference, on_progress)

    stores = Chatty(h1=a, h3=a)
    stores.registry[a.digests[0]] = a
    events: list[Event] = []
    assert bring(stores, events=events).failures == ()
    done = [event.done_bytes for event in events if isinstance(event, Transfer)]
    assert done[-1] == SIZE
    assert len(done) < 100
    assert all(item.severity is not Severity.ERROR for item in bring(stores).facts)

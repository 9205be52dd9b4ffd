"""Stopping one deployment never leaves less, and changes nothing that the others have."""

from hypothesis import given
from hypothesis import strategies as st

from gpuplan.domain.fleet import Fleet, Gpu, GpuProcess, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.domain.plan import Owner
from gpuplan.planning.allocatable import Account, account, ours_by_gpu, ours_on
from gpuplan.planning.released import released

TOTAL = 1000
AMOUNTS = st.integers(0, 1200)
UUIDS = ("GPU-0", "GPU-1", None)
INSIDE = st.sampled_from((None, "ours-0", "ours-1", "ours-2", "stranger"))
PROCESSES = st.lists(
    st.builds(GpuProcess, pid=st.integers(1, 9), used_bytes=st.one_of(st.none(), AMOUNTS), container=INSIDE),
    max_size=5,
).map(tuple)


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    unified = draw(st.booleans())
    gpus = tuple(
        Gpu(
            index=index,
            name="card",
            uuid=draw(st.sampled_from((UUIDS[index], None))),
            total_bytes=TOTAL,
            free_bytes=draw(st.one_of(st.none(), st.integers(0, TOTAL))),
            processes=draw(PROCESSES),
            reserved_bytes=draw(st.integers(0, 100)),
            unified=unified,
        )
        for index in range(2)
    )
    containers = tuple(
        OurContainer(
            id=str(number) * 64,
            name=f"ours-{number}",
            deployment=f"d{draw(st.integers(0, 1))}",
            state=draw(st.sampled_from(("running", "created", "paused", "exited"))),
            gpus=draw(st.sampled_from((("GPU-0",), ("GPU-1",), ("GPU-0", "GPU-1")))),
            claims=draw(st.sampled_from(((), (("GPU-0", draw(AMOUNTS)), ("GPU-1", draw(AMOUNTS)))))),
            loading=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 3)))
    )
    return Host(
        name="h",
        gpus=gpus,
        ram_total_bytes=4000,
        ram_available_bytes=draw(st.one_of(st.none(), st.integers(0, 4000))),
        facts=HostFacts(docker=Docker(containers=containers)),
    )


def accounts(host: Host) -> list[Account]:
    ours = ours_by_gpu(host)
    return [account(gpu, ours_on(gpu, ours), host) for gpu in host.gpus]


def of_others(made: Account) -> list[tuple[str, str | None, int | None]]:
    return [
        (holding.owner.value, holding.container, holding.bytes)
        for holding in made.held
        if (holding.owner is Owner.OURS and holding.name == "d1") or holding.owner is Owner.PROCESS
    ]


@given(seen=hosts())
def test_a_gpu_never_offers_less_than_before(seen: Host) -> None:
    (left,) = released(Fleet(hosts=(seen,)), "d0").hosts
    for before, after, gpu in zip(accounts(seen), accounts(left), left.gpus, strict=True):
        assert before.allocatable_bytes <= after.allocatable_bytes <= TOTAL
        assert gpu.free_bytes is None or gpu.free_bytes <= TOTAL


@given(seen=hosts())
def test_what_the_others_hold_stays(seen: Host) -> None:
    (left,) = released(Fleet(hosts=(seen,)), "d0").hosts
    for before, after in zip(accounts(seen), accounts(left), strict=True):
        assert of_others(before) == of_others(after)


@given(seen=hosts())
def test_once_released_there_is_nothing_more_to_release(seen: Host) -> None:
    fleet = released(Fleet(hosts=(seen,)), "d0")
    assert released(fleet, "d0") == fleet

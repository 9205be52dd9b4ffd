"""What a GPU can give is never optimistic, and moves the right way with everything it is made of."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpuplan.domain.deployment import ENDED
from gpuplan.domain.fleet import Gpu, GpuProcess, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.planning.allocatable import Account, account, ours_by_gpu

TOTAL = 1000
AMOUNTS = st.integers(0, 1200)
STATES = st.sampled_from(("running", "created", "paused", "restarting", "exited"))
INSIDE = st.sampled_from((None, "ours-0", "ours-1", "stranger"))
PROCESSES = st.lists(
    st.builds(GpuProcess, pid=st.integers(1, 9), used_bytes=st.one_of(st.none(), AMOUNTS), container=INSIDE),
    max_size=4,
).map(tuple)
GPUS = st.builds(
    Gpu,
    index=st.just(0),
    name=st.just("card"),
    uuid=st.just("GPU-0"),
    total_bytes=st.just(TOTAL),
    free_bytes=st.one_of(st.none(), st.integers(0, TOTAL)),
    processes=PROCESSES,
    reserved_bytes=st.integers(0, 100),
)


@st.composite
def containers(draw: st.DrawFn) -> tuple[OurContainer, ...]:
    return tuple(
        OurContainer(
            id=str(number) * 64,
            name=f"ours-{number}",
            deployment=f"d{number}",
            state=draw(STATES),
            gpus=("GPU-0",),
            claims=draw(st.sampled_from(((), (("GPU-0", draw(AMOUNTS)),)))),
            loading=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 2)))
    )


def counted(gpu: Gpu, ours: tuple[OurContainer, ...]) -> Account:
    host = Host(name="h", gpus=(gpu,), facts=HostFacts(docker=Docker(containers=ours)))
    return account(gpu, ours_by_gpu(host).get("GPU-0", ()), host)


def free_of(gpu: Gpu) -> int:
    return TOTAL if gpu.free_bytes is None else gpu.free_bytes


def claims_of(ours: tuple[OurContainer, ...]) -> int:
    return sum(size for one in ours if one.state not in ENDED for _, size in one.claims)


def strangers(gpu: Gpu, ours: tuple[OurContainer, ...]) -> int:
    names = {one.name for one in ours if one.state not in ENDED}
    return sum(process.used_bytes or 0 for process in gpu.processes if process.container not in names)


@given(gpu=GPUS, ours=containers())
def test_never_more_than_reported_nor_than_claims_and_others_leave(
    gpu: Gpu, ours: tuple[OurContainer, ...]
) -> None:
    made = counted(gpu, ours).allocatable_bytes
    assert 0 <= made <= max(0, free_of(gpu) - gpu.reserved_bytes)
    assert made <= max(0, TOTAL - claims_of(ours) - strangers(gpu, ours) - gpu.reserved_bytes)


@given(gpu=GPUS, ours=containers())
def test_holdings_add_up_to_what_cannot_be_claimed(gpu: Gpu, ours: tuple[OurContainer, ...]) -> None:
    made = counted(gpu, ours)
    held = sum(holding.bytes or 0 for holding in made.held)
    assert all(holding.bytes is None or holding.bytes >= 0 for holding in made.held)
    if made.allocatable_bytes > 0:
        assert held == TOTAL - made.allocatable_bytes
    else:
        assert held >= TOTAL


@given(gpu=GPUS, ours=containers(), more=st.integers(1, 300), first=st.booleans())
def test_a_larger_claim_never_leaves_more(
    gpu: Gpu, ours: tuple[OurContainer, ...], more: int, first: bool
) -> None:
    grown = tuple(
        replace(one, claims=(("GPU-0", sum(size for _, size in one.claims) + more),))
        if (number == 0) is first
        else one
        for number, one in enumerate(ours)
    )
    assert counted(gpu, grown).allocatable_bytes <= counted(gpu, ours).allocatable_bytes


@given(gpu=GPUS, ours=containers(), more=st.integers(1, 300))
def test_another_program_never_leaves_more(gpu: Gpu, ours: tuple[OurContainer, ...], more: int) -> None:
    before = counted(gpu, ours).allocatable_bytes
    program = GpuProcess(pid=99, used_bytes=more, container="stranger")
    named = replace(gpu, processes=(*gpu.processes, program))
    assert counted(named, ours).allocatable_bytes <= before
    seen = replace(named, free_bytes=max(0, free_of(gpu) - more))
    assert counted(seen, ours).allocatable_bytes <= before


@given(gpu=GPUS, ours=containers(), more=st.integers(1, 300))
def test_more_reported_free_never_leaves_less(gpu: Gpu, ours: tuple[OurContainer, ...], more: int) -> None:
    freer = replace(gpu, free_bytes=min(TOTAL, free_of(gpu) + more))
    assert counted(freer, ours).allocatable_bytes >= counted(gpu, ours).allocatable_bytes


@given(gpu=GPUS, ours=containers())
def test_a_start_that_is_not_over_never_leaves_more_than_one_that_is(
    gpu: Gpu, ours: tuple[OurContainer, ...]
) -> None:
    over = tuple(replace(one, state="running", loading=False) for one in ours if one.state not in ENDED)
    under_way = tuple(replace(one, loading=True) for one in over)
    assert counted(gpu, under_way).allocatable_bytes <= counted(gpu, over).allocatable_bytes


@given(
    claims=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), min_size=1, max_size=3),
    strangers=AMOUNTS,
    named=st.booleans(),
    reserve=st.integers(0, 100),
)
def test_what_ours_are_still_to_take_is_never_offered(
    claims: list[tuple[int, int]], strangers: int, named: bool, reserve: int
) -> None:
    """Each of ours grows from what it has to its claim; whoever else is there, named or not, stays."""
    ours = tuple(
        OurContainer(
            id=str(number) * 64,
            name=f"ours-{number}",
            deployment=f"d{number}",
            state="running",
            gpus=("GPU-0",),
            claims=(("GPU-0", claim),),
        )
        for number, (claim, _) in enumerate(claims)
    )
    now = tuple(
        GpuProcess(pid=number, used_bytes=min(has, claim), container=f"ours-{number}")
        for number, (claim, has) in enumerate(claims)
    )
    others = (GpuProcess(pid=9, used_bytes=strangers),) if named else ()
    used = sum(process.used_bytes or 0 for process in now) + strangers
    gpu = Gpu(
        index=0,
        name="card",
        uuid="GPU-0",
        total_bytes=TOTAL,
        free_bytes=max(0, TOTAL - used),
        processes=(*now, *others),
        reserved_bytes=reserve,
    )
    left = TOTAL - sum(claim for claim, _ in claims) - strangers - reserve
    assert counted(gpu, ours).allocatable_bytes <= max(0, left)
    if used <= TOTAL:
        assert counted(gpu, ours).allocatable_bytes == max(0, left)

"""Every signature matches what was really printed, none matches a healthy start, and the search stays fast on hostile text."""

from pathlib import Path

import pytest

from gpuplan.deploying.signature import CODES, Signature, Weight, compiled
from gpuplan.deploying.signatures import MOST, SIGNATURES, recognise, scan
from gpuplan.units import GIB, MIB

DATA = Path(__file__).parents[2] / "data"
ROWS = [line.split("\t", 1) for line in (DATA / "failure-lines.tsv").read_text().splitlines()]
HEALTHY = sorted(path for path in (DATA / "logs").glob("*.log") if not path.name.startswith("failed-"))


@pytest.mark.parametrize(("group", "line"), ROWS, ids=[f"{group}-{i}" for i, (group, _) in enumerate(ROWS)])
def test_a_real_line_is_of_its_class(group: str, line: str) -> None:
    (match,) = scan([line])
    assert match.signature.group == group
    assert match.signature.code == CODES[group]


def _only(signature: Signature, text: str) -> bool:
    if not any(needle in text for needle in signature.needles):
        return False
    return not signature.pattern or compiled(signature.pattern).search(text) is not None


@pytest.mark.parametrize("signature", SIGNATURES, ids=[f"{s.group}-{i}" for i, s in enumerate(SIGNATURES)])
def test_every_signature_has_a_line_it_matches(signature: Signature) -> None:
    assert any(_only(signature, line) for _, line in ROWS)


def test_the_table_is_large_and_every_class_has_a_code_of_its_own() -> None:
    assert len(SIGNATURES) >= 70
    assert len(set(CODES.values())) == len(CODES)
    assert {signature.group for signature in SIGNATURES} <= set(CODES)
    assert all("GP701" <= code <= "GP799" for code in CODES.values())


@pytest.mark.parametrize("path", HEALTHY, ids=[path.stem for path in HEALTHY])
def test_a_healthy_start_has_no_failure_in_it(path: Path) -> None:
    lines = path.read_text().split("\n")
    served = [number for number, line in enumerate(lines) if "Application startup complete" in line]
    assert scan(lines[: served[-1] + 1 if served else None]) == ()


def test_figures_are_numbers_with_sizes_in_bytes() -> None:
    (match,) = scan([next(line for group, line in ROWS if group == "MEM_WEIGHTS")])
    assert dict(match.figures) == {
        "wanted_bytes": int(1.88 * GIB),
        "gpu": 3,
        "total_bytes": int(21.96 * GIB),
        "free_bytes": int(1.29 * GIB),
    }
    (match,) = scan(
        [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 2 has a total capacity"
        ]
    )
    assert match.figures["wanted_bytes"] == 20 * MIB
    (match,) = scan([next(line for _, line in ROWS if "clients joined" in line)])
    assert dict(match.figures) == {"seconds": 601, "joined": 1, "members": 2}
    (match,) = scan([next(line for _, line in ROWS if "port: 29501" in line)])
    assert dict(match.figures) == {"port": 29501}


def test_matches_come_in_the_order_of_lines_and_one_a_line() -> None:
    lines = [
        "ok",
        "RuntimeError: Engine core initialization failed.",
        "ok",
        "CUDA out of memory.",
        "Broken pipe",
    ]
    assert [(match.index, match.signature.weight) for match in scan(lines)] == [
        (1, Weight.SECONDARY),
        (3, Weight.ROOT),
        (4, Weight.SECONDARY),
    ]


def test_words_that_are_only_quoted_are_no_failure() -> None:
    assert (
        scan(
            [
                "INFO 04-12 18:37:02 [logger.py:39] Received request x: prompt: 'why CUDA out of memory. ?'",
                "INFO 04-12 18:37:02 [utils.py:1] non-default args: {'model': 'No such image: x'}",
                "INFO 04-12 18:36:23 [core.py:61] Initializing a V1 LLM engine (v0.8.3) with config: trust_remote_code=True",
                '(EngineCore pid=1)     raise RuntimeError("Engine core initialization failed. "',
                '(EngineCore pid=1)         "No available memory for the cache blocks. "',
            ]
        )
        == ()
    )


def test_a_traceback_that_comes_in_colour_or_over_a_bar_is_read() -> None:
    coloured = "\x1b[1;36m(EngineCore pid=7)\x1b[0;0m \x1b[31mValueError\x1b[0m: No available memory for the cache \x1b[1mblocks"
    (match,) = scan([coloured])
    assert match.text == "ValueError: No available memory for the cache blocks"
    (match,) = scan(["Loading shards:  10%\rLoading shards:  20%\rRuntimeError: No CUDA GPUs are available"])
    assert match.signature.group == "GPU_NOT_SEEN"


def test_of_what_docker_answers_the_weightiest_is_meant() -> None:
    match = recognise(
        "failed to create task for container: failed to create shim task: OCI runtime create failed:\n"
        'runc create failed: exec: "vllm": executable file not found in $PATH: unknown'
    )
    assert match is not None
    assert (match.signature.group, match.figures["program"]) == ("RUN_127", "vllm")
    assert recognise("all is well") is None
    assert recognise("") is None


@pytest.mark.parametrize(
    "needle", sorted({needle for signature in SIGNATURES for needle in signature.needles})
)
def test_a_megabyte_around_a_needle_is_bounded_work(needle: str) -> None:
    for filler in ("x" * 1_000_000, needle * (1_000_000 // len(needle)), "(" * 500_000 + " " * 500_000):
        for match in scan([needle + filler, filler + needle]):
            assert len(match.text) < 9000
            assert all(not isinstance(value, str) or len(value) <= 400 for value in match.figures.values())


def test_a_loop_is_looked_at_so_often_and_no_more() -> None:
    assert len(scan(["recvValue failed on SocketImpl(fd=99)"] * (MOST + 500))) == MOST


def test_text_that_is_no_text_is_read() -> None:
    for line in ("\ufffd" * 500, "\x00\x01\x02", "[/bold] [link=x] 󠁁", "\u202eCUDA out of memory.\u202c", ""):
        assert len(scan([line])) <= 1
    assert scan([]) == ()


def test_numbers_that_are_none_do_not_stop_the_search() -> None:
    assert scan(
        [
            "Free memory on device (1.2.3/4 GiB) on startup is less than desired GPU memory utilization (0.9.9, 7 GiB)"
        ]
    )
    assert scan(["CUDA out of memory. Tried to allocate 1.2.3 GiB. GPU 0 has a total"])

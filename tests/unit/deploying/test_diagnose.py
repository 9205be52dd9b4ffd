"""The root cause over all members: by one clock, never a consequence, never a guess, never a secret."""

from pathlib import Path
from typing import Any

import pytest

from gpuplan.deploying.diagnose import SILENT_SECONDS, diagnose
from gpuplan.deploying.diagnosis import Diagnosis, MemberEvidence, RemoveFlag, Replan, RetryOtherPort
from gpuplan.deploying.signature import Weight
from gpuplan.domain.deployment import ContainerRole, Prediction
from gpuplan.domain.fact import Severity
from gpuplan.units import GIB

LOGS = Path(__file__).parents[2] / "data" / "logs"
ROWS = [line.split("\t", 1) for line in (LOGS.parent / "failure-lines.tsv").read_text().splitlines()]

OOM = (
    "(Worker_TP1 pid=9) ERROR 11-21 10:00:30 [multiproc_executor.py:888] torch.OutOfMemoryError: CUDA out of memory. Tried to "
    "allocate 1.88 GiB. GPU 1 has a total capacity of 79.18 GiB of which 1.29 GiB is free."
)
CLOSED = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.12]:41234"
ENGINE = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
WAITED = (
    "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."
)
SERVING = "(APIServer pid=1) INFO:     Application startup complete."


def timed(start: float, *lines: str) -> tuple[tuple[float | None, str], ...]:
    """A line a second."""
    return tuple((start + index, line) for index, line in enumerate(lines))


def member(name: str = "leader", **changes: Any) -> MemberEvidence:
    """A member that ended with an error, unless said otherwise."""
    values: dict[str, Any] = {
        "host": f"host-{name}",
        "container": f"gpuplan-x-{name}",
        "role": ContainerRole.LEADER if name == "leader" else ContainerRole.FOLLOWER,
        "rank": 0 if name == "leader" else 1,
        "state": "exited",
        "exit_code": 1,
    }
    return MemberEvidence(**{**values, **changes})


def one(*lines: str, predicted: Prediction | None = None, **changes: Any) -> Diagnosis:
    """The diagnosis of a server on one host that printed these lines."""
    return diagnose([member(role=ContainerRole.SINGLE, lines=timed(100, *lines), **changes)], predicted)


def group(diagnosis: Diagnosis) -> str | None:
    return diagnosis.root.group if diagnosis.root is not None else None


def test_the_follower_that_failed_first_is_the_root() -> None:
    follower = member(
        "follower", lines=timed(100, "INFO 11-21 10:00:00 [a.py:1] loading", OOM), finished_at=103
    )
    leader = member(lines=timed(101, "INFO 11-21 10:00:00 [a.py:1] loading", CLOSED, ENGINE), finished_at=110)
    for order in ([leader, follower], [follower, leader]):
        found = diagnose(order)
        assert found.root is not None
        assert (found.root.group, found.root.host, found.root.weight) == (
            "MEM_WEIGHTS",
            "host-follower",
            Weight.ROOT,
        )
        assert [(c.group, c.host) for c in found.consequences] == [
            ("RUN_PEER_LOST", "host-leader"),
            ("RUN_ENGINE_FAILED", "host-leader"),
        ]
        assert [fact.severity for fact in found.facts()] == [Severity.ERROR, Severity.INFO, Severity.INFO]


def test_times_are_compared_by_our_clock() -> None:
    port = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29501"
    # By its own clock the follower failed 55 s after the leader; its clock is a minute ahead.
    follower = member("follower", lines=timed(160, OOM), clock_offset_seconds=60.0)
    leader = member(lines=timed(105, port))
    assert group(diagnose([leader, follower])) == "MEM_WEIGHTS"
    behind = member("follower", lines=timed(40, OOM), clock_offset_seconds=-70.0)
    assert group(diagnose([leader, behind])) == "NET_PORT_IN_USE"


def test_a_consequence_is_never_shown_alone() -> None:
    found = one(
        "hello", "TypeError: forward() missing 1 required positional argument", ENGINE, finished_at=120
    )
    assert found.root is not None
    assert found.root.group == "UNKNOWN"
    assert found.root.line == "TypeError: forward() missing 1 required positional argument"
    assert [cause.group for cause in found.consequences] == ["RUN_ENGINE_FAILED"]


def test_an_unknown_failure_is_quoted_and_not_guessed() -> None:
    lines = [
        *(f"(Worker pid=1) ERROR 11-21 10:00:00 [a.py:1]   frame {i}" for i in range(20)),
        "BrandNewError: flux capacitor",
    ]
    found = one(*lines, finished_at=200)
    assert found.root is not None
    assert found.root.code == "GP799"
    assert found.root.figures["exit_code"] == 1
    assert found.root.figures["lines"] == [
        "frame 16",
        "frame 17",
        "frame 18",
        "frame 19",
        "BrandNewError: flux capacitor",
    ]
    assert found.remedy is None


def test_a_member_that_died_in_silence_is_where_to_look() -> None:
    leader = member(lines=timed(700, WAITED, ENGINE), finished_at=702)
    dead = member("follower", lines=timed(90, "KeyError: 'new'"), finished_at=91)
    found = diagnose([leader, dead])
    assert found.root is not None
    assert (found.root.group, found.root.host) == ("UNKNOWN", "host-follower")
    assert found.consequences[0].group == "NET_FOLLOWER_MISSING"
    stopped = member("follower", lines=(), finished_at=710, exit_code=143)
    assert group(diagnose([leader, stopped])) == "NET_FOLLOWER_MISSING"


def test_a_likely_cause_that_came_first_explains_who_waited() -> None:
    crash = member(
        "follower", lines=timed(90, "CUDA error: an illegal memory access was encountered"), finished_at=95
    )
    assert group(diagnose([member(lines=timed(700, WAITED), finished_at=702), crash])) == "GPU_KERNEL"


def test_members_that_were_stopped_afterwards_explain_nothing() -> None:
    found = diagnose(
        [
            member(lines=timed(100, "ZeroDivisionError: division by zero"), finished_at=101),
            member("follower", exit_code=143, finished_at=115),
            member("other", exit_code=137, finished_at=130),
        ]
    )
    assert found.root is not None
    assert (found.root.group, found.root.line) == ("UNKNOWN", "ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("code", "cause", "words"),
    [
        (125, "RUN_START", "Docker"),
        (126, "RUN_127", "executed"),
        (127, "RUN_127", "not in the image"),
        (128, "RUN_START", "could not be started"),
        (132, "RUN_EXIT", "SIGILL"),
        (135, "MEM_SHM", "/dev/shm"),
        (137, "RUN_EXIT", "SIGKILL"),
        (139, "RUN_EXIT", "SIGSEGV"),
        (143, "RUN_EXIT", "SIGTERM"),
        (0, "RUN_EXIT", "by itself"),
        (131, "RUN_EXIT", "signal 3"),
    ],
)
def test_an_exit_code_without_words_is_explained(code: int, cause: str, words: str) -> None:
    found = one("INFO 11-21 10:00:00 [a.py:1] working", exit_code=code, finished_at=120)
    assert found.root is not None
    assert found.root.group == cause
    assert words in found.root.figures["meaning"]


def test_refused_arguments_are_unknown_only_without_their_line() -> None:
    assert group(one("usage: vllm", exit_code=2)) == "UNKNOWN"
    found = one("usage: vllm", "vllm: error: unrecognized arguments: --swap-space 4 --no-such=1", exit_code=2)
    assert group(found) == "PLAN_ARG"
    assert found.remedy == RemoveFlag(flags=("--swap-space", "--no-such"))


def test_the_flag_of_docker_tells_a_host_out_of_memory() -> None:
    found = diagnose(
        [
            member(lines=timed(200, CLOSED), finished_at=210),
            member("follower", lines=timed(100, "loading"), oom_killed=True, exit_code=137, finished_at=150),
        ]
    )
    assert found.root is not None
    assert (found.root.group, found.root.host) == ("MEM_HOST", "host-follower")


def test_ray_that_was_killed_while_draining() -> None:
    found = one("Draining for up to 30.0 seconds", exit_code=137, finished_at=120)
    assert group(found) == "RAY_STOP_KILLED"
    assert found.remarks == ()


def test_a_container_that_never_started_comes_before_every_line() -> None:
    follower = member(
        "follower",
        state="created",
        exit_code=128,
        error='could not select device driver "" with capabilities: [[gpu]]',
    )
    found = diagnose([member(lines=timed(100, OOM), finished_at=101), follower])
    assert found.root is not None
    assert (found.root.group, found.root.host) == ("GPU_NO_TOOLKIT", "host-follower")
    odd = diagnose([member("follower", state="created", exit_code=128, error="something [new]\x1b[2J")])
    assert odd.root is not None
    assert (odd.root.group, odd.root.line) == ("RUN_START", "something [new] [2J")


HEALTHY = sorted((*LOGS.glob("[0-9]*.log"), *LOGS.glob("vllm-cpu-*.log")))


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_start_has_no_diagnosis(path: Path) -> None:
    written = path.read_text().split("\n")
    served = [number for number, line in enumerate(written) if "Application startup complete" in line]
    lines = timed(
        100, *written[: served[-1] + 1 if served else None]
    )  # what a stop makes of it is another matter
    leader = member(state="running", exit_code=None, lines=lines)
    follower = member("follower", state="running", exit_code=None, lines=lines[:10])
    assert diagnose([leader, follower]) == Diagnosis()


@pytest.mark.parametrize(
    ("name", "cause", "change"),
    [
        ("failed-0.11.0-free-memory.log", "MEM_FREE", None),
        ("failed-0.23.0-tp4-free-memory.log", "MEM_FREE", {"gpu_memory_utilization": 0.67}),
        ("failed-0.25.1-kv-cache-too-small.log", "MEM_KV_SMALL", {"max_model_len": 121_840}),
        ("failed-0.23.1-illegal-memory-access.log", "GPU_KERNEL", None),
    ],
)
def test_a_real_failure_is_found(name: str, cause: str, change: dict[str, Any] | None) -> None:
    found = one(*(LOGS / name).read_text().split("\n"), finished_at=5000)
    assert (group(found), found.change) == (cause, change)
    assert {c.group for c in found.consequences} == {"RUN_ENGINE_FAILED"}


def test_what_was_printed_before_it_served_did_not_stop_it() -> None:
    warning = "UserWarning: sm_121 is not compatible with the current PyTorch installation."
    assert one(warning, SERVING, state="running", exit_code=None) == Diagnosis()
    later = one(warning, SERVING, "CUDA error: an illegal memory access was encountered", finished_at=200)
    assert group(later) == "GPU_KERNEL"
    leader = member(state="running", exit_code=None, lines=timed(200, SERVING))
    follower = member("follower", state="running", exit_code=None, lines=timed(100, warning))
    assert diagnose([leader, follower]) == Diagnosis()


def test_a_warning_for_several_hosts_says_nothing_on_one() -> None:
    loopback = (
        "Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback."
    )
    assert group(one(loopback, "x", finished_at=120)) == "UNKNOWN"
    two = diagnose(
        [member(lines=timed(100, loopback), finished_at=400), member("follower", lines=timed(400, CLOSED))]
    )
    assert group(two) == "NET_LOOPBACK"


def test_slow_networks_are_told_beside_the_cause() -> None:
    leader = member(lines=timed(100, "h1:7:7 [0] NCCL INFO NET/IB : No device found.", OOM), finished_at=110)
    found = diagnose([leader, member("follower", lines=timed(120, CLOSED), finished_at=130)])
    assert group(found) == "MEM_WEIGHTS"
    assert [cause.group for cause in found.remarks] == ["NCCL_SLOW"]
    assert found.facts()[-1].severity is Severity.WARNING


LOADED = "(Worker_TP0 pid=9) INFO 11-21 10:00:20 [gpu_model_runner.py:1] Model loading took 70.00 GiB memory and 5.0 seconds"
PROFILED = "(Worker_TP0 pid=9) INFO 11-21 10:00:25 [gpu_worker.py:1] Available KV cache memory: 2.00 GiB"


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        ((), "MEM_WEIGHTS"),
        (("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01]",), "MEM_WEIGHTS"),
        ((LOADED,), "MEM_ACTIVATION"),
        ((LOADED, PROFILED), "MEM_GRAPH"),
        ((LOADED, PROFILED, SERVING), "MEM_SERVING"),
        ((LOADED, '  File "gpu_worker.py", line 1, in profile_cudagraph_memory'), "MEM_GRAPH"),
        ((LOADED, '  File "gpu_worker.py", line 1, in determine_available_memory'), "MEM_ACTIVATION"),
        (('  File "gpu_worker.py", line 136, in load_model',), "MEM_WEIGHTS"),
    ],
)
def test_which_part_ran_out_of_memory(before: tuple[str, ...], cause: str) -> None:
    assert group(one(*before, OOM, finished_at=200)) == cause


def test_a_follower_prints_few_milestones_the_leader_tells_for_it() -> None:
    leader = member(lines=timed(50, LOADED, PROFILED, CLOSED), finished_at=210)
    assert (
        group(diagnose([leader, member("follower", lines=timed(100, OOM), finished_at=200)])) == "MEM_GRAPH"
    )


PREDICTED = Prediction(
    kv_cache_bytes=round(7.76 * GIB),
    weights_bytes=60 * GIB,
    kv_needed_bytes=8 * GIB,
    gpu_memory_utilization=0.9,
    per_gpu_bytes=70 * GIB,
    cuda_graph_bytes=GIB,
)


def test_a_cache_too_small_is_told_in_the_terms_of_the_plan() -> None:
    line = next(text for kind, text in ROWS if kind == "MEM_KV_SMALL" and "7.76" in text)
    found = one(LOADED, line, predicted=PREDICTED, finished_at=120)
    assert found.root is not None
    assert found.root.figures["predicted_bytes"] == round(7.76 * GIB)
    assert found.root.figures["needed_bytes"] == 8 * GIB
    assert found.root.figures["short_bytes"] == 8 * GIB - round(7.76 * GIB)
    assert found.root.figures["weights_bytes"] == 70 * GIB
    assert found.root.figures["predicted_weights_bytes"] == 60 * GIB
    assert found.change == {"gpu_memory_utilization": 0.95}


def test_no_cache_at_all_is_measured_by_what_the_engine_printed() -> None:
    found = one(
        "INFO 11-21 10:00:00 [gpu_worker.py:1] Available KV cache memory: -2.14 GiB",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        predicted=PREDICTED,
    )
    assert found.root is not None
    assert found.root.figures["available_bytes"] == round(-2.14 * GIB)
    assert found.root.figures["short_bytes"] == 8 * GIB + round(2.14 * GIB)


@pytest.mark.parametrize(
    ("line", "change"),
    [
        (
            "CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
            {"max_num_seqs": 512},
        ),
        (
            (
                "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV "
                "cache (2400)."
            ),
            {"max_model_len": 2400},
        ),
        (
            "Total number of attention heads (32) must be divisible by tensor parallel size (3).",
            {"tensor_parallel_size": 2},
        ),
        (
            "User-specified max_model_len (200000) is greater than the derived max_model_len (max_position_embeddings=40960",
            {"max_model_len": 40960},
        ),
        ("Bfloat16 is only supported on GPUs with compute capability of at least 8.0.", {"dtype": "half"}),
        ("ModuleNotFoundError: No module named 'ray'", {"executor": "mp"}),
        ("bash: line 1: ray: command not found", {"executor": "mp"}),
        ('exec: "vllm": executable file not found in $PATH', None),
        ("RuntimeError: No CUDA GPUs are available", None),
    ],
)
def test_the_remedy_of_a_matter_of_fit_is_a_plan_option(line: str, change: dict[str, Any] | None) -> None:
    found = one(line)
    assert found.change == change
    assert found.remedy == (Replan(change=change) if change else None)


def test_graphs_that_do_not_fit_cost_a_smaller_share_or_no_graphs() -> None:
    assert one(LOADED, PROFILED, OOM).change == {"enforce_eager": True}
    assert one(LOADED, PROFILED, OOM, predicted=PREDICTED).change == {"gpu_memory_utilization": 0.85}


@pytest.mark.parametrize(
    ("line", "port"),
    [
        (
            "The server socket has failed to listen on any local network address. port: 29501, useIpv6: false",
            29501,
        ),
        (
            "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
            8000,
        ),
        ("zmq.error.ZMQError: Address already in use (addr='tcp://10.0.0.11:29550')", 29550),
        ("OSError: [Errno 98] Address already in use", None),
        ("Exception: The current node timed out during startup. This could happen", None),
    ],
)
def test_a_port_that_is_taken_is_tried_again_with_another(line: str, port: int | None) -> None:
    assert one(line).remedy == RetryOtherPort(port=port)
    assert one(line).change is None


def test_members_that_all_run_and_say_nothing_hang_where_they_stopped() -> None:
    nccl = "(Worker_TP0 pid=1) INFO 11-21 10:00:00 [pynccl.py:1] vLLM is using nccl==2.27.5"
    joined = "INFO 11-21 10:00:00 [a.py:1] world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://10.0.0.1:1 backend=nccl"
    leader = member(state="running", exit_code=None, lines=timed(100, joined, nccl))
    assert diagnose([leader], now=110) == Diagnosis()
    assert diagnose([leader]) == Diagnosis()
    found = diagnose([leader], now=101 + SILENT_SECONDS)
    assert found.root is not None
    assert (found.root.group, found.root.figures["silent_seconds"]) == ("NCCL_P2P_HANG", SILENT_SECONDS)
    assert found.change == {"disable_custom_all_reduce": True}
    early = member(state="running", exit_code=None, lines=timed(100, joined))
    assert group(diagnose([early], now=1000)) == "NET_RDV_HANG"
    loading = member(state="running", exit_code=None, lines=timed(100, joined, nccl, LOADED))
    assert group(diagnose([loading], now=1000)) == "RUN_SILENT_HANG"


SECRETS = ("sk-abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnopqrstuvwxyz", "hunter2hunter2")


@pytest.mark.parametrize(
    "line",
    [
        f"vllm: error: unrecognized arguments: --api-key {SECRETS[0]} --swap-space 4",
        f"BrandNewError: token={SECRETS[1]} HF_TOKEN={SECRETS[2]}",
        f"OSError: 401 Client Error for url https://user:{SECRETS[2]}@huggingface.co/x",
        f"Cannot access gated repo for url https://huggingface.co/google/x/resolve/main/{SECRETS[1]}",
    ],
)
def test_secrets_of_a_log_are_masked(line: str) -> None:
    found = one(line, "BoringError: x", finished_at=120, error="")
    state = diagnose([member(state="created", exit_code=128, error=line)])
    for diagnosis in (found, state):
        assert diagnosis.root is not None
        said = repr(diagnosis) + repr(diagnosis.facts())
        assert not any(secret in said for secret in SECRETS)
        assert "***" in said


@pytest.mark.parametrize(
    "line",
    [
        "[bold red]CUDA error: out of memory[/bold red]",
        "\x1b[2J\x1b]0;title\x07CUDA error: out of memory",
        "\u202eCUDA error: out of memory\x00",
    ],
)
def test_hostile_words_stay_words(line: str) -> None:
    found = one(line + " [/x]" * 300, finished_at=120)
    assert found.root is not None
    assert found.root.line.isprintable()
    assert len(found.root.line) <= 300
    assert group(found) == "MEM_WEIGHTS"


def test_lines_of_a_megabyte_and_none_at_all() -> None:
    assert (
        group(one("x" * 1_000_000, "\ufffd" * 1_000_000, "No CUDA GPUs are available" + "y" * 1_000_000))
        == "GPU_NOT_SEEN"
    )
    assert diagnose([]) == Diagnosis()
    assert diagnose([member(state="running", exit_code=None)]) == Diagnosis()
    assert group(diagnose([member(lines=(), finished_at=None)])) == "UNKNOWN"


def test_logs_without_times_are_read_in_their_order() -> None:
    lines = tuple((None, text) for text in (ENGINE, "RuntimeError: No CUDA GPUs are available", OOM))
    assert group(diagnose([member(lines=lines)])) == "GPU_NOT_SEEN"


def test_two_servers_do_not_excuse_each_other() -> None:
    first = member(state="running", exit_code=None, lines=timed(500, SERVING))
    second = member("second", server=1, lines=timed(100, OOM), finished_at=120)
    assert group(diagnose([first, second])) == "MEM_WEIGHTS"


def test_what_passes_by_itself_does_not_hide_what_ended_it() -> None:
    waiting = (
        "Error: No available node types can fulfill resource request {'GPU': 1.0}. Add suitable node types"
    )
    again = "ERROR 11-21 10:00:00 [config.py:130] Error retrieving files: outgoing traffic has been disabled, retrying 1 of 2"
    cache = "PermissionError: [Errno 13] Permission denied: '/root/.config/vllm'"
    assert group(one(waiting, again, cache, OOM, finished_at=200)) == "MEM_WEIGHTS"
    assert group(one(waiting, finished_at=200)) == "RAY_NODE_IP"


def test_the_same_cause_of_every_rank_is_told_once() -> None:
    found = one(OOM, OOM.replace("TP1", "TP2"), ENGINE, ENGINE, finished_at=200)
    assert [fact.figures["class"] for fact in found.facts()] == ["MEM_WEIGHTS", "RUN_ENGINE_FAILED"]


def test_a_fact_carries_its_member_and_its_line() -> None:
    (fact,) = one("RuntimeError: No CUDA GPUs are available").facts()
    assert fact.code == "GP727"
    assert dict(fact.subject) == {
        "host": "host-leader",
        "container": "gpuplan-x-leader",
        "role": "single",
        "rank": 0,
        "server": 0,
    }
    assert dict(fact.figures) == {"class": "GPU_NOT_SEEN", "line": "RuntimeError: No CUDA GPUs are available"}


def test_of_a_host_that_is_silent_nothing_is_said() -> None:
    silent = member("follower", state="unknown", exit_code=None, error="no answer within 10 s")
    assert diagnose([silent]) == Diagnosis()
    assert group(diagnose([silent, member(lines=timed(100, OOM), finished_at=110)])) == "MEM_WEIGHTS"
    assert diagnose([member(state="missing", exit_code=None)]) == Diagnosis()

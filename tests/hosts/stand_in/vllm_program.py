"""`vllm serve` and `vllm --version` of the stand-in: an engine's arguments, log, ports and failures without its work.

It loads nothing. What it writes and in which order is what vLLM 0.32 and 0.33 write; figures are computed from the
model's files and the GPUs the container was given.
"""

import importlib.util
import os
import signal
import sys
import threading
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.hosts.stand_in import faults as orders
from tests.hosts.stand_in import flags, hardware, log, ray_use, serving
from tests.hosts.stand_in.faults import Faults
from tests.hosts.stand_in.flags import Options
from tests.hosts.stand_in.model import Model, Unusable, read
from tests.hosts.stand_in.rendezvous import Follower, Leader, Unreachable

_BANNER = """
       █     █     █▄   ▄█
 ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}
  █▄█▀ █     █     █     █  model   {model}
   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀

"""
_GIB = 1024**3
_OVERHEAD = _GIB
"""What activations and the CUDA context take of a GPU."""


def main() -> None:
    """As the `vllm` program of an image is called."""
    words = sys.argv[1:]
    if words[:1] in (["--version"], ["-v"]):
        log.plain(version("vllm"))
        return
    if words[:1] != ["serve"]:
        log.error("usage: vllm [-h] [-v] {chat,complete,serve,bench,collect-env,run-batch} ...")
        raise SystemExit(2)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    options = flags.parse(words[1:])
    role = "follower" if options.headless else "leader"
    names = [role] if _rank(options) == 0 else [role, str(_rank(options))]
    member = Member(options=options, faults=orders.find(names, Path(options.model_tag)))
    if options.headless:
        member.follow()
    else:
        member.serve()


def _rank(options: Options) -> int:
    return options.node_rank or options.data_parallel_start_rank or 0


def _stop(_number: int, _frame: object) -> None:
    log.line("APIServer", "launcher.py:282", "[shutdown] API server: signalling HTTP server shutdown")
    for text in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
        log.uvicorn(text)
    log.uvicorn(f"Finished server process [{os.getpid()}]")
    os._exit(0)


@dataclass(kw_only=True)
class Member:
    """One node's part of an engine."""

    options: Options
    faults: Faults

    # ------------------------------------------------------------------ what every member does

    def begin(self) -> None:
        """The first lines, and what is refused before anything is loaded."""
        options = self.options
        self.faults.begin()
        for text in _BANNER.format(version=version("vllm"), model=options.model_tag).splitlines():
            log.line("APIServer", "api_utils.py:347", text)
        words = " ".join(word for word in sys.argv[2:] if word != options.api_key)
        log.line(
            "APIServer",
            "api_utils.py:286",
            f"non-default args: {{'argv': {words!r}, 'others': {options.others!r}}}",
        )
        self.faults.reach("starting")
        try:
            self.model: Model = read(options.model_tag, dummy=options.load_format == "dummy")
        except Unusable as error:
            log.refuse(str(error))
        self._check_shape()

    def _check_shape(self) -> None:
        options, model = self.options, self.model
        if options.headless and "--api-server-count" in options.others:
            log.refuse(
                "ValueError: --api-server-count cannot be used with --headless (no API servers are started)."
            )
        if model.heads % options.tensor_parallel_size:
            log.refuse(
                f"ValueError: Total number of attention heads ({model.heads}) must be divisible by tensor parallel size "
                f"({options.tensor_parallel_size})."
            )
        self.longest = self._max_model_len()
        self.gpus = hardware.gpus()
        if not self.gpus:
            log.refuse(
                "RuntimeError: Failed to infer device type, please set the environment variable VLLM_LOGGING_LEVEL=DEBUG"
            )
        ray = options.distributed_executor_backend == "ray"
        if ray and importlib.util.find_spec("ray") is None:
            log.refuse(
                "ValueError: Failed to import Ray: No module named 'ray'.Please install Ray with `pip install ray`."
            )
        if not ray and options.ranks_here > len(self.gpus):
            log.refuse(
                f"pydantic_core._pydantic_core.ValidationError: 1 validation error for ParallelConfig\n  Value error, "
                f"World size ({options.model_ranks}) is larger than the number of available GPUs ({len(self.gpus)}) in "
                "this node. If this is intentional and you are using:\n- ray, set '--distributed-executor-backend ray'."
                "\n- multiprocessing, set '--nnodes' appropriately."
            )

    def _max_model_len(self) -> int:
        asked = self.options.max_model_len
        if asked is None or asked in ("auto", "-1"):
            return self.model.longest
        scale = {"k": 1000, "K": 1024, "m": 10**6, "M": 1024**2}.get(asked[-1])
        length = int(float(asked[:-1]) * scale) if scale else int(asked)
        if length > self.model.longest and os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1":
            log.refuse(
                f"ValueError: User-specified max_model_len ({length}) is greater than the derived max_model_len "
                f"(max_position_embeddings={self.model.longest}.0 or model_max_length=None in model's config.json)."
            )
        return length

    def load(self) -> None:
        """From the ranks' first line to their weights."""
        options, worker = self.options, self._worker
        first = options.node_rank * options.ranks_here
        where = (
            f"tcp://{options.master_addr}:{options.master_port}"
            if options.nnodes > 1
            else "tcp://127.0.0.1:53217"
        )
        for local in range(min(options.ranks_here, len(self.gpus))):
            text = f"world_size={options.model_ranks} rank={first + local} local_rank={local} distributed_init_method={where}"
            log.line(
                f"Worker_TP{first + local}" if worker != "EngineCore" else worker,
                "parallel_state.py:1823",
                f"{text} backend=nccl",
            )
        self.faults.reach("world_size")
        log.line(worker, "pynccl.py:148", "vLLM is using nccl==2.28.9")
        for local, gpu in enumerate(self.gpus):
            wanted = options.gpu_memory_utilization * gpu.total
            if gpu.free < wanted:
                log.fail(
                    worker,
                    f"ValueError: Free memory on device cuda:{local} ({gpu.free / _GIB:.2f}/{gpu.total / _GIB:.2f} GiB) on "
                    f"startup is less than desired GPU memory utilization ({options.gpu_memory_utilization}, "
                    f"{wanted / _GIB:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
                    "processes.",
                )
        log.line(worker, "gpu_model_runner.py:5040", f"Starting to load model {options.model_tag}...")
        log.line(worker, "default_loader.py:502", "Loading weights took 0.41 seconds")
        self.faults.reach("weights")
        weights = self.model.weights / options.model_ranks / _GIB
        log.line(
            worker,
            "gpu_model_runner.py:5150",
            f"Model loading took {weights:.2f} GiB memory and 0.712345 seconds",
        )
        self.faults.reach("model")

    @property
    def _worker(self) -> str:
        return (
            "EngineCore"
            if self.options.model_ranks == 1
            else f"Worker_TP{self.options.node_rank * self.options.ranks_here}"
        )

    def warm_up(self) -> None:
        """The cache, its size, the graphs."""
        options, model, worker = self.options, self.model, self._worker
        budget = min(gpu.total for gpu in self.gpus) * options.gpu_memory_utilization
        cache = budget - model.weights / options.model_ranks - _OVERHEAD
        if cache <= 0:
            log.fail(
                "EngineCore",
                "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
                "initializing the engine",
            )
        log.line(worker, "gpu_worker.py:760", f"Available KV cache memory: {cache / _GIB:.2f} GiB")
        self.faults.reach("kv")
        per_token = max(1, model.kv_per_token // options.model_ranks)
        needed = per_token * self.longest
        if needed > cache:
            log.fail(
                "EngineCore",
                f"ValueError: To serve at least one request with the model's max seq len ({self.longest}), "
                f"({needed / _GIB:.2f} GiB KV cache is needed, which is larger than the available KV cache memory "
                f"({cache / _GIB:.2f} GiB). Based on the available memory, the estimated maximum model length is "
                f"{int(cache // per_token)}. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
                "initializing the engine.",
            )
        tokens = int(cache // per_token)
        log.line(
            "EngineCore",
            "kv_cache_utils.py:2328",
            f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {self.longest:,} tokens per request: "
            f"{tokens / self.longest:.2f}x",
        )
        if not options.enforce_eager:
            log.line(worker, "monitor.py:53", "torch.compile took 1.25 s in total")
            log.line(worker, "gpu_model_runner.py:6582", "Graph capturing finished in 1 secs, took 0.25 GiB")
        self.faults.reach("graphs")
        text = "init engine (profile, create kv cache, warmup model) took 2.50 s"
        log.line(
            "EngineCore",
            "core.py:396",
            f"{text} (compilation: 1.25 s)" if not options.enforce_eager else text,
        )
        self.faults.reach("init")

    # ------------------------------------------------------------------ the one that answers

    def serve(self) -> None:
        """Lead, if there are others, then answer requests until told to stop."""
        options = self.options
        self.begin()
        try:
            sock = serving.bind(options.host, options.port)
        except OSError as error:
            log.refuse(f"OSError: {error}")
        self.faults.reach("bound")
        log.line(
            "EngineCore",
            "core.py:134",
            f"Initializing a V1 LLM engine (v{version('vllm')}) with config: model='{options.model_tag}'",
        )
        members = [*self._gather(), *self._gather_replicas()]
        uses_ray = options.distributed_executor_backend == "ray"
        if uses_ray:
            ray_use.await_gpus(options.model_ranks)
        self.faults.reach("joined")
        self.load()
        for leader in members:
            leader.await_loaded()
        self.warm_up()
        api = serving.Api(options, max_model_len=self.longest, version=version("vllm"), faults=self.faults)
        api.is_whole = lambda: all(leader.whole for leader in members)
        if uses_ray:
            ray_use.watch()
        log.line(
            "APIServer",
            "entry.py:136",
            f"Supported tasks: {['embed' if options.runner == 'pooling' else 'generate']}",
        )
        where = f"http://{options.host or '0.0.0.0'}:{options.port}"
        log.line("APIServer", "entry.py:140", f"Starting vLLM server on {where}")
        log.uvicorn(f"Started server process [{os.getpid()}]")
        log.uvicorn("Waiting for application startup.")
        try:
            serving.listen(api, sock)
        except OSError as error:
            plain = f"ERROR:    [Errno {error.errno}] error while attempting to bind on address: address already in use"
            log.plain(plain)
            os._exit(1)
        log.uvicorn("Application startup complete.")
        self.faults.reach("ready")
        threading.Event().wait()

    def _gather(self) -> list[Leader]:
        """The other nodes of this engine, on the master port."""
        options = self.options
        if options.nnodes == 1:
            return []
        address = os.environ.get("VLLM_HOST_IP", "0.0.0.0")
        log.line(
            "EngineCore",
            "multiproc_executor.py:151",
            f"DP group leader: node_rank=0, node_rank_within_dp=0, master_addr={options.master_addr}, mq_connect_ip={address} "
            f"(local), world_size={options.model_ranks}, local_world_size={options.ranks_here}",
        )
        leader = Leader(
            port=options.master_port, expected=options.nnodes - 1, seconds=options.distributed_timeout_seconds
        )
        try:
            leader.listen()
        except OSError:
            log.fail(
                "EngineCore",
                "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
                f"port: {options.master_port}, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            )
        if not leader.await_joined():
            log.fail(
                "EngineCore",
                f"torch.distributed.DistStoreError: Timed out after {options.distributed_timeout_seconds + 1} seconds waiting "
                f"for clients. {len(leader.members) + 1}/{options.nnodes} clients joined.",
            )
        self._check_members(leader, address)
        leader.release()
        return [leader]

    def _check_members(self, leader: Leader, address: str) -> None:
        ranks, addresses = sorted(leader.members), [said["address"] for said in leader.members.values()]
        if ranks != list(range(1, self.options.nnodes)):
            log.fail("EngineCore", f"RuntimeError: node ranks {ranks} joined, of {self.options.nnodes} nodes")
        if len({address, *addresses}) != self.options.nnodes:
            log.fail("EngineCore", f"RuntimeError: members share an address: {[address, *addresses]}")
        for rank in ranks:
            said = leader.members[rank]
            log.plain(f"[stand-in] node {rank} joined: address={said['address']} gpus={said['gpus']}")

    def _gather_replicas(self) -> list[Leader]:
        """The data-parallel engines of other nodes, on the RPC port."""
        options = self.options
        elsewhere = options.data_parallel_size - options.replicas_here
        if options.data_parallel_size == 1 or elsewhere <= 0 or options.nnodes > 1:
            return []
        leader = Leader(port=options.data_parallel_rpc_port, expected=elsewhere, seconds=600)
        try:
            leader.listen()
        except OSError:
            log.fail(
                "EngineCore",
                f"zmq.error.ZMQError: Address already in use (addr='tcp://{options.data_parallel_address}:{options.data_parallel_rpc_port}')",
            )
        if not leader.await_joined():
            log.fail(
                "APIServer",
                "RuntimeError: Timed out waiting for engine core processes to start. VLLM_ENGINE_READY_TIMEOUT_S",
            )
        for rank, said in sorted(leader.members.items()):
            log.plain(f"[stand-in] engine {rank} joined: address={said['address']} gpus={said['gpus']}")
        leader.release()
        return [leader]

    # ------------------------------------------------------------------ the others

    def follow(self) -> None:
        """Join, load, stay; for ever, even when the leader is gone (deploy-failures row 68)."""
        options = self.options
        self.begin()
        if options.nnodes > 1:
            address, port = options.master_addr, options.master_port
            log.line(
                "APIServer",
                "serve.py:189",
                f"Launching vLLM (v{version('vllm')}) headless multiproc executor, with head node address {address}:{port} for "
                "torch.distributed process group.",
            )
            ranks = [options.node_rank]
        else:
            address, port = options.data_parallel_address, options.data_parallel_rpc_port
            start = options.data_parallel_start_rank or 0
            ranks = list(range(start, start + options.replicas_here))
            log.line(
                "APIServer",
                "serve.py:206",
                f"Launching {len(ranks)} data parallel engine(s) in headless mode, with head node address tcp://{address}:{port}.",
            )
        self.faults.reach("bound")
        links = [
            Follower(address=address, port=port, seconds=options.distributed_timeout_seconds) for _ in ranks
        ]
        said = {"address": os.environ.get("VLLM_HOST_IP", "0.0.0.0"), "gpus": len(self.gpus)}
        for rank, link in zip(ranks, links, strict=True):
            try:
                link.join({**said, "rank": rank})
            except Unreachable as error:
                log.fail(self._worker, str(error))
        if not all(link.await_release() for link in links):
            links[0].stay(self._lost)
        self.faults.reach("joined")
        self.load()
        for link in links:
            link.tell_loaded()
        links[0].stay(self._lost)

    def _lost(self, ours: str, theirs: str) -> None:
        log.plain(
            f"[rank{self.options.node_rank * self.options.ranks_here}]:[W TCPStore.cpp:125] [c10d] recvValue failed on "
            f"SocketImpl(fd=79, addr={ours}, remote={theirs}): Connection was likely closed. Did the remote server "
            "shutdown or crash?"
        )

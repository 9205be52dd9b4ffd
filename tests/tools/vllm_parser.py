"""Asks vLLM itself about command lines: its parser, its checks of `serve`, its ParallelConfig and VllmConfig.

Run with the Python of an environment that has vLLM (any release, with or without a GPU, a build of torch for the CPU will
do); nothing of gpuplan is imported. Requests come as JSON on stdin, one a line, and each is answered by one line on stdout:

    {"argv": ["vllm", "serve", MODEL, …],   as a container is started; MODEL must be the third word
     "env": {…},                            its variables
     "config": {…},                         the model's config.json
     "beside": {"/srv/draft": {…}},         config.json of other models, by their paths in argv
     "gpus": 8, "card": "NVIDIA H100 …", "total_bytes": …, "capability": [9, 0],
                                            the cards of the host, which need not exist
     "ray": false}                          whether the image has Ray

    {"accepted": true, "stage": "engine", "error": null, "launcher": "run_server", "parallel": {…}, "engine": {…}}

`stage` is how far it came: parser, serve, launcher, arguments, parallel, engine. Every request is answered in a process of
its own, so that none can leave anything behind for the next. Memory, kernels and weights are not looked at.
"""

import inspect
import json
import os
import pickle
import shutil
import sys
import tempfile
import types
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module as part
from io import StringIO
from pathlib import Path
from typing import Any

EXTENSIONS = (
    "vllm._C",
    "vllm._C_stable_libtorch",
    "vllm._moe_C",
    "vllm._moe_C_stable_libtorch",
    "vllm._qutlass_C",
    "vllm.cumem_allocator",
)
"""Compiled parts that need CUDA's libraries; nothing of them is called here."""
PARALLEL = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "prefill_context_parallel_size",
    "decode_context_parallel_size",
    "data_parallel_size",
    "data_parallel_size_local",
    "data_parallel_rank",
    "data_parallel_master_ip",
    "data_parallel_rpc_port",
    "data_parallel_backend",
    "data_parallel_external_lb",
    "data_parallel_hybrid_lb",
    "distributed_executor_backend",
    "enable_expert_parallel",
    "nnodes",
    "node_rank",
    "master_addr",
    "master_port",
    "world_size",
    "local_world_size",
    "distributed_timeout_seconds",
)
ENGINE = {
    "model_config": ("max_model_len", "enforce_eager", "runner_type"),
    "scheduler_config": ("max_num_seqs", "max_num_batched_tokens"),
    "cache_config": ("gpu_memory_utilization", "cpu_offload_gb", "cache_dtype"),
}
LAUNCHERS = ("run_server", "run_headless", "run_multi_api_server", "run_dp_supervisor")
Request = dict[str, Any]
Answer = dict[str, Any]


WORK = Path.home() / ".cache" / "gpuplan-vllm-parser"
MODELS = WORK / f"models-{os.getpid()}"
INSPECTED = WORK / "inspected"
"""What vLLM found out about model classes, each in a process that takes many seconds to start."""


class Host:
    """The cards that vLLM is to believe in."""

    count = 8
    card = "NVIDIA H100 80GB HBM3"
    total_bytes = 80 * 1024**3
    memory_bytes = 1024**4
    """Of the machine; up to 0.17 swap space has to fit."""
    capability = (9, 0)


def pretend() -> None:
    """Put a CUDA platform in place whose devices are `Host`'s; before anything else of vLLM is imported."""
    for name in EXTENSIONS:
        sys.modules[name] = types.ModuleType(name)
    attention = types.ModuleType("vllm.vllm_flash_attn")
    vars(attention).update(__path__=[], __getattr__=_nothing)
    sys.modules[attention.__name__] = attention
    _pretend_machine(part("torch"), part("psutil"))
    platforms = part("vllm.platforms")
    capability = part("vllm.platforms.interface").DeviceCapability
    told: dict[str, Any] = {
        "get_device_capability": lambda *_, **__: capability(*Host.capability),
        "get_device_name": lambda *_, **__: Host.card,
        "get_device_uuid": lambda *_, **__: "GPU-0",
        "get_device_total_memory": lambda *_, **__: Host.total_bytes,
        "device_count": lambda *_, **__: Host.count,
        "is_fully_connected": lambda *_, **__: True,
        "num_compute_units": lambda *_, **__: 132,
        "is_async_output_supported": lambda *_, **__: True,
        "device_control_id_to_physical_device_id": lambda _, name: int(name),
    }
    plain = part("vllm.platforms.cuda").CudaPlatformBase
    pretended = type("Pretended", (plain,), {name: classmethod(tell) for name, tell in told.items()})
    vars(platforms)["_current_platform"] = pretended()


def _pretend_machine(torch: Any, psutil: Any) -> None:
    """The same for those who ask torch; and memory enough."""
    plain = torch._ops._OpNamespace.__getattr__

    def operator(namespace: Any, name: str) -> Any:
        """Whether a kernel supports a card is asked of the kernel; all of them do."""
        return (lambda *_: True) if namespace.name == "_C" and "support" in name else plain(namespace, name)

    torch._ops._OpNamespace.__getattr__ = operator
    memory = psutil.virtual_memory()
    psutil.virtual_memory = lambda: memory._replace(total=Host.memory_bytes, available=Host.memory_bytes)
    torch.version.cuda = torch.version.cuda or "13.0"
    torch.cuda.device_count = lambda: Host.count
    torch.cuda.get_device_capability = lambda *_: Host.capability
    torch.cuda.get_device_name = lambda *_: Host.card
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        name=Host.card,
        major=Host.capability[0],
        minor=Host.capability[1],
        total_memory=Host.total_bytes,
        multi_processor_count=132,
        is_integrated=False,
    )


def _nothing(name: str) -> Any:
    """Any name of a module that is not there."""
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *_, **__: None


def remember_inspections(version: str) -> None:
    """Let each model class be inspected once."""
    kind = part("vllm.model_executor.models.registry")._LazyRegisteredModel
    inspect_anew = kind.inspect_model_cls

    def inspect_model_cls(self: Any) -> Any:
        kept = INSPECTED / version / f"{self.module_name}.{self.class_name}.pickle"
        if kept.exists():
            return pickle.loads(kept.read_bytes())
        found = inspect_anew(self)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(found))
        return found

    kind.inspect_model_cls = inspect_model_cls


def warm() -> None:
    """Import once what every request needs."""
    for name, value in {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CONFIGURE_LOGGING": "0",
    }.items():
        os.environ[name] = value
    pretend()
    part("vllm.entrypoints.cli.serve")
    part("vllm.engine.arg_utils")
    with suppress(ImportError):
        part("vllm.v1.executor.ray_utils")
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm") and "cuda_device_count_stateless" in vars(module):
            vars(module)["cuda_device_count_stateless"] = lambda: Host.count


class Asking:
    """One command line on its way through vLLM."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.stage = "parser"
        self.answer: Answer = {}

    def ask(self) -> Answer:
        """How far it came, and what vLLM made of it."""
        try:
            self._ask()
        except SystemExit as stopped:
            return {"accepted": False, "stage": self.stage, "error": f"exit {stopped.code}", **self.answer}
        except Exception as refused:  # noqa: BLE001  # whatever vLLM raises is its answer
            text = f"{type(refused).__name__}: {refused}"
            return {"accepted": False, "stage": self.stage, "error": text[:1500], **self.answer}
        return {"accepted": True, "stage": self.stage, "error": None, **self.answer}

    def _ask(self) -> None:
        serve = part("vllm.entrypoints.cli.serve")
        command = serve.cmd_init()[0]
        arguments = self._parsed(command)
        self.stage = "serve"
        command.validate(arguments)
        self.stage = "launcher"
        arguments = self._launched(serve, command, arguments)
        self.stage = "arguments"
        # Only a parser of reasoning looks at the vocabulary, which is a made-up one.
        arguments.skip_tokenizer_init = not getattr(arguments, "reasoning_parser", "")
        self._engine(
            part("vllm.engine.arg_utils").AsyncEngineArgs.from_cli_args(arguments),
            headless=bool(getattr(arguments, "headless", False)),
        )

    def _parsed(self, command: Any) -> Any:
        try:
            utils = part("vllm.utils.argparse_utils")
        except ImportError:
            utils = part("vllm.utils")
        parser = utils.FlexibleArgumentParser(prog="vllm")
        command.subparser_init(parser.add_subparsers(required=False, dest="subparser")).set_defaults(
            dispatch_function=command.cmd
        )
        said = StringIO()
        try:
            with redirect_stderr(said), redirect_stdout(said):
                return parser.parse_args(self._words())
        except SystemExit:
            lines = [line for line in said.getvalue().splitlines() if "error:" in line]
            raise ValueError("; ".join(lines) or said.getvalue()[-500:]) from None

    def _words(self) -> list[str]:
        """The command without `vllm`, its model a directory with the configuration."""
        words = [str(word) for word in self.request["argv"][1:]]
        words[1] = _directory(self.request["config"])
        for path, config in self.request.get("beside", {}).items():
            there = _directory(config)
            words = [word.replace(path, there) for word in words]
        sys.argv = ["vllm", *words]
        return words

    def _launched(self, serve: Any, command: Any, arguments: Any) -> Any:
        """The arguments as they reach the launcher that vLLM chooses."""
        reached: list[tuple[str, Any]] = []

        def stand_in(name: str) -> Any:
            return lambda given, *_, **__: reached.append((name, given))

        for name in LAUNCHERS:
            if hasattr(serve, name):
                setattr(serve, name, stand_in(name))
        vars(serve)["uvloop"] = types.SimpleNamespace(run=lambda *_, **__: None)
        command.cmd(arguments)
        if len(reached) != 1:
            raise RuntimeError(f"{len(reached)} launchers were reached")
        self.answer["launcher"], final = reached[0]
        return final

    def _engine(self, engine_arguments: Any, *, headless: bool) -> None:
        arg_utils = part("vllm.engine.arg_utils")
        asking, plain = self, arg_utils.ParallelConfig

        class Watched:
            """The class, and note of each time one is made."""

            def __getattr__(self, name: str) -> Any:
                return getattr(plain, name)

            def __call__(self, *given: Any, **named: Any) -> Any:
                asking.stage = "parallel"
                made = plain(*given, **named)
                asking.answer["parallel"] = _fields(made, PARALLEL)
                asking.stage = "engine"
                return made

        vars(arg_utils)["ParallelConfig"] = Watched()
        create = engine_arguments.create_engine_config
        given: dict[str, Any] = {"usage_context": part("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER}
        if "headless" in inspect.signature(create).parameters:
            given["headless"] = headless
        made = create(**given)
        self.stage = "engine"
        self.answer["parallel"] = _fields(made.parallel_config, PARALLEL)
        self.answer["engine"] = {
            name: value
            for config, names in ENGINE.items()
            for name, value in _fields(getattr(made, config), names).items()
        }
        self.answer["engine"]["speculative"] = made.speculative_config is not None
        self.answer["engine"]["lora"] = made.lora_config is not None


def _directory(config: Any) -> str:
    """A model of which there is nothing but its configuration."""
    directory = Path(tempfile.mkdtemp(dir=MODELS))
    vocabulary = {
        word: number
        for number, word in enumerate(("<unk>", "<think>", "</think>", "<tool_call>", "</tool_call>"))
    }
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    for name, document in {
        "config.json": config,
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
    }.items():
        (directory / name).write_text(json.dumps(document))
    return str(directory)


def _fields(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Those of the names the value has, as JSON."""
    found = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {
        name: item if isinstance(item, str | int | float | bool | None | list) else str(item)
        for name, item in found.items()
    }


def answer(request: Request) -> Answer:
    """Of one request, in the process that is its own."""
    Host.count = request["gpus"]
    Host.card = request.get("card", Host.card)
    Host.total_bytes = request.get("total_bytes", Host.total_bytes)
    Host.capability = tuple(request.get("capability", Host.capability))
    os.environ.update(request.get("env", {}))
    os.environ["VLLM_CACHE_ROOT"] = str(WORK)
    if not request.get("ray"):
        sys.modules["ray"] = None  # type: ignore[assignment]  # how an import is made to fail
        for name in ("vllm.v1.executor.ray_utils", "vllm.executor.ray_utils"):
            if name in sys.modules:
                vars(sys.modules[name])["ray"] = None
    return Asking(request).ask()


def main() -> int:
    """Answer every line of stdin."""
    MODELS.mkdir(parents=True, exist_ok=True)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints is no answer
    try:
        warm()
        version = str(part("vllm.version").__version__)
        remember_inspections(version)
    except Exception as failed:  # noqa: BLE001  # told with what is missing
        import traceback

        traceback.print_exc()
        print(json.dumps({"failed": f"{type(failed).__name__}: {failed}"[:1500]}), file=out, flush=True)
        return 1
    print(json.dumps({"vllm": version}), file=out, flush=True)
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as reply:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    reply.write(json.dumps(answer(json.loads(line))))
                    reply.flush()
                    code = 0
                finally:
                    os._exit(code)
            os.waitpid(child, 0)
            reply.seek(0)
            text = reply.read()
        for model in MODELS.iterdir():
            shutil.rmtree(model)
        print(
            text or json.dumps({"accepted": False, "stage": "crash", "error": "no answer"}),
            file=out,
            flush=True,
        )
    MODELS.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())

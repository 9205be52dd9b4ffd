"""The first half of the program that counts parameters inside an image: a CUDA platform where there is no GPU.

vLLM chooses kernels, and by them the padding of weights, by the platform it sees. The names it is asked for here are those
of vLLM 0.10 to 0.33 (vllm/platforms/{interface,cuda}.py, vllm/_custom_ops.py); no kernel is run. Packages of kernels that
cannot be found are stood in for, and the answer names them.
"""

PRETENCE = r'''
"""Counts what vLLM's own classes allocate on each rank. Runs in an image that has vLLM, without GPU, weights or network."""
import gc, inspect, io, json, os, sys, tempfile, types
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module as part

KERNELS = ("cuda", "cutlass", "tilelang", "deep_gemm", "flashinfer", "quack", "nvtx", "flash_attn", "humming")
GPU = {"name": "NVIDIA H100 80GB HBM3", "total_bytes": 80 * 1024**3, "capability": [9, 0], "count": 8}
COMPILED = ("vllm._C", "vllm._C_stable_libtorch", "vllm._moe_C", "vllm._moe_C_stable_libtorch", "vllm._qutlass_C",
            "vllm.cumem_allocator", "vllm._flashmla_C", "vllm._flashmla_extension_C", "vllm._flashkda_C")
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
               "VLLM_CONFIGURE_LOGGING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
OPERATORS = ("_C", "_C_stable_libtorch", "_C_cache_ops", "_C_custom_ar", "_moe_C", "_moe_C_stable_libtorch", "_C_cuda_utils",
             "_vllm_fa2_C", "_vllm_fa3_C", "_flashmla_C", "_flashmla_extension_C", "_flashkda_C", "_qutlass_C", "torchvision")
SINCE = {"fp4": 100, "block_fp8": 90, "group_gemm": 90, "sparse": 90, "fp8": 89}


class Kernel:
    """A compiled operator by its name."""

    def __init__(self, name):
        self.name = name

    def __call__(self, *given, **_):
        if "support" in self.name:
            return not given or given[0] >= next((least for word, least in SINCE.items() if word in self.name), 0)
        if self.name.endswith("workspace_size"):
            return 0
        raise NotImplementedError(f"{self.name} is not run")

    def __getattr__(self, overload):
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self


def nothing(name):
    """Any name of a module that is not there."""
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *_, **__: None


def pretend():
    """A CUDA platform whose devices are GPU's, before anything else of vLLM is imported."""
    os.environ.update(ENVIRONMENT)
    for name in COMPILED:
        sys.modules[name] = types.ModuleType(name)
    attention = types.ModuleType("vllm.vllm_flash_attn")
    vars(attention).update(__path__=[], __getattr__=nothing)
    sys.modules[attention.__name__] = attention
    sys.meta_path.append(Absent())
    torch = part("torch")
    plain = torch._ops._OpNamespace.__getattr__

    def operator(namespace, name):
        """Kernels are asked for while layers are made, and whether they support a card; none is run."""
        try:
            return plain(namespace, name)
        except AttributeError:
            if namespace.name in OPERATORS and not name.startswith("__"):
                return Kernel(name)
            raise

    torch._ops._OpNamespace.__getattr__ = operator
    library = part("torch.library")
    register = library.register_fake

    def register_fake(name, function=None, **named):
        """Shapes of what a kernel would return are told for kernels that are not there."""
        def keep(given):
            with suppress(RuntimeError):
                register(name, given, **named)
            return given
        return keep if function is None else keep(function)

    library.register_fake = register_fake
    torch.version.cuda = torch.version.cuda or "13.0"
    properties = lambda *_: types.SimpleNamespace(
        name=GPU["name"], major=GPU["capability"][0], minor=GPU["capability"][1], total_memory=GPU["total_bytes"],
        multi_processor_count=132, is_integrated=bool(GPU.get("integrated")), shared_memory_per_block_optin=232448, warp_size=32,
        L2_cache_size=50 << 20, max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536)
    silent = {name: lambda *_, **__: None for name in ("__init__", "wait_stream", "synchronize", "wait_event", "record_event",
                                                      "record", "wait")}
    stream_type = type("Stream", (), {"cuda_stream": 0, **silent})
    event_type, stream = type("Event", (), silent), stream_type()
    told = {
        "is_available": lambda: True, "device_count": lambda: GPU["count"], "current_device": lambda: 0,
        "get_device_capability": lambda *_: tuple(GPU["capability"]), "get_device_name": lambda *_: GPU["name"],
        "get_device_properties": properties, "set_device": lambda *_: None, "synchronize": lambda *_: None,
        "mem_get_info": lambda *_: (GPU["total_bytes"],) * 2, "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0, "empty_cache": lambda: None,
        "is_current_stream_capturing": lambda: False, "is_initialized": lambda: False,
        "current_stream": lambda *_: stream, "default_stream": lambda *_: stream,
        "Stream": stream_type, "Event": event_type,
        "graph_pool_handle": lambda: (0, 0), "is_bf16_supported": lambda *_, **__: True,
    }
    for name, tell in told.items():
        setattr(torch.cuda, name, tell)
        if hasattr(torch, "accelerator") and hasattr(torch.accelerator, name):
            setattr(torch.accelerator, name, tell)
    if hasattr(torch, "accelerator"):
        torch.accelerator.current_device_index = torch.accelerator.current_device_idx = lambda: 0
        torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
    with suppress(ImportError, AttributeError):
        target = part("triton.backends.compiler").GPUTarget
        active = types.SimpleNamespace(
            get_current_target=lambda: target("cuda", 10 * GPU["capability"][0] + GPU["capability"][1], 32),
            get_current_device=lambda: 0, get_current_stream=lambda *_: 0,
            get_device_capability=lambda *_: tuple(GPU["capability"]), is_active=lambda: True,
            get_active_torch_device=lambda: torch.device("meta"), get_device_interface=lambda: torch.cuda,
            utils=types.SimpleNamespace(get_device_properties=lambda *_: {
                "max_shared_mem": 232448, "multiprocessor_count": 132, "max_num_regs": 65536, "warpSize": 32}))
        part("triton.runtime").driver.set_active(active)
    platforms = part("vllm.platforms")
    capability = part("vllm.platforms.interface").DeviceCapability
    told = {
        "get_device_capability": lambda *_, **__: capability(*GPU["capability"]),
        "get_device_name": lambda *_, **__: GPU["name"], "get_device_uuid": lambda *_, **__: "GPU-0",
        "get_device_total_memory": lambda *_, **__: GPU["total_bytes"],
        "device_count": lambda *_, **__: GPU["count"], "is_fully_connected": lambda *_, **__: True,
        "num_compute_units": lambda *_, **__: 132, "is_async_output_supported": lambda *_, **__: True,
        "device_control_id_to_physical_device_id": lambda _, name: int(name),
        "import_kernels": lambda *_: None, "set_device": lambda *_, **__: None,
        "is_integrated_gpu": lambda *_, **__: bool(GPU.get("integrated")), "mem_get_info": lambda *_: (GPU["total_bytes"],) * 2,
    }
    base = part("vllm.platforms.cuda").CudaPlatformBase
    vars(platforms)["_current_platform"] = type(
        "Pretended", (base,), {name: classmethod(tell) for name, tell in told.items()})()
    no_subprocesses()


class Absent:
    """Stands in for packages of kernels that an image lacks, or that need the driver to be imported."""

    used = set()

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in KERNELS and not name.startswith("vllm.vllm_flash_attn."):
            return None
        self.used.add(name.split(".")[0] if not name.startswith("vllm.") else name)
        return part("importlib.machinery").ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        vars(module)["__getattr__"] = stand_in


class StandIn(type):
    """A class with any attribute, which is itself such a class and a decorator that changes nothing."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(name)

    def __call__(cls, *given, **named):
        if len(given) == 1 and not named and callable(given[0]) and not isinstance(given[0], StandIn):
            return given[0]
        return cls

    def __getitem__(cls, _):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__


def stand_in(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return StandIn(name, (), {})


def no_subprocesses():
    """Model classes are inspected in this process; vLLM does it in another, which would see no card."""
    registry = part("vllm.model_executor.models.registry")

    def inspect_model_cls(self):
        return registry._ModelInfo.from_model_cls(self.load_model_cls())

    registry._LazyRegisteredModel.inspect_model_cls = inspect_model_cls
'''

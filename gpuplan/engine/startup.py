"""The checks vLLM makes at start, in order, and the line it prints when one fails.

vLLM 0.33: `v1/worker/utils.py` request_memory, `v1/core/kv_cache_planning.py` _check_enough_kv_cache_memory.
"""

import math

from gpuplan.engine.versions import EngineVersion
from gpuplan.units import GIB

NO_ROOM = (
    "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine "
    "(this flag also controls CPU memory reservation on the CPU backend, despite its name). "
    "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
)
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory."
"""How an allocation beyond the card ends, wherever it happens."""
NO_ROOM_BEFORE_024 = (
    "No available memory for the cache blocks. "
    "Try increasing `gpu_memory_utilization` when initializing the engine."
)


def gib(size: int) -> str:
    """Bytes as vLLM prints GiB: two decimals."""
    return f"{round(size / GIB, 2)}"


def budget_bytes(total: int, utilization: float) -> int:
    """Memory the engine asks for on a device: ceil(total × gpu_memory_utilization)."""
    return math.ceil(total * utilization)


def passing_utilization(free: int, total: int) -> float:
    """The largest gpu_memory_utilization of two digits whose budget is at most `free` bytes; 0.0 when none is."""
    hundredths = min(100, max(0, free) * 100 // total) if total > 0 else 0
    # the engine multiplies in floating point, which may end a byte above the exact product
    while hundredths > 0 and budget_bytes(total, hundredths / 100) > free:
        hundredths -= 1
    return hundredths / 100


def least_utilization(need: int, total: int) -> float:
    """The smallest gpu_memory_utilization of two digits, at least 0.01, whose budget holds `need` bytes; at most 1.0."""
    return min(100, max(1, -(-need * 100 // total))) / 100 if total > 0 else 1.0


def world_size_line(ranks: int, visible: int) -> str:
    """The refusal when the process sees fewer GPUs than it needs ranks."""
    return f"World size ({ranks}) is larger than the number of available GPUs ({visible}) in this node."


def free_memory_line(device: str, free: int, total: int, utilization: float, version: EngineVersion) -> str:
    """The refusal when less than the budget is free at start."""
    where = f"{device} " if version >= EngineVersion(0, 28) else ""
    return (
        f"Free memory on device {where}({gib(free)}/{gib(total)} GiB) on startup is less than desired GPU memory "
        f"utilization ({utilization}, {gib(budget_bytes(total, utilization))} GiB). Decrease GPU memory utilization or "
        "reduce GPU memory used by other processes."
    )


def no_room_line(version: EngineVersion) -> str:
    """The refusal when nothing is left for KV blocks."""
    return NO_ROOM if version >= EngineVersion(0, 24) else NO_ROOM_BEFORE_024


def too_long_line(context: int, needed: int, available: int, longest: int) -> str:
    """The refusal when one request of `context` tokens needs more KV cache than there is."""
    advice = (
        f"Based on the available memory, the estimated maximum model length is {longest}. "
        if longest > 0
        else ""
    )
    return (
        f"To serve at least one request with the model's max seq len ({context}), ({gib(needed)} GiB KV cache is needed, "
        f"which is larger than the available KV cache memory ({gib(available)} GiB). {advice}"
        "Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing "
        "`max_model_len` when initializing the engine. "
        "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
    )

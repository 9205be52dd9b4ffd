"""How the fused-MoE kernels change what is allocated for experts, by GPU generation.

vLLM 0.32 vllm/model_executor/layers/fused_moe/oracle/{mxfp4,unquantized,nvfp4}.py: the kernel is the first of
the list that the GPU supports; `mxfp4_round_up_hidden_size_and_intermediate_size` and its sibling pad to
what it needs.
"""

from gpuplan.domain.model import Experts, Float4, Unquantized
from gpuplan.units import round_up

TRITON = (1, 64)
MARLIN = (256, 128)
TRTLLM = (256, 128)
UNQUANTIZED_TRTLLM = 128
DATACENTER_BLACKWELL = 10


def padded_experts(part: Experts, intermediate: int, compute_capability: str | None) -> tuple[int, int]:
    """(hidden, intermediate) of an expert as allocated on a rank whose share is `intermediate` wide."""
    generation = _generation(compute_capability)
    if isinstance(part.scheme, Unquantized) and generation == DATACENTER_BLACKWELL:
        return part.hidden, round_up(intermediate, UNQUANTIZED_TRTLLM)
    if not isinstance(part.scheme, Float4) or part.scheme.kernels is None:
        return part.hidden, intermediate
    hidden_step, intermediate_step = _steps(part.scheme.kernels, generation)
    return round_up(part.hidden, hidden_step), round_up(intermediate, intermediate_step)


def keeps_all_scales(compute_capability: str | None) -> bool:
    """Whether the NVFP4 kernels (FlashInfer's, on Blackwell) keep the input scales of all ranks' experts."""
    return _generation(compute_capability) >= DATACENTER_BLACKWELL


def _generation(compute_capability: str | None) -> int:
    major = (compute_capability or "9.0").partition(".")[0]
    return int(major) if major.isdecimal() else 9


def _steps(kernels: str, generation: int) -> tuple[int, int]:
    """What hidden and intermediate sizes are rounded up to."""
    if generation == DATACENTER_BLACKWELL:
        return TRTLLM
    if kernels == "gpt_oss" and generation == 9:
        return TRITON
    return MARLIN

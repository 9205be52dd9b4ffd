"""How the fused-MoE kernels pad the experts of MXFP4 checkpoints, by GPU generation.

vLLM 0.32 `vllm/model_executor/layers/quantization/mxfp4.py`; the kernel is chosen by compute capability.
"""

from gpuplan.domain.model import Experts, Float4


def padded_experts(part: Experts, intermediate: int, compute_capability: str | None) -> tuple[int, int]:
    """(hidden, intermediate) of an expert as allocated on a rank whose share is `intermediate` wide."""
    del compute_capability
    if not (isinstance(part.scheme, Float4) and part.scheme.variety == "mxfp4"):
        return part.hidden, intermediate
    return part.hidden, intermediate

"""The builders of sliding-window, vision-language, encoder and remaining dense families, by architecture."""

from gpuplan.engine.architectures import encoders, gemma, gemma4, llava, misc_dense, qwen_vl, transformers_models
from gpuplan.engine.architectures.context import Builder

FAMILIES: dict[str, Builder] = {
    **encoders.BUILDERS,
    **gemma.BUILDERS,
    **gemma4.BUILDERS,
    **misc_dense.BUILDERS,
    **llava.BUILDERS,
    **qwen_vl.BUILDERS,
    **transformers_models.BUILDERS,
}

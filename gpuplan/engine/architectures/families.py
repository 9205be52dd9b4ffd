"""The builders of sliding-window, vision-language, encoder and remaining dense families, by architecture."""

from gpuplan.engine.architectures import gemma, gemma4, qwen_vl
from gpuplan.engine.architectures.context import Builder

FAMILIES: dict[str, Builder] = {
    **gemma.BUILDERS,
    **gemma4.BUILDERS,
    **qwen_vl.BUILDERS,
}

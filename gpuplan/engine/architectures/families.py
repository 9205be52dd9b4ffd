"""The builders of sliding-window, vision-language, encoder and remaining dense families, by architecture."""

from gpuplan.engine.architectures import (
    audio,
    encoders,
    gemma,
    gemma3n,
    gemma4,
    glm_vision,
    gpt_style,
    llava,
    misc_dense,
    omni,
    qwen_vl,
    transformers_models,
    vision_language,
)
from gpuplan.engine.architectures.context import Builder

FAMILIES: dict[str, Builder] = {
    **audio.BUILDERS,
    **encoders.BUILDERS,
    **gemma.BUILDERS,
    **gemma3n.BUILDERS,
    **gemma4.BUILDERS,
    **misc_dense.BUILDERS,
    **glm_vision.BUILDERS,
    **gpt_style.BUILDERS,
    **llava.BUILDERS,
    **omni.BUILDERS,
    **qwen_vl.BUILDERS,
    **transformers_models.BUILDERS,
    **vision_language.BUILDERS,
}

"""Decoders that vLLM ran until 0.22 or 0.24: Baichuan, dots.llm1, and names of Llama and TeleChat 2.

vLLM 0.19: vllm/model_executor/models/{baichuan,dots1,registry}.py.
"""

from gpuplan.domain.model import Part
from gpuplan.engine.architectures.context import Blueprint, Builder, Context
from gpuplan.engine.architectures.decoder import Recipe, Sizes, decoder
from gpuplan.engine.architectures.misc_dense import build_llama_like, build_telechat2, rotated, tied
from gpuplan.engine.architectures.moe import (
    MOST_EXPERTS,
    Dimensions,
    assemble,
    expert_count,
    pair_of_head_norms,
    plain_layers,
    shared_width,
)
from gpuplan.engine.architectures.moe_shared import sparse_block

SMALL = 4096
"""Hidden width of Baichuan 2 7B, whose positions are rotary; those of 13B are not (ALiBi)."""


def build_baichuan(context: Context) -> Blueprint:
    """Baichuan 1 and 2: Llama whose checkpoint stacks query, key and value; embedding, head and norm on every stage."""
    config = context.config
    size = Sizes.of(config)
    recipe = Recipe(
        names=("self_attn", "W_pack", "o_proj", "mlp"),
        tied=tied(config),
        stacked=True,
        everywhere=True,
        norm_everywhere=True,
    )
    rotary = context.architecture == "BaiChuanForCausalLM" or size.hidden == SMALL
    return rotated(context, size, recipe) if rotary else decoder(context, size, recipe)


def build_dots1(context: Context) -> Blueprint:
    """dots.llm1: norms of query and key, dense layers first, shared experts, a correction in the model's own type."""
    config = context.config
    size = Dimensions.of(config)
    width, wide = config.integer("moe_intermediate_size"), config.integer("intermediate_size")
    first = config.integer("first_k_dense_replace", default=0, least=0)
    every = config.integer("moe_layer_freq", default=1)
    corrected = config.text("topk_method") == "noaux_tc"

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        if index < first or index % every:
            return context.gated_mlp(f"{path}.mlp", size.hidden, wide)
        experts = expert_count(config, "n_routed_experts")
        sparse = sparse_block(
            context,
            f"{path}.mlp",
            size.hidden,
            experts,
            top_k=config.integer("num_experts_per_tok", most=MOST_EXPERTS),
            width=width,
            shared=shared_width(config, "n_shared_experts", width),
        )
        return (*sparse, context.norm("e_score_correction_bias", experts)) if corrected else sparse

    layers = plain_layers(
        context,
        config,
        size,
        mlp,
        bias=config.flag("attention_bias"),
        inner=pair_of_head_norms(context, size.head_size),
        intermediate=wide,
    )
    return assemble(context, config, size, layers)


BUILDERS: dict[str, Builder] = {
    **dict.fromkeys(
        ("AquilaModel", "AquilaForCausalLM", "InternLMForCausalLM", "XverseForCausalLM"), build_llama_like
    ),
    "BaiChuanForCausalLM": build_baichuan,
    "BaichuanForCausalLM": build_baichuan,
    "Dots1ForCausalLM": build_dots1,
    "TeleChatForCausalLM": build_telechat2,
}

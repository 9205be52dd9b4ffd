"""MiniCPM3: low-rank projections as in latent attention, but whole keys and values in the cache.

vLLM 0.32: vllm/model_executor/models/{minicpm3,minicpm}.py.
"""

from gpuplan.domain.model import Layer, Partition, Residence, ResidentPart, Shard
from gpuplan.engine.architectures.context import (
    Blueprint,
    Builder,
    Context,
    attention_cache,
    layer_count,
    parts_of,
)
from gpuplan.engine.architectures.deepseek import layer_norms
from gpuplan.engine.architectures.mla import latent_output, latent_shape
from gpuplan.engine.architectures.rotary import text_rotary


def build_minicpm3(context: Context) -> Blueprint:
    """MiniCPM3: keys and values are cached at the query's width; embeddings are tied by default."""
    config = context.config
    shape = latent_shape(config)
    rank = config.integer("q_lora_rank")
    intermediate, vocabulary = config.integer("intermediate_size"), config.integer("vocab_size")

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}.self_attn"
        heads = Partition(units=shape.heads, unit_size=shape.head)
        attention = (
            context.linear(f"{path}.q_a_proj", shape.hidden, rank, Shard.REPLICATED),
            context.norm("q_a_layernorm", rank),
            context.linear(f"{path}.q_b_proj", rank, heads, Shard.COLUMN),
            context.linear(
                f"{path}.kv_a_proj_with_mqa", shape.hidden, shape.rank + shape.rope, Shard.REPLICATED
            ),
            *latent_output(context, path, shape),
        )
        mlp = context.gated_mlp(f"model.layers.{index}.mlp", shape.hidden, intermediate)
        return Layer(
            name="decoder",
            parts=parts_of(attention, mlp, layer_norms(context, shape.hidden)),
            caches=(attention_cache(shape.heads, shape.head),),
            intermediate=intermediate,
        )

    tied = config.flag("tie_word_embeddings", default=True)
    return Blueprint(
        layers=tuple(layer(index) for index in range(layer_count(config))),
        parts=(
            *context.vocabulary_parts(vocabulary, shape.hidden, tied=tied, everywhere=True),
            ResidentPart(part=context.norm("norm", shape.hidden), residence=Residence.EVERY),
            text_rotary(config, shape.rope, context.itemsize, positions=8192),
        ),
        hidden=shape.hidden,
        vocabulary=vocabulary,
        attention_heads=shape.heads,
        kv_heads=shape.heads,
        head_size=shape.head,
    )


BUILDERS: dict[str, Builder] = {
    "MiniCPM3ForCausalLM": build_minicpm3,
}

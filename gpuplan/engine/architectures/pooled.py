"""Decoders as embedders, rerankers, classifiers and reward models: no output head, perhaps a small one in float32.

vLLM 0.32: vllm/model_executor/models/adapters.py (`as_embedding_model`, `as_seq_cls_model`), qwen2_rm.py, internlm2.py.
"""

from collections.abc import Callable
from dataclasses import replace

from gpuplan.domain.model import Linear, Part, Partition, Residence, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.context import Blueprint, Builder, Context
from gpuplan.engine.architectures.encoders import FLOAT32, label_count

DECODER = "ForCausalLM"
VISION = "ForConditionalGeneration"
EMBEDDERS = ("Model",)
CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")


def builder_of(architecture: str, decoder: Callable[[str], Builder | None]) -> Builder | None:
    """The builder of a decoder's further name (`LlamaModel`, `Qwen3ForSequenceClassification`); None: not one.

    `decoder` gives the builder of a decoder by its architecture.
    """
    if architecture in SPECIAL:
        name, made = SPECIAL[architecture]
        base = decoder(name)
        return None if base is None else made(name, base)
    for suffix in (*CLASSIFIERS, *EMBEDDERS):
        family = architecture.removesuffix(suffix)
        if family == architecture or not family:
            continue
        wrap = classifier if suffix in CLASSIFIERS else embedder
        endings = (DECODER, VISION) if suffix in CLASSIFIERS else (DECODER,)
        for ending in endings:
            base = decoder(f"{family}{ending}")
            if base is not None:
                return wrap(f"{family}{ending}", base)
    return None


def both_ways(builder: Builder) -> Builder:
    """The same with attention in both directions, which keeps nothing."""

    def build(context: Context) -> Blueprint:
        made = builder(context)
        return replace(made, layers=tuple(replace(layer, caches=()) for layer in made.layers))

    return build


def embedder(name: str, builder: Builder) -> Builder:
    """The decoder `name` without its head."""

    def build(context: Context) -> Blueprint:
        return replace(builder(replace(context, pooling=True, architecture=name)), pooling=True)

    return build


def classifier(name: str, builder: Builder) -> Builder:
    """The decoder `name` with one linear layer from the hidden width to the labels."""

    def build(context: Context) -> Blueprint:
        made = embedder(name, builder)(context)
        labels = label_count(context.config)
        score = Tensor(name="score", partition=Partition(units=labels * made.hidden), itemsize=FLOAT32)
        return _with(made, score)

    return build


def reward(labels: int, builder: Builder) -> Builder:
    """Qwen2 with two linear layers to `labels` scores, divided over the ranks."""

    def build(context: Context) -> Blueprint:
        made = embedder("Qwen2ForCausalLM", builder)(context)
        hidden = Partition(units=made.hidden)
        first = _float32("score.0", hidden, hidden, Shard.COLUMN)
        return _with(made, first, _float32("score.2", hidden, Partition(units=labels), Shard.ROW))

    return build


def _float32(name: str, inputs: Partition, outputs: Partition, shard: Shard) -> Linear:
    return Linear(name=name, inputs=inputs, outputs=(outputs,), shard=shard, itemsize=FLOAT32, bias=True)


def _with(made: Blueprint, *parts: Part) -> Blueprint:
    added = tuple(ResidentPart(part=part, residence=Residence.EVERY) for part in parts)
    return replace(made, parts=(*made.parts, *added))


SPECIAL: dict[str, tuple[str, Callable[[str, Builder], Builder]]] = {
    "Qwen2ForRewardModel": ("Qwen2ForCausalLM", lambda _, base: reward(1, base)),
    "Qwen2ForProcessRewardModel": ("Qwen2ForCausalLM", lambda _, base: reward(2, base)),
    "LlamaBidirectionalModel": ("LlamaForCausalLM", lambda name, base: both_ways(embedder(name, base))),
    "LlamaBidirectionalForSequenceClassification": (
        "LlamaForCausalLM",
        lambda name, base: both_ways(classifier(name, base)),
    ),
}
"""Names that follow no suffix, with the decoder behind them."""

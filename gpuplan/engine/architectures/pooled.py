"""Decoders as embedders, rerankers, classifiers and reward models: no output head, perhaps a small one in float32.

vLLM 0.32: vllm/model_executor/models/adapters.py (`as_embedding_model`, `as_seq_cls_model`), qwen2_rm.py, internlm2.py.
"""

from collections.abc import Mapping
from dataclasses import replace

from gpuplan.domain.model import Linear, Part, Partition, Residence, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.context import Blueprint, Builder, Context
from gpuplan.engine.architectures.encoders import FLOAT32, label_count

DECODER = "ForCausalLM"
EMBEDDERS = ("Model",)
CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")


def pooled(builders: Mapping[str, Builder]) -> dict[str, Builder]:
    """Further names of the decoders among `builders`: as embedders (`LlamaModel`) and classifiers."""
    found: dict[str, Builder] = {}
    for name, builder in builders.items():
        family = name.removesuffix(DECODER).removesuffix("ForConditionalGeneration")
        if family == name:
            continue
        names = [f"{family}{suffix}" for suffix in CLASSIFIERS]
        if name.endswith(DECODER):
            names += [f"{family}{suffix}" for suffix in EMBEDDERS]
        for other in names:
            if other not in builders:
                found[other] = (
                    classifier(name, builder) if other.endswith(CLASSIFIERS) else embedder(name, builder)
                )
    found["Qwen2ForRewardModel"] = reward(1, builders["Qwen2ForCausalLM"])
    found["Qwen2ForProcessRewardModel"] = reward(2, builders["Qwen2ForCausalLM"])
    found["MistralModel"] = embedder("MistralForCausalLM", builders["MistralForCausalLM"])
    llama = builders["LlamaForCausalLM"]
    found["LlamaBidirectionalModel"] = both_ways(embedder("LlamaForCausalLM", llama))
    found["LlamaBidirectionalForSequenceClassification"] = both_ways(classifier("LlamaForCausalLM", llama))
    return found


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

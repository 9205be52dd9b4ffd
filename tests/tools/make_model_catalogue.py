"""Write the model catalogue from a directory of published configurations, or compute its facts anew.

    python tests/tools/make_model_catalogue.py [DIRECTORY …]

A directory holds `ORG__NAME.json` (the config.json of ORG/NAME), where there is one `ORG__NAME.hf_quant_config.json`,
and `sources.json`, which says for each hub id where its configuration is from; models without an entry are left out.
The models of the directories are added to the catalogue, or replaced in it. Without a directory only the facts that
the engine computes (parameters, bytes, context) are written anew from the configurations already in the catalogue.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpuplan.domain.model import Embedding, Experts, Linear, ModelProfile, Part, Tensor
from gpuplan.domain.repository import Origin, Repository
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.operations.models import ESSENTIAL, profile_of
from gpuplan.sources.catalogue.models import CatalogueModel, file_name
from gpuplan.sources.class_defaults import needs_class_defaults, with_class_defaults

CATALOGUE = Path(__file__).parents[2] / "gpuplan" / "sources" / "catalogue"

FAMILIES = (
    (r"embedding|rerank|bge-", "Embedding and reranking"),
    (r"deepseek-r1-distill-qwen", "Qwen2.5"),
    (r"hermes-3-llama-3\.1", "Llama 3"),
    (r"nemotron-super-49b", "Nemotron"),
    (r"typhoon-ocr|olmocr", "Qwen2.5"),
    (r"typhoon-s-thaillm", "Qwen3"),
    (r"nemotron", "Nemotron"),
    (r"(qwen\d(?:\.\d)?)", None),
    (r"deepseek[-_](v4)", "DeepSeek-V4"),
    (r"deepseek[-_](v2)", "DeepSeek-V2"),
    (r"deepseek", "DeepSeek-V3"),
    (r"(?:meta-)?llama-4", "Llama 4"),
    (r"(?:tiny|meta-)?llama", "Llama 3"),
    (r"(gemma-\d)", None),
    (r"gpt-oss", "gpt-oss"),
    (r"glm-(\d)", None),
    (r"kimi-(k\d)", None),
    (r"minimax-(m\d)", None),
    (r"mi[ns]tral|mixtral|devstral|magistral|voxtral|ministral", "Mistral"),
    (r"phi-", "Phi"),
    (r"olmo", "OLMo"),
    (r"exaone", "EXAONE"),
    (r"mimo", "MiMo"),
    (r"step-?\d", "Step"),
    (r"laguna", "Laguna"),
    (r"lfm", "LFM"),
    (r"whisper", "Speech"),
    (r"llava", "LLaVA"),
)
"""Name pattern and family; None: the matched text is the family."""

UNREAD = """
    _name_or_path _config_class auto_map transformers_version transformers.js_config id2label label2id use_cache
    initializer_range initializer_factor init_std attention_dropout hidden_dropout dropout embd_pdrop resid_pdrop
    attn_pdrop projector_dropout expert_dropout router_aux_loss_coef aux_loss_alpha output_router_logits
    output_attentions output_hidden_states output_scores return_dict return_dict_in_generate add_cross_attention
    bad_words_ids begin_suppress_tokens cross_attention_hidden_size decoder_start_token_id diversity_penalty
    do_sample early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty finetuning_task
    forced_bos_token_id forced_eos_token_id is_decoder length_penalty max_length min_length no_repeat_ngram_size
    num_beam_groups num_beams num_return_sequences prefix problem_type pruned_heads remove_invalid_values
    repetition_penalty sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss
    tie_encoder_decoder tokenizer_class top_p torchscript typical_p use_bfloat16 chunk_size_feed_forward
    _attn_implementation summary_type summary_use_proj summary_proj_to_labels summary_first_dropout
    image_placeholder video_placeholder seq_aux rescale_prenorm_residual residual_in_fp32 num_logits_to_keep
    producer
""".split()  # noqa: SIM905 - a list of seventy words
"""Keys of transformers that rule generation, training or tokenizing: nothing here depends on them."""

QUANTIZED = re.compile(
    r"[-_ ](fp8|nvfp4|mxfp4|awq|gptq|int4|int8|w4a16|w8a8|4bit|8bit|qat|autoawq|dynamic|static|pertensor"
    r"|quantized\.w\w+|fp4|block)(?=$|[-_ ])",
    re.IGNORECASE,
)
_EXPERT = re.compile(r"(.*\.experts\.)\d+\.[^.]+$")


def main(arguments: list[str]) -> int:
    models = {row["name"]: CatalogueModel(**row) for row in _stored()}
    for directory in arguments:
        for name, source in sorted(json.loads(Path(directory, "sources.json").read_text()).items()):
            _write_config(name, _read_files(Path(directory), name))
            models[name] = _facts(name, source)
    facts = {name: _facts(name, model.source) for name, model in models.items()}
    rows = sorted(_with_bases(facts).values(), key=lambda m: (m.family.casefold(), m.weights_bytes, m.name))
    lines = ",\n".join(json.dumps(asdict(row), ensure_ascii=False) for row in rows)
    (CATALOGUE / "models.json").write_text('{"models": [\n' + lines + "\n]}\n")
    kept = {file_name(row.name) for row in rows}
    for path in (CATALOGUE / "configs").glob("*.json"):
        if path.name not in kept:
            path.unlink()
    print(f"{len(rows)} models", file=sys.stderr)  # noqa: T201 - a tool that is run by hand says what it did
    return 0


def _stored() -> list[dict[str, Any]]:
    path = CATALOGUE / "models.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["models"] if path.exists() else []
    return rows


def _read_files(directory: Path, name: str) -> Repository:
    path = directory / file_name(name)
    beside = path.with_name(path.stem + ".hf_quant_config.json")
    return Repository(
        name=name,
        origin=Origin.CATALOGUE,
        location=name,
        config=json.loads(path.read_text()),
        quantization=json.loads(beside.read_text()) if beside.exists() else None,
    )


def _write_config(name: str, original: Repository) -> None:
    """Store what the description needs, and make sure it gives the same profile."""
    config: dict[str, Any] = dict(original.config)
    if needs_class_defaults(config, ESSENTIAL):
        config = with_class_defaults(config).config
    compact = replace(original, config=_compacted(config), quantization=_compacted(original.quantization))
    expected = _profile(original)
    alone = replace(compact, quantization=None)
    if compact.quantization is not None and _profile(alone) == expected:
        compact = alone
    if _profile(compact) != expected:
        raise SystemExit(f"{name}: the compacted configuration gives another profile")
    files: dict[str, Any] = {"config": compact.config}
    if compact.quantization is not None:
        files["hf_quant_config"] = compact.quantization
    target = CATALOGUE / "configs" / file_name(name)
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(files, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n")


def _compacted(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {key: _compacted(item) for key, item in value.items() if not _unread(key)}
        return _fewer_experts(kept)
    return [_compacted(item) for item in value] if isinstance(value, list) else value


def _unread(key: str) -> bool:
    return key in UNREAD or key.endswith(("_token_id", "_token_ids", "_token_index"))


def _fewer_experts(config: dict[str, Any]) -> dict[str, Any]:
    """One expert of a layer stands for all of them in `quantized_layers`, where all have one algorithm.

    vLLM looks up the layer of fused experts by what its name begins with (layers/quantization/modelopt.py).
    """
    layers = config.get("quantized_layers")
    if not isinstance(layers, Mapping):
        return config
    groups: dict[str, list[str]] = {}
    for name in layers:
        found = _EXPERT.match(name)
        groups.setdefault(found[1] if found else name, []).append(name)
    kept: dict[str, Any] = {}
    for names in groups.values():
        alike = len({json.dumps(layers[name], sort_keys=True) for name in names}) == 1
        kept.update({name: layers[name] for name in (names[:1] if alike else names)})
    return {**config, "quantized_layers": kept}


def _facts(name: str, source: str) -> CatalogueModel:
    files = json.loads((CATALOGUE / "configs" / file_name(name)).read_text())
    repository = Repository(
        name=name,
        origin=Origin.CATALOGUE,
        location=name,
        config=files["config"],
        quantization=files.get("hf_quant_config"),
    )
    profile = _profile(repository)
    return CatalogueModel(
        name=name,
        family=family_of(name),
        base=None,
        quantization=profile.quantization,
        parameters=parameter_count(repository) if profile.recognised else None,
        weights_bytes=rank_weights(profile, Split()).parameters,
        longest_context=profile.longest_context,
        architecture=profile.architecture,
        source=source,
    )


def _profile(repository: Repository) -> ModelProfile:
    return profile_of(repository, EngineArguments())[0]


def family_of(name: str) -> str:
    """The heading a model is listed under."""
    short = name.rpartition("/")[2].casefold()
    for pattern, family in FAMILIES:
        if found := re.search(pattern, short):
            return family or _spelled(found[0])
    return "Other"


def _spelled(text: str) -> str:
    for proper in ("Qwen", "Gemma", "GLM", "Kimi-K", "MiniMax-M"):
        text = text.replace(proper.casefold(), proper)
    return text


def parameter_count(repository: Repository) -> int:
    """Weights of the model as it would be without quantization; drafts and buffers are not counted."""
    bare = {
        key: value
        for key, value in repository.config.items()
        if key not in ("quantization_config", "compression_config")
    }
    if isinstance(bare.get("text_config"), Mapping):
        bare["text_config"] = {k: v for k, v in bare["text_config"].items() if k != "quantization_config"}
    profile = _profile(replace(repository, config=bare, quantization=None))
    layers = [sum(_count(part) for part in layer.parts) for layer in profile.layer_kinds]
    resident = sum(_count(entry.part) for entry in profile.parts if not entry.buffer)
    return resident + sum(layers[kind] for kind in profile.layer_order)


def _count(part: Part) -> int:
    match part:
        case Linear():
            outputs = sum(output.size for output in part.outputs)
            return outputs * part.inputs.size + (outputs if part.bias else 0)
        case Experts():
            matrices = 3 if part.gated else 2
            biases = (part.hidden + (matrices - 1) * part.intermediate) if part.bias else 0
            return part.count * (matrices * part.hidden * part.intermediate + biases)
        case Tensor():
            return part.partition.size
        case Embedding():
            return part.rows * part.width + (part.rows if part.bias else 0)


def _with_bases(models: dict[str, CatalogueModel]) -> dict[str, CatalogueModel]:
    """Name the release that a quantized variant was made from, where the catalogue has it."""
    releases: dict[str, list[str]] = {}
    for name in models:
        if _plain_name(name) == _short(name):
            releases.setdefault(_short(name), []).append(name)
    result = {}
    for name, model in models.items():
        base = None
        if model.quantization is not None and _plain_name(name) != _short(name):
            own = name.partition("/")[0]
            found = sorted(
                releases.get(_plain_name(name), ()), key=lambda n: (not n.startswith(own + "/"), n)
            )
            base = found[0] if found else None
        result[name] = replace(model, base=base)
    return result


def _short(name: str) -> str:
    return name.rpartition("/")[2].casefold().removeprefix("meta-")


def _plain_name(name: str) -> str:
    previous, plain = "", _short(name)
    while plain != previous:
        previous, plain = plain, QUANTIZED.sub("", plain)
    return plain


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

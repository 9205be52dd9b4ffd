"""Ranges and relations of argument values, and the typed fields a plan reads.

vLLM checks most of these later than its parser (pydantic fields of its configuration classes, 0.33
`config/*.py`); a plan refuses them before it starts.
"""

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gpuplan.domain.workload import ArgumentNotice, EngineArguments
from gpuplan.engine.argument_values import parse_object, whole
from gpuplan.engine.flags import config_keys, flags_by_destination
from gpuplan.engine.versions import (
    QUANTIZATION_METHODS,
    EngineVersion,
    default_gpu_memory_utilization,
    quantization_removed,
    removed_quantizations,
)
from gpuplan.errors import UsageError


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_AT_LEAST_ONE = _words(
    """
    tensor_parallel_size pipeline_parallel_size data_parallel_size prefill_context_parallel_size
    decode_context_parallel_size nnodes max_num_seqs max_num_batched_tokens max_num_scheduled_tokens
    max_num_active_seqs block_size mamba_block_size prefix_match_unit max_loras replayssm_buffer_len
    stream_interval elastic_ep_max_dp_size max_parallel_loading_workers dp_sync_interval
    cp_kv_cache_interleave_size dcp_kv_cache_interleave_size
    """
)
_AT_LEAST_ZERO = _words(
    """
    data_parallel_size_local data_parallel_rank node_rank cpu_offload_gb swap_space kv_offloading_size
    ubatch_size kv_cache_memory_bytes num_gpu_blocks_override max_num_queued_reqs
    max_num_queued_tokens mm_ipc_gpu_memory_gb mm_processor_cache_gb dbo_decode_token_threshold
    dbo_prefill_token_threshold long_prefill_token_threshold prefix_cache_retention_interval
    offload_group_size sse_keep_alive_interval
    """
)
_PORTS = frozenset(("port", "grpc_port", "data_parallel_rpc_port", "master_port"))
_OBJECTS = _words(
    """
    hf_overrides limit_mm_per_prompt speculative_config mm_processor_kwargs media_io_kwargs
    override_generation_config default_chat_template_kwargs rope_scaling
    """
)
KV_CACHE_DTYPES = _words(
    """
    auto float16 bfloat16 fp8 fp8_e4m3 fp8_e5m2 fp8_inc fp8_ds_mla nvfp4_ds_mla turboquant_k8v4
    turboquant_4bit_nc turboquant_k3v4_nc turboquant_3bit_nc octave_k3v4 octave_k3v3
    octave_k3v3_compact ultraquant_4bit int4_per_token_head int8_per_token_head fp8_per_token_head
    nvfp4 nvfp4_4over6
    """
)
"""`CacheDType` of 0.33 (`config/cache.py`)."""
READ_FROM = EngineVersion(0, 30)
"""Names and keys are those of 0.33; they are enforced from this release on."""
EXECUTORS = ("ray", "mp", "uni", "external_launcher")


def check_value(destination: str, value: Any, version: EngineVersion) -> None:
    """Raise ValueError, whose text completes "--flag: ", for a value outside what the engine accepts."""
    if value is None:
        return
    if destination == "gpu_memory_utilization" and not 0 < value <= 1:
        default = default_gpu_memory_utilization(version)
        raise ValueError(
            f"{value:g} is not in (0, 1]; it is a share of each GPU's memory, {default} by default"
        )
    if destination in _AT_LEAST_ONE and value < 1:
        raise ValueError(f"{value} is less than 1")
    if destination in _AT_LEAST_ZERO and value < 0:
        raise ValueError(f"{value} is less than 0")
    if destination == "max_model_len" and value != "auto" and value < 1:
        raise ValueError(f"{value} is not a length; write tokens, or auto to fit the memory")
    if destination in _PORTS and not 0 < value < 65536:
        raise ValueError(f"{value} is not a port (1 to 65535)")
    if destination in _OBJECTS and not isinstance(value, dict):
        raise ValueError("not a JSON object")
    if destination == "cudagraph_capture_sizes" and value < 1:
        raise ValueError(f"{value} is less than 1")
    _check_name(destination, value, version)
    if destination in config_keys() and version >= READ_FROM:
        for key in value:
            _one_of(key.replace("-", "_"), config_keys()[destination])
    if destination == "eplb_config":
        _check_eplb(value)
    if destination == "lora_modules" and value and ("=" not in value or "," in value):
        parse_object(value)


def _check_name(destination: str, value: Any, version: EngineVersion) -> None:
    match destination:
        case "kv_cache_dtype" if version >= READ_FROM:
            _one_of(value, KV_CACHE_DTYPES)
        case "quantization" if value not in removed_quantizations() and version >= READ_FROM:
            _one_of(value, tuple(sorted(QUANTIZATION_METHODS)))
        case "data_parallel_backend":
            _one_of(value, ("mp", "ray"))
        case "optimization_level":
            _one_of(value, ("0", "1", "2", "3"))
        case _:
            return


def _one_of(value: str, known: tuple[str, ...]) -> None:
    if value in known:
        return
    near = difflib.get_close_matches(str(value)[:60], known, n=1, cutoff=0.6)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"{str(value)[:60]!r} is not one of {', '.join(known)}{meant}")


def _check_eplb(config: Mapping[str, Any]) -> None:
    """The fields of `EPLBConfig` (0.33, `config/parallel.py`)."""
    positive = {
        "window_size": 1,
        "step_interval": 1,
        "num_redundant_experts": 0,
        "log_balancedness_interval": 1,
    }
    booleans = ("log_balancedness", "use_async", "enable_migration_batching")
    for key, value in config.items():
        if key in positive and (
            not isinstance(value, int) or isinstance(value, bool) or value < positive[key]
        ):
            raise ValueError(f"{key} must be a whole number of at least {positive[key]}, got {value!r}"[:120])
        if key in booleans and not isinstance(value, bool):
            raise ValueError(f"{key} must be true or false, got {value!r}"[:120])
    if config.get("use_async", True) and config.get("communicator") in ("torch_nccl", "pynccl"):
        raise ValueError(
            f"communicator {config['communicator']} needs use_async false; torch_gloo and nixl do not"
        )
    if config.get("use_async", True) and config.get("policy", "default") != "default":
        raise ValueError("use_async works with the default policy only")


_TYPED = {field.name for field in fields(EngineArguments)} - {
    "user_args",
    "user_set",
    "values",
    "notices",
    "model",
}


def typed_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `EngineArguments` that were given; None and empty values fall back to the field's
    default.

    Raises UsageError where two arguments contradict each other.
    """
    typed = {name: value for name, value in values.items() if name in _TYPED and value is not None}
    if "optimization_level" in typed:
        typed["optimization_level"] = whole(typed["optimization_level"])
    if isinstance(typed.get("hf_overrides"), str):
        raise UsageError("--hf-overrides: not a JSON object", hint="--hf-overrides '{\"key\": 1}'")
    redundant = values.get("eplb_config", {}).get("num_redundant_experts")
    if redundant is not None:
        typed["num_redundant_experts"] = redundant
    speculative = _speculative(values)
    if speculative is not None:
        typed["speculative_config"] = speculative
    if "cuda_graph_sizes" in values:
        typed.setdefault("cudagraph_capture_sizes", values["cuda_graph_sizes"])
    if "rope_scaling" in values or "rope_theta" in values:
        older = {key: values[key] for key in ("rope_scaling", "rope_theta") if values.get(key) is not None}
        typed["hf_overrides"] = {**older, **typed.get("hf_overrides", {})}
    return typed


def _speculative(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """`--speculative-config` with its shorthands merged, keys with underscores (0.33,
    `create_speculative_config`).
    """
    given = values.get("speculative_config")
    merged = {str(key).replace("-", "_"): value for key, value in given.items()} if given is not None else {}
    shorthands = (
        ("spec_method", "method"),
        ("spec_model", "model"),
        ("spec_tokens", "num_speculative_tokens"),
    )
    for destination, key in shorthands:
        value = values.get(destination)
        if value is None:
            continue
        if key in merged:
            name = flags_by_destination()[destination].name
            raise UsageError(
                f"{name} and --speculative-config both set {key}", hint=f"keep one of them for {key}"
            )
        merged[key] = value
    tokens = merged.get("num_speculative_tokens")
    if tokens is not None and (not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1):
        raise UsageError(
            f"--speculative-config: num_speculative_tokens must be at least 1, got {str(tokens)[:40]}",
            hint="""write for example --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'""",
        )
    return merged or None


def notices_of(values: Mapping[str, Any], version: EngineVersion) -> tuple[ArgumentNotice, ...]:
    """What the user should know about accepted arguments in the chosen release."""
    notices: list[ArgumentNotice] = []
    for destination in values:
        flag = flags_by_destination()[destination]
        if flag.absent_in is not None and version <= flag.absent_in:
            text = (
                f"vLLM {version} does not know {flag.name}: {flag.added_in} is the first release read "
                "that has it"
            )
            notices.append(ArgumentNotice(code="newer_flag", flag=flag.name, message=text))
        if flag.last_in is not None and version > flag.last_in:
            text = (
                f"{flag.name} left vLLM between {flag.last_in} and {flag.removed_in}; {version} may refuse it"
            )
            notices.append(ArgumentNotice(code="removed_flag", flag=flag.name, message=text))
    method = values.get("quantization")
    removed = quantization_removed(version, method) if isinstance(method, str) else None
    if removed is not None:
        text = (
            f"quantization {method} is not in vLLM's own tree from {removed} on: {version} needs a "
            "plugin for it"
        )
        notices.append(ArgumentNotice(code="quantization_removed", flag="--quantization", message=text))
    executor = values.get("distributed_executor_backend")
    if executor is not None and executor not in EXECUTORS and "." not in executor:
        text = (
            f"{executor[:60]!r} is no executor ({', '.join(EXECUTORS)}): the engine accepts it and "
            "fails importing it"
        )
        notices.append(
            ArgumentNotice(code="unknown_executor", flag="--distributed-executor-backend", message=text)
        )
    if values.get("config"):
        text = "the arguments in the --config file are read by the engine, not by this plan"
        notices.append(ArgumentNotice(code="unread_config", flag="--config", message=text))
    return tuple(notices)

"""What an engine was started with, read from its own log: the arguments line, and the configuration it prints.

`non-default args: {…}` since 0.9, `args: Namespace(…)` in 0.8, `Initializing a V1 LLM engine (vX) with config: …` in all.
Values that are no literals (`<Enum…>`, `Config(…)`) are passed over.
"""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuplan.engine.argument_tokens import flatten
from gpuplan.engine.arguments import parse, written
from gpuplan.engine.flags import flags_by_destination
from gpuplan.engine.log_line import level
from gpuplan.engine.versions import EngineVersion
from gpuplan.errors import UsageError

SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "prefill_context_parallel_size",
    "decode_context_parallel_size",
    "enable_expert_parallel",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "kv_cache_dtype",
    "enforce_eager",
)
"""What a start is known by one by one."""
DESCRIBING = ("dtype", "quantization", "hf_overrides", "runner", "convert", "task", "revision")
"""What decides how the model is described."""
OTHERS = (
    "all2all_backend",
    "async_scheduling",
    "attention_backend",
    "attention_config",
    "block_size",
    "compilation_config",
    "cpu_offload_gb",
    "cuda_graph_sizes",
    "cudagraph_capture_sizes",
    "disable_custom_all_reduce",
    "disable_hybrid_kv_cache_manager",
    "disable_sliding_window",
    "enable_chunked_prefill",
    "enable_dbo",
    "enable_eplb",
    "enable_lora",
    "enable_prefix_caching",
    "enable_sleep_mode",
    "enable_tower_connector_lora",
    "eplb_config",
    "fully_sharded_loras",
    "kernel_config",
    "kv_cache_dtype_skip_layers",
    "kv_sharing_fast_prefill",
    "kv_transfer_config",
    "language_model_only",
    "limit_mm_per_prompt",
    "linear_backend",
    "lora_dtype",
    "lora_extra_vocab_size",
    "lora_target_modules",
    "mamba_block_size",
    "mamba_cache_dtype",
    "mamba_cache_mode",
    "mamba_ssm_cache_dtype",
    "max_cudagraph_capture_size",
    "max_lora_rank",
    "max_loras",
    "max_seq_len_to_capture",
    "mm_encoder_attn_backend",
    "mm_encoder_tp_mode",
    "mm_ipc_gpu_memory_gb",
    "mm_processor_kwargs",
    "model_impl",
    "moe_backend",
    "num_redundant_experts",
    "optimization_level",
    "performance_mode",
    "skip_mm_profiling",
    "specialize_active_lora",
    "speculative_config",
    "ubatch_size",
)
"""Other arguments that bear on memory."""
READ = frozenset((*SIZES, *DESCRIBING, *OTHERS))
PLACE = ("nnodes", "node_rank", "headless", "data_parallel_rank")
"""What tells the leader of several nodes from the others."""
MOST = 100_000
"""Characters of a line that are read."""
_OPENINGS = (("non-default args: {", ":"), ("args: Namespace(", "="))
"""What stands before the arguments, and between name and value."""
FOLDS = 60
"""Lines that one line of arguments is folded into at most."""
_OPEN, _CLOSE = "([{", ")]}"


def unfolded(lines: Iterable[str]) -> Iterator[str]:
    """The lines, those of the arguments whole again that a terminal has folded: what it was copied from."""
    held, folds = "", 0
    for line in lines:
        if held and line and folds < FOLDS and level(line) is None:
            held, folds = held + line, folds + 1
        else:
            if held:
                yield held
            held, folds = line, 0
        said = arguments_said(held)
        if said is None or closes(said[0]):
            yield held
            held = ""
    if held:
        yield held


def arguments_said(line: str) -> tuple[str, str] | None:
    """What a line tells of the arguments from its opening bracket on, and what stands between name and value."""
    for opening, separator in _OPENINGS:
        at = line.find(opening)
        if at >= 0:
            return line[at + len(opening) :], separator
    return None


def literals(text: str, separator: str) -> dict[str, Any]:
    """`'a': 1, 'b': {…}` (separator `:`) or `a=1, b=Config(…)` (`=`): every value that is a literal, by name."""
    found: dict[str, Any] = {}
    for part in _parts(text[:MOST]):
        name, between, value = part.partition(separator)
        name = name.strip().strip("'\"")
        if not between or not name.isidentifier():
            continue
        try:
            found[name] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return found


def words_of(text: str) -> dict[str, str]:
    """`a=1, b='x', c=Config(…)` as texts by name, quotes taken away; for values that are names, as `torch.bfloat16`."""
    found: dict[str, str] = {}
    for part in _parts(text[:MOST]):
        name, between, value = part.partition("=")
        if between and name.strip().isidentifier():
            found.setdefault(name.strip(), value.strip().strip("'\""))
    return found


def closes(text: str) -> bool:
    """Whether the bracket that was opened before the text is closed in it; not so where a line was cut or folded."""
    return any(depth < 0 for _, depth in _marks(text[:MOST]))


def _parts(text: str) -> Iterator[str]:
    """The text cut at the commas that stand outside of brackets and quotes; ends where a bracket too many closes."""
    start = 0
    for position, depth in _marks(text):
        if depth < 0:
            yield text[start:position]
            return
        if text[position] == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def _marks(text: str) -> Iterator[tuple[int, int]]:
    """Every bracket and comma outside of quotes: where it stands, and how many brackets are open behind it."""
    depth, quote = 0, ""
    escaped = False
    for position, char in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPEN or char in _CLOSE or char == ",":
            depth += (char in _OPEN) - (char in _CLOSE)
            yield position, depth


def argument_words(
    values: Mapping[str, Any], version: EngineVersion
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arguments that bear on memory in the engine's own syntax, and the names of those that are not understood."""
    words: list[str] = []
    refused: list[str] = []
    flags = flags_by_destination()
    for name, value in values.items():
        if name not in READ or value is None:
            continue
        if name not in flags:
            refused.append(name)
            continue
        one = _written(name, value)
        try:
            parse(one, version=version, model_given=True)
        except UsageError:
            refused.append(name)
            continue
        words += one
    return flatten(words), tuple(refused)


def _written(name: str, value: Any) -> tuple[str, ...]:
    flag = flags_by_destination()[name]
    if isinstance(value, bool):
        if flag.takes_value:
            return (flag.name, str(value))
        if flag.kind == "switch":
            return (flag.name,) if value else ()
    if isinstance(value, str) and value.startswith("{"):
        return (flag.name, value)
    if isinstance(value, dict):
        return (flag.name, json.dumps(value, sort_keys=True, default=str))
    return written(name, value)

"""A page per finding code: what it means, why it matters, what to do, where the rule comes from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What `gpuplan explain` prints of a code."""

    code: str
    title: str
    what: str
    why: str
    do: str
    source: str


def _page(code: str, title: str, what: str, why: str, do: str, source: str) -> Page:
    return Page(code=code, title=title, what=what, why=why, do=do, source=source)


_PAGES = (
    _page(
        "GP101",
        "Attention heads do not divide",
        "The number of attention heads is not a multiple of the tensor-parallel size.",
        "Every tensor-parallel rank computes whole heads. The engine refuses the size before it loads anything.",
        "Choose a size that divides the heads, or spend the GPUs on pipeline stages, which need not divide anything "
        "but the number of layers: -- --tensor-parallel-size 2 --pipeline-parallel-size 3.",
        "vLLM config/model.py, verify_with_parallel_config; S0.13",
    ),
    _page(
        "GP102",
        "KV heads do not divide",
        "The key-value heads neither divide by the tensor-parallel size nor does the size divide by them.",
        "With fewer KV heads than ranks each head is copied to several ranks; that works only when the copies come out even.",
        "Use a tensor-parallel size that is a multiple or a divisor of the number of KV heads.",
        "vLLM model_executor/layers/linear.py, QKVParallelLinear",
    ),
    _page(
        "GP103",
        "Vision heads do not divide",
        "The vision tower's attention heads are not a multiple of the tensor-parallel size.",
        "The tower is split like the language model unless it runs data parallel.",
        "Add -- --mm-encoder-tp-mode data, drop the tower with -- --language-model-only, or use another size.",
        "vLLM multimodal config; S0.13",
    ),
    _page(
        "GP104",
        "The vocabulary does not divide",
        "The vocabulary, padded to a multiple of 64 rows, is not a multiple of the tensor-parallel size.",
        "Embedding and output head are divided by rows.",
        "Powers of two up to 64 always work.",
        "vLLM layers/vocab_parallel_embedding.py",
    ),
    _page(
        "GP105",
        "A layer's width does not divide",
        "Some matrix of the model cannot be cut into that many equal parts.",
        "The engine asserts this while it builds the layer, after the start-up checks.",
        "Use a smaller tensor-parallel size; for experts, -- --enable-expert-parallel keeps them whole.",
        "vLLM distributed/utils.py, divide",
    ),
    _page(
        "GP106",
        "Quantization blocks do not divide",
        "A rank's part of a quantized matrix would end inside a quantization block or group.",
        "Scales belong to whole blocks (128 × 128 for block fp8, the group size for 4-bit weights). No argument check of the "
        "engine catches this: it fails while loading.",
        "Use a smaller tensor-parallel size, or -- --enable-expert-parallel when the experts are what does not divide.",
        "vLLM quantization/fp8.py, validate_fp8_block_shape; quantization/kernels",
    ),
    _page(
        "GP107",
        "More stages than layers",
        "There are more pipeline stages than decoder layers.",
        "A stage without a layer has nothing to compute.",
        "Use fewer stages.",
        "vLLM distributed/utils.py, get_pp_indices",
    ),
    _page(
        "GP108",
        "No pipeline support",
        "The model's class cannot be cut into pipeline stages.",
        "Only classes that implement the engine's pipeline interface can run on several stages.",
        "Use tensor parallel on one host, or another variant of the model.",
        "vLLM models/interfaces.py, SupportsPP",
    ),
    _page(
        "GP109",
        "Expert parallel without experts",
        "Expert parallel was asked for, but the model is dense.",
        "The engine refuses the flag for dense models.",
        "Leave --enable-expert-parallel out.",
        "vLLM config/model.py",
    ),
    _page(
        "GP110",
        "Context parallel does not fit the sizes",
        "The decode- or prefill-context-parallel size does not go with the tensor-parallel size.",
        "Decode context parallel reuses the tensor-parallel ranks and must divide them.",
        "Choose a size that divides the tensor-parallel size.",
        "vLLM config/parallel.py; S3.6",
    ),
    _page(
        "GP111",
        "No bfloat16 on this card",
        "The model runs in bfloat16, which NVIDIA cards have from compute capability 8.0 (Ampere) on.",
        "With --dtype auto the engine falls back to float16 where all cards are older and the model bears it; on mixed cards, "
        "or for models that are unstable in float16, it refuses.",
        "Pass -- --dtype float16, or keep the placement on newer cards.",
        "vLLM platforms/cuda.py, config/model.py",
    ),
    _page(
        "GP112",
        "Quantization not supported on this card",
        "The checkpoint's quantization method has no kernel for this compute capability.",
        "The engine refuses the model before it loads anything.",
        "Use another variant of the model, or newer cards.",
        "vLLM quantization configs, get_min_capability",
    ),
    _page(
        "GP113",
        "Card too old",
        "vLLM runs on NVIDIA cards from compute capability 7.0 on.",
        "Older cards have no kernels in the engine's builds.",
        "Use newer cards.",
        "vLLM platforms/cuda.py",
    ),
    _page(
        "GP114",
        "Quantization groups are cut",
        "A rank's share of a 4-bit matrix ends inside a group, so its scales no longer belong to its weights.",
        "The engine allocates whole groups only and starts without complaint; what the rank computes is wrong.",
        "Use a smaller tensor-parallel size, or keep experts whole with -- --enable-expert-parallel.",
        "vLLM quantization/modelopt.py, quantization/auto_gptq.py: scales are created by integer division",
    ),
    _page(
        "GP201",
        "Not enough free memory at start",
        "Before anything is loaded, the engine wants its whole budget (total memory × gpu-memory-utilization) to be free. "
        "Its own CUDA context and communicators come on top.",
        "The share is one of the total, not of what is free: a card half used by somebody else fails although the model would fit "
        "in the other half.",
        "Free the memory, choose another GPU, or lower the share so that the budget fits what is free: "
        "-- --gpu-memory-utilization 0.45.",
        "vLLM v1/worker/utils.py, request_memory; S0.8",
    ),
    _page(
        "GP202",
        "The claim is larger than a card gives",
        "With --vram-claim nothing is known of how the model splits, so each of n ranks is taken to need one n-th of it.",
        "Every rank must hold its part on its own card; memory of several cards is never pooled.",
        "Use more GPUs or larger cards, or leave --vram-claim out and let the model's own files be read.",
        "S0.8, S0.9 and their corrections",
    ),
    _page(
        "GP203",
        "Weights leave no room",
        "Weights, activation and CUDA graphs of a rank take the whole budget: not one KV block is left.",
        'The engine would load the weights for minutes and then stop with "No available memory for the cache blocks".',
        "Use more GPUs (tensor parallel divides weights), a quantized variant, larger cards or a higher share.",
        "vLLM v1/core/kv_cache_planning.py",
    ),
    _page(
        "GP204",
        "One request is too long for the KV cache",
        "A single request of the asked context needs more KV cache than is left after the weights.",
        "The engine refuses to start: it promises every client the full length.",
        "Shorten the context, halve the cache with --kv-cache-dtype fp8, or use more GPUs.",
        "vLLM v1/core/kv_cache_planning.py, _check_enough_kv_cache_memory",
    ),
    _page(
        "GP205",
        "Too many requests at once for the KV cache",
        "The asked number of concurrent requests of the asked length does not fit. The engine would start.",
        "It would queue or preempt requests, so the concurrency you count on is not there.",
        "Lower --concurrency or --context, use --kv-cache-dtype fp8, or more GPUs or replicas.",
        "KV geometry of vLLM v1/kv_cache_interface.py",
    ),
    _page(
        "GP206",
        "No useful context",
        "The model loads, but what is left holds only a very short context.",
        "A server that can answer 200 tokens is rarely what was meant, so it is not offered unless a length is asked for.",
        "Use more GPUs or a quantized variant, or ask for the length with --context.",
        "S1.3",
    ),
    _page(
        "GP207",
        "Too close to call",
        "The likely figures fit, the safe end of their ranges does not.",
        "Activation, CUDA graphs and driver memory depend on kernels chosen at start; they are predicted as ranges, and a fit "
        "must hold at the safe end.",
        "Take a little off the context or the load.",
        "measured scatter of start-up logs",
    ),
    _page(
        "GP208",
        "Context shortened",
        "No context was asked for, so the longest that safely fits was chosen; it is shorter than the model allows.",
        "The engine's own default is the model's full length, with which this placement would not start.",
        "Ask for the length you need with --context N, or for the model's longest with --context max.",
        "S1.3",
    ),
    _page(
        "GP209",
        "Very high utilization",
        "The share of GPU memory is above 0.95.",
        "CUDA context, communicators and fragmentation live outside the budget; starts at 0.98 are known to fail.",
        "Stay at or below 0.95 unless you measured it on this hardware.",
        "start-up logs; vLLM v1/worker/gpu_worker.py",
    ),
    _page(
        "GP210",
        "Longer than the model allows",
        "The asked context is longer than the length the engine derives from the model's config.",
        "The engine refuses it by default; with VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 it starts, but positions beyond the trained "
        "length can make the answers wrong.",
        "Ask for less, or scale the positions: -- --hf-overrides '{\"rope_scaling\": ...}'.",
        "vLLM config/model.py, _get_and_verify_max_len",
    ),
    _page(
        "GP301",
        "Too few GPUs on a host",
        "The host has fewer usable GPUs than the shape takes.",
        "Tensor parallel ranks of one stage must sit in one host.",
        "Use another host, fewer GPUs, or stages over several hosts.",
        "S0.9",
    ),
    _page(
        "GP302",
        "Too little host memory",
        "Offloaded weights or the extended KV cache need more RAM than the host has available.",
        "They are pinned in host memory, on every host of the placement.",
        "Offload less or use a host with more RAM.",
        "S0.5",
    ),
    _page(
        "GP303",
        "Too few hosts",
        "Fewer than two hosts have a usable GPU of one vendor.",
        "A placement over several hosts needs two, and never mixes vendors.",
        "Free or add hosts.",
        "S0.10, S0.11",
    ),
    _page(
        "GP304",
        "Too few places for the replicas",
        "Not every replica finds GPUs of its own.",
        "Replicas never share a GPU, and each is checked by itself.",
        "Ask for fewer replicas or free GPUs.",
        "S0 corrections 1 and 9",
    ),
    _page(
        "GP305",
        "Unlike cards together",
        "The placement uses cards of different kinds.",
        "All ranks get the same number of KV blocks, so the poorest card limits the others.",
        "Prefer equal cards; with pipeline stages an uneven layer split helps.",
        "S0.11",
    ),
    _page(
        "GP306",
        "Data parallel of a dense model",
        "Ranks of a dense model share nothing: each holds all weights and its own KV cache.",
        "The engine refuses some forms of it and gains nothing from the others.",
        "Use --replicas and a router.",
        "S3.2",
    ),
    _page(
        "GP307",
        "Needs Ray",
        "Unequal numbers of GPUs per host need Ray as the executor.",
        "vLLM's own multi-node mode gives every host the same number of ranks; official images carry no Ray since 0.18.",
        "Use an image that has Ray, or an even placement.",
        "S1.7",
    ),
    _page(
        "GP401",
        "GPU memory unknown",
        "Nobody reported this GPU's memory, so it is not used.",
        "A guess would make every verdict on it worthless.",
        "Give the size in the inventory or the snapshot.",
        "S0 correction 5",
    ),
    _page(
        "GP402",
        "Host not used",
        "The host could not be read, or declares no GPUs.",
        "Only hosts that were seen, or declared, take part in a plan.",
        "See the detail; fix the host or declare its GPUs.",
        "inventory and snapshot rules",
    ),
    _page(
        "GP403",
        "Declared hardware",
        "The plan rests on what the inventory declares.",
        "Memory that others hold now is not known, so all of it counts as free.",
        "Plan from a snapshot to judge the fleet as it is.",
        "inventory rules",
    ),
    _page(
        "GP501",
        "Unknown architecture",
        "No builder here describes this architecture.",
        "Weights come from the checkpoint's size, the cache from ordinary config fields; special caches and splits are not known.",
        "Treat the verdict as a guess.",
        "evidence rules",
    ),
    _page(
        "GP502",
        "Assumption",
        "Something the figures rest on could not be read and was assumed.",
        "It may be wrong.",
        "Check it.",
        "evidence rules",
    ),
    _page(
        "GP503",
        "Notice",
        "Something about the arguments or the model's files worth knowing.",
        "It changes how the figures are read.",
        "Read it.",
        "vLLM's arguments by version",
    ),
    _page(
        "GP504",
        "Draft model not counted",
        "Speculative decoding loads a second model, whose weights and cache are not part of the estimate.",
        "The engine counts them as its own, so less is left for the KV cache than predicted.",
        "Estimate the draft model by itself and leave that much room. MTP layers of the model's own checkpoint are counted.",
        "vLLM v1/spec_decode",
    ),
)
PAGES = {page.code: page for page in _PAGES}

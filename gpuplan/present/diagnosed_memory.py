"""What is said of failed deployments: memory of the cards and the hosts (GP735 to GP744)."""

from gpuplan.present.diagnosed import Told

MEMORY = (
    Told(
        code="GP735",
        title="Not enough memory free at the start",
        headline=(
            "{place}: [short by {short_bytes}: ]{available_bytes} of {total_bytes} free at the start, {needed_bytes} needed[ "
            "(share {utilization})]"
        ),
        means=(
            "Another process holds device memory, an earlier container has not given it back, or the share is larger than "
            "what is ever free."
        ),
        matters="The engine checks this before it loads anything, on every rank; the fullest card decides.",
        hint="nvidia-smi on {host} shows who holds it; or a smaller share: -- --gpu-memory-utilization SHARE",
        do=(
            "nvidia-smi on the host shows the processes. Wait until an earlier container's memory is back, stop the other "
            "process, use another GPU, or ask for a smaller share with -- --gpu-memory-utilization."
        ),
        source="vLLM v1/worker/utils.py, request_memory",
    ),
    Told(
        code="GP736",
        title="Out of device memory while loading weights",
        headline=(
            "{place}: out of device memory while loading[: {needed_bytes} more wanted, {available_bytes} free][, weights "
            "predicted {predicted_bytes}]"
        ),
        means="The weights of a rank, with what loading needs beside them, do not fit its card.",
        matters=(
            "A plan that fits should not come here: the prediction is too low for this checkpoint, or memory was taken "
            "meanwhile."
        ),
        hint=(
            "gpuplan plan again with more GPUs or a quantized variant; nvidia-smi on {host} shows what else holds memory"
        ),
        do=(
            "Use more GPUs or a quantized variant. If nothing else held memory, the prediction was wrong: the figures above "
            "are worth a report."
        ),
        source="torch.OutOfMemoryError while vLLM loads",
    ),
    Told(
        code="GP737",
        title="Out of device memory in the profile run",
        headline=(
            "{place}: out of device memory in the profile run[: {needed_bytes} more wanted, {available_bytes} free]"
        ),
        means="The weights are loaded, but one step of the largest batch does not fit beside them.",
        matters=(
            "The peak grows with max_num_batched_tokens, with max_num_seqs times the vocabulary, and with images and video."
        ),
        hint="-- --max-num-batched-tokens 2048 --max-num-seqs 64",
        do="Lower --max-num-batched-tokens and --max-num-seqs; for vision models limit images: --limit-mm-per-prompt.",
        source="vLLM v1/worker/gpu_worker.py, determine_available_memory",
    ),
    Told(
        code="GP738",
        title="No memory left for the KV cache",
        headline=(
            "{place}: nothing is left for the KV cache[: {available_bytes} after weights and activation][, predicted "
            "{predicted_bytes}]"
        ),
        means="Weights, activation and CUDA graphs take the whole share of the card.",
        matters="Without a single block of cache the engine does not start.",
        hint=(
            "a larger share (-- --gpu-memory-utilization 0.95), fewer requests at once (--max-num-seqs 64), or more GPUs"
        ),
        do="Raise --gpu-memory-utilization, lower --max-num-seqs and --max-num-batched-tokens, or use more GPUs.",
        source="vLLM v1/core/kv_cache_planning.py",
    ),
    Told(
        code="GP739",
        title="KV cache too small for one request",
        headline=(
            "{place}: KV cache short[ by {short_bytes}][: predicted {predicted_bytes}][, needed {needed_bytes}][, available "
            "{available_bytes}][ for one request of {max_model_len} tokens]"
        ),
        means="One request of the full context needs more cache than is left.",
        matters="The engine does not start with a context it could never serve. It names the longest that fits.",
        hint=(
            "[plan again with --context {fitting:raw}, the longest that fits][plan again with a shorter --context, or more "
            "GPUs]"
        ),
        do=(
            "Ask for a shorter --context (the engine names the longest), more GPUs, or a smaller cache: --kv-cache-dtype fp8."
        ),
        source="vLLM v1/core/kv_cache_planning.py",
    ),
    Told(
        code="GP740",
        title="Out of device memory after the cache was made",
        headline=(
            "{place}: out of device memory while capturing CUDA graphs or warming up[ ({requests} requests)][: "
            "{needed_bytes} more wanted, {available_bytes} free][, graphs predicted {predicted_bytes}]"
        ),
        means="The cache took what was left, and CUDA graphs or the sampler need more on top.",
        matters="Releases up to 0.18 do not count graphs at all, later ones estimate them.",
        hint=(
            "a share smaller by 0.02 to 0.05 (-- --gpu-memory-utilization), a smaller --max-num-seqs, or -- --enforce-eager"
        ),
        do=(
            "Lower --gpu-memory-utilization by 0.02 to 0.05, or --max-num-seqs; --enforce-eager needs no graphs, but decodes "
            "slower."
        ),
        source="vLLM v1/worker/gpu_model_runner.py",
    ),
    Told(
        code="GP741",
        title="The host ran out of memory",
        headline="{place}: the host ran out of memory[ and killed {process}]",
        means=(
            "The kernel killed a process for want of RAM: while loading, for pinned offload, or on hosts whose memory is "
            "shared with the GPU."
        ),
        matters="A process killed in this way writes no last line.",
        hint=(
            "sudo dmesg -T | grep -i 'killed process' on {host} shows who; keep reserve: {ram: …} in the inventory, offload "
            "less"
        ),
        do=(
            "sudo dmesg -T | grep -i 'killed process' shows which process. Use a host with more RAM, offload less, load with "
            "fewer ranks at once; on unified memory lower --gpu-memory-utilization."
        ),
        source="vLLM issue 46307",
    ),
    Told(
        code="GP742",
        title="Shared memory is full",
        headline="{place}: /dev/shm is too small or full[ ({wanted} bytes wanted)]",
        means="NCCL and the engine's processes talk through /dev/shm. Files that killed processes left behind fill it.",
        matters="NCCL fails with a system error, or the process dies of a bus error.",
        hint="df -h /dev/shm; raise vllm: {shm_size: 16GiB} in the inventory",
        do=(
            "Raise shm_size in the inventory to 16GiB or more. df -h /dev/shm on the host; remove stale /dev/shm/nccl-* when "
            "nothing runs."
        ),
        source="vLLM issue 1710",
    ),
    Told(
        code="GP743",
        title="Free memory grew while it was measured",
        headline=(
            "{place}: free memory changed while the engine measured it[ ({free_bytes} before, {later_bytes} after)]"
        ),
        means="Another process gave memory back between the engine's two measurements.",
        matters="The engine cannot tell what it needs itself, and refuses.",
        hint="deploy again, when nothing else starts or stops on that GPU",
        do="Deploy again. Two engines that start on one card at the same time mislead each other: one after the other.",
        source="vLLM v1/worker/gpu_worker.py",
    ),
    Told(
        code="GP744",
        title="Out of device memory while serving",
        headline="{place}: out of device memory while serving[: {wanted_bytes} more wanted, {free_bytes} free]",
        means="A request needed more than the profile run had reserved.",
        matters="The engine ends, and all its requests fail.",
        hint="deploy again with a smaller share: -- --gpu-memory-utilization SHARE, or a smaller --max-num-seqs",
        do=(
            "Lower --gpu-memory-utilization by 0.05, or --max-num-seqs. LoRA, images and log probabilities need memory that "
            "the profile may not see."
        ),
        source="vLLM issue 15039",
    ),
)

"""Wordings of memory that runs out, on the card and on the host (deploy-failures rows 34 to 41, vllm-memory-model section 1)."""

from gpuplan.deploying.signature import likely, root

_OUT = (
    r"(?:Tried to allocate (?P<wanted_size>[\d.]{1,12} [KMG]iB)\. )?(?:GPU (?P<gpu_n>\d{1,3}) has a total capacity of "
    r"(?P<total_size>[\d.]{1,12} [KMG]iB) of which (?P<free_size>[\d.]{1,12} (?:bytes|[KMG]iB)) is free)?"
)

MEMORY = (
    root(
        "MEM_FREE",
        "on startup is less than desired GPU memory utilization",
        pattern=r"Free memory on device ?(?P<device>[\w:]{0,20}) ?\((?P<free_gib>-?[\d.]{1,12})/"
        r"(?P<total_gib>[\d.]{1,12}) GiB\) on startup "
        r"is less than desired GPU memory utilization \((?P<utilization_x>[\d.]{1,8}), (?P<needed_gib>[\d.]{1,12}) GiB\)",
    ),
    root("MEM_FREE", "is less than the engine's budget after excluding external process's weights"),
    root(
        "MEM_KV_NONE",
        "No available memory for the cache blocks",
    ),
    root("MEM_KV_NONE", "Cannot auto-fit max_model_len"),
    root(
        "MEM_KV_SMALL",
        "To serve at least one request with the model",
        pattern=r"max seq len \((?P<max_model_len_n>\d{1,12})\), \(?(?P<needed_gib>[\d.]{1,12}) GiB "
        r"KV cache is needed, which is larger "
        r"than the available KV cache memory \((?P<available_gib>-?[\d.]{1,12}) GiB\)"
        r"(?:\.? ?Based on the available memory, the estimated maximum model length is (?P<fitting_n>\d{1,12}))?",
    ),
    root(
        "MEM_KV_SMALL",
        "is larger than the maximum number of tokens that can be stored in KV cache",
        pattern=r"max seq len \((?P<max_model_len_n>\d{1,12})\) is larger than the maximum number of tokens that can be "
        r"stored in KV cache \((?P<fitting_n>\d{1,12})\)",
    ),
    root(
        "MEM_GRAPH",
        "CUDA out of memory occurred when warming up sampler with",
        pattern=r"warming up (?:sampler|pooler) with (?P<requests_n>\d{1,7}) dummy requests",
    ),
    root(
        "MEM_WEIGHTS",
        "CUDA out of memory",
        "HIP out of memory",
        "NPU out of memory",
        pattern=rf"out of memory\. ?{_OUT}",
    ),
    root(
        "MEM_WEIGHTS",
        "CUDA error: out of memory",
        "memory allocation failed with OOM on device",
        "CUDA_ERROR_OUT_OF_MEMORY",
    ),
    root(
        "MEM_PROFILE",
        "Error in memory profiling",
        pattern=r"Initial free memory:? (?P<free_gib>[\d.]{1,12}) GiB, current free memory:? (?P<later_gib>[\d.]{1,12}) GiB",
    ),
    root("MEM_PROFILE", "Error in memory profiling"),
    root(
        "MEM_HOST",
        "Out of memory: Killed process",
        pattern=r"Killed process (?P<pid_n>\d{1,10}) \((?P<process>[^)]{1,60})\)",
    ),
    root("MEM_HOST", "DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory"),
    root("MEM_HOST", "oom-kill:", "Memory cgroup out of memory"),
    root("MEM_HOST", "Too large swap space.", "is not enough host memory"),
    root(
        "MEM_SHM",
        "rror while creating shared memory segment",
        pattern=r"shared memory segment (?P<path>/dev/shm/\S{0,80})(?: \(size (?P<wanted_n>\d{1,15})\))?",
    ),
    root("MEM_SHM", "rror while attaching to shared memory segment"),
    root("MEM_SHM", "Bus error", "SIGBUS"),
    root(
        "MEM_SHM",
        "/dev/shm",
        pattern=r"(?:[Nn]o space left on device|OSError).{0,80}/dev/shm|/dev/shm.{0,80}[Nn]o space left on device",
    ),
    root("MEM_SHM", "unable to mmap", pattern=r"unable to mmap \d{1,15} bytes from file </(?:torch|dev)"),
    root("RAY_OOM", "killed due to memory pressure (OOM)"),
    root("RAY_OOM", "due to the node running low on memory"),
    likely("MEM_HOST", "MemoryError", pattern=r"^(?:\S{1,60}\.)?MemoryError\b"),
)

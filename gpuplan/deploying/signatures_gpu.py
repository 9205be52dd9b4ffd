"""Wordings of CUDA, the driver, its kernels, and what a card cannot do (deploy-failures rows 23 to 33)."""

from gpuplan.deploying.signature import likely, root

GPU = (
    root(
        "GPU_ERR802",
        "rror 802: system not yet initialized",
        "cudaErrorSystemNotReady",
        "CUDA_ERROR_SYSTEM_NOT_READY",
    ),
    root("GPU_ERR803", "rror 803: system has unsupported display driver", "cudaErrorSystemDriverMismatch"),
    root(
        "GPU_ERR804",
        "rror 804: forward compatibility was attempted on non supported HW",
        "cudaErrorCompatNotSupportedOnDevice",
    ),
    root(
        "GPU_DRIVER_OLD",
        "The NVIDIA driver on your system is too old",
        pattern=r"driver on your system is too old(?: \(found version (?P<found>\d{1,8})\))?",
    ),
    root("GPU_DRIVER_OLD", "CUDA driver version is insufficient"),
    root("GPU_DRIVER_OLD", "the provided PTX was compiled with an unsupported toolchain"),
    root("GPU_ARCH", "no kernel image is available for execution on the device"),
    root("GPU_ARCH", "device kernel image is invalid"),
    likely("GPU_ARCH", "is not compatible", pattern=r"(?P<capability>sm_\d{2,3}[af]?) is not compatible"),
    root("GPU_NVML_LOST", "Failed to initialize NVML: Unknown Error", "NVMLError_Unknown"),
    root("GPU_NVML_LOST", "Driver/library version mismatch", "NVMLError_LibRmVersionMismatch"),
    root(
        "GPU_UUID_ENV",
        "invalid literal for int() with base 10",
        pattern=r"invalid literal for int\(\) with base 10: '(?P<device>(?:GPU|MIG)-[\w-]{0,80})",
    ),
    root("GPU_NOT_SEEN", "Failed to infer device type"),
    root("GPU_NOT_SEEN", "No CUDA GPUs are available"),
    root("GPU_NOT_SEEN", "no CUDA-capable device is detected", "cudaErrorNoDevice"),
    root("GPU_NOT_SEEN", "No HIP GPUs are available"),
    likely("GPU_NOT_SEEN", "CUDA error: invalid device ordinal"),
    root("GPU_XID", "NVRM: Xid", pattern=r"NVRM: Xid \((?P<pci>[^)]{1,40})\): (?P<xid_n>\d{1,3})"),
    root("GPU_XID", "GPU has fallen off the bus", "GPU is lost"),
    root(
        "GPU_XID", "uncorrectable ECC error encountered", "uncorrectable NVLink error", "hardware stack error"
    ),
    root("GPU_XID", "GPU requires reset"),
    root("GPU_BUSY", "CUDA-capable device(s) is/are busy or unavailable", "cudaErrorDevicesUnavailable"),
    root(
        "GPU_DTYPE",
        "Bfloat16 is only supported on GPUs with compute capability",
        pattern=r"compute capability of at least (?P<needed_x>\d\.\d)\.(?: Your (?P<device>.{1,80}?) GPU has compute capability "
        r"(?P<capability_x>\d{1,2}\.\d))?",
    ),
    root(
        "MODEL_QUANT",
        "is not supported for the current GPU",
        pattern=r"quantization method (?P<method>[\w.-]{1,60}) is not supported for the current GPU\. Minimum capability: "
        r"(?P<needed_n>\d{1,4})\. Current capability: (?P<capability_n>\d{1,4})",
    ),
    root(
        "MODEL_QUANT",
        "quantization is currently not supported in",
        "Unknown quantization method",
        pattern=r"(?:Unknown quantization method: |^)?(?P<method>[\w.-]{1,60})(?: quantization is currently not supported in|\b)",
    ),
    likely("GPU_KERNEL", "an illegal memory access was encountered", "cudaErrorIllegalAddress"),
    likely(
        "GPU_KERNEL",
        "unspecified launch failure",
        "an illegal instruction was encountered",
        "device-side assert triggered",
    ),
    likely("GPU_KERNEL", "Triton Error [CUDA]", pattern=r"Triton Error \[CUDA\]: (?P<reason>.{1,120})"),
    likely("GPU_KERNEL", "CUBLAS_STATUS_", pattern=r"(?P<reason>CUBLAS_STATUS_(?!SUCCESS)[A-Z_]{1,40})"),
    likely("GPU_KERNEL", "cutlass_gemm_caller"),
    root("GPU_COMPILE", "Failed to find C compiler", "Could not find nvcc", "nvcc not found"),
    root("GPU_COMPILE", "Ninja build failed"),
    root("GPU_COMPILE", "Ninja is required to load C++ extensions"),
)

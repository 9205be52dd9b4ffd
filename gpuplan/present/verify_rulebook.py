"""A page for each thing a trial of a deployment may show (GP870 to GP877)."""

from gpuplan.present.page import Page
from gpuplan.present.page import page as _page

PAGES: tuple[Page, ...] = (
    _page(
        "GP870",
        "The prediction held",
        "gpuplan verify started the image with made-up weights; every figure it printed lies in the range that was predicted.",
        "The plan of this model on these GPUs can be relied on.",
        "Nothing. What was printed is kept and makes later predictions on such GPUs sharper.",
        '"Model loading took", "Available KV cache memory", "GPU KV cache size" of vLLM\'s log, to the printed digit',
    ),
    _page(
        "GP871",
        "The prediction missed",
        "A printed figure lies outside of the range that was predicted for it.",
        "The other figures may still hold; the KV cache is what decides whether a context and its requests fit.",
        "Plan again: what was printed is used from now on for this model on such GPUs (gpuplan plan --no-calibration leaves it "
        "out). gpuplan learn --list shows what is kept.",
        "vLLM's log beside the plan's terms, rank by rank",
    ),
    _page(
        "GP872",
        "The engine did not start",
        "The trial ended before the engine had made its cache. The next finding names the cause; this one says whether the "
        "prediction had named the same check.",
        "A deployment with these arguments would end the same way.",
        "Follow the cause's own page. Everything the trial had started was removed; its log is kept.",
        "the four checks of a start: free memory, loading and profiling, room for a cache, the context",
    ),
    _page(
        "GP873",
        "The engine started against the prediction",
        "The plan said that this does not fit, it was asked for all the same, and the engine started.",
        "The prediction is judged on the safe end of its ranges; here there was more room than that.",
        "Plan again: what was printed is used from now on. A margin that is this thin may be gone after the next update.",
        "vLLM's log",
    ),
    _page(
        "GP874",
        "Nothing was printed that could be compared",
        "The engine started, and its log has none of the figures of memory.",
        "Builds for the CPU and quieter log levels leave them out.",
        "Set VLLM_LOGGING_LEVEL=INFO under vllm.env of the inventory, and use an image for GPUs.",
        "vLLM's log",
    ),
    _page(
        "GP875",
        "Parameters counted by the image itself",
        "A container without a GPU has built the model's class without memory and told the bytes of every rank's parameters.",
        "This is what the engine will allocate, to the byte; the plan's weights should be the same.",
        "Where they differ the plan's weights are wrong for this model and release: please report it, with MODEL and image.",
        "vLLM's own model class on torch's meta device",
    ),
    _page(
        "GP876",
        "Parameters could not be counted in the image",
        "The container that builds the model without memory ended early, or could not be started.",
        "Some models read a device while they are built; some releases cannot build without one. Nothing else depends on it.",
        "Leave --parameters-only out: the start itself prints what the weights take.",
        "vLLM's own model class on torch's meta device",
    ),
    _page(
        "GP877",
        "The host does not have the image",
        "--parameters-only asks an image that lies on a host, and the chosen host does not have it.",
        "An image has 10 to 20 GB: it is not fetched for a question.",
        "Pull it there, choose a host that has it with --host, or leave --parameters-only out.",
        "docker image inspect",
    ),
)

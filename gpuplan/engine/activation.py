"""The peak of the profile run on a rank: tower, forward pass and sampler, whichever holds most at once.

vLLM `profile_run`: towers first, their outputs kept; then one forward pass over a full batch; then, with its hidden
states alive, the sampler. What these leave allocated (workspaces, sampler buffers) counts beside every phase. cuBLAS
takes its workspace from torch's allocator at the first matrix product: 32 MiB on Hopper and newer, 8 MiB before.
"""

from dataclasses import replace

from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import Term
from gpuplan.domain.model import ModelProfile
from gpuplan.engine.cuda_graphs import cuda_graph_term
from gpuplan.engine.draft import draft_buffers
from gpuplan.engine.encoder_profile import encoder_memory
from gpuplan.engine.forward import forward_memory
from gpuplan.engine.overhead import non_torch_term, start_overhead_bytes
from gpuplan.engine.rank_setting import BIG_CARD, HOPPER, RankSetting, runner_v2
from gpuplan.engine.sampler import sampler_memory
from gpuplan.engine.versions import RUNNER_V2_SINCE, SMALL_LIMITS
from gpuplan.units import GIB, MIB

__all__ = [
    "RankSetting",
    "activation_term",
    "cuda_graph_term",
    "non_torch_term",
    "start_overhead_bytes",
]

LARGER_THAN_A100 = 81 * GIB
TOWER_DOUBT = 0.3
"""Part of a tower's peak by which it may be wrong. This and the factors of the range (0.9 below; 1.05, and 1.4 of a forward
pass, above) hold the peaks of the logged starts (`tests/conformance/test_startup_logs.py`); they are no rule of the engine."""
CUBLAS = 32 * MIB
CUBLAS_BEFORE_HOPPER = 8 * MIB + 128 * 1024
"""Bytes of its workspace (torch `CUDABlas`, getChosenWorkspaceSize)."""


def activation_term(profile: ModelProfile, setting: RankSetting) -> Term:
    """Peak of the profile run in bytes, with the phase that sets it among the inputs."""
    encoder = encoder_memory(profile, setting)
    forward = forward_memory(profile, setting)
    sampler = sampler_memory(profile, setting)
    read, buffers = draft_buffers(profile, setting)
    kept = forward.kept + sampler.kept + _cublas(setting) + buffers
    sampling = encoder.kept + forward.output + sampler.likely
    table = _second_table(profile, setting)
    passing = encoder.kept + forward.peak + read
    phases = {"tower": encoder.peak, "forward": passing + table // 2, "sampler": sampling}
    phase = max(phases, key=lambda name: phases[name])
    peak = kept + phases[phase]
    least = min(peak, _least(profile, setting, int(encoder.peak * (1 - TOWER_DOUBT)), encoder.kept))
    return Term(
        name="activation",
        bytes=peak,
        low=int(least * 0.9),
        high=kept
        + max(
            int(phases[phase] * 1.05),
            int(encoder.peak * (1 + TOWER_DOUBT)),
            encoder.kept + int(forward.peak * 1.4) + read,
            passing + table,
            encoder.kept + forward.output + sampler.high,
        ),
        basis=Basis.COMPUTED,
        formula="workspaces + max(tower, embeddings + forward pass, embeddings + hidden states + sampler)",
        inputs=(
            ("max_num_batched_tokens", setting.max_num_batched_tokens),
            ("max_num_seqs", setting.max_num_seqs),
            ("phase", phase),
            ("workspaces", kept),
            ("forward", forward.peak),
            ("elements per token", forward.width),
            ("sampler", sampler.likely),
            ("bytes per logit", sampler.bytes_per_logit),
            ("tower", encoder.peak),
            ("embeddings kept", encoder.kept),
        ),
        source="vLLM v1/worker/gpu_model_runner.py profile_run",
    )


def _least(profile: ModelProfile, setting: RankSetting, tower: int, embeddings: int) -> int:
    """The smallest peak that is likely: another sampler, or the batch limits of a card that is not what it seems.

    A card of 70 GiB or more gets the large limits unless it is an A100 (`EngineArgs.get_batch_defaults`); where the
    card's kind is unknown the small ones may hold.
    """
    if setting.generation is None and BIG_CARD <= setting.total_bytes < LARGER_THAN_A100:
        engine = setting.engine
        tokens, rows = setting.max_num_batched_tokens, setting.max_num_seqs
        setting = replace(
            setting,
            max_num_batched_tokens=min(tokens, SMALL_LIMITS[0])
            if engine.max_num_batched_tokens is None
            else tokens,
            max_num_seqs=min(rows, SMALL_LIMITS[1]) if engine.max_num_seqs is None else rows,
        )
    forward, sampler = forward_memory(profile, setting), sampler_memory(profile, setting)
    kept = forward.kept + sampler.kept + _cublas(setting)
    return kept + max(tower, embeddings + forward.peak, embeddings + forward.output + sampler.low)


def _second_table(profile: ModelProfile, setting: RankSetting) -> int:
    """A second table of embeddings that the second runner's first start may hold; half of it is taken as likely.

    Llama-3.1-8B on A100 under 0.31: 1.2 GiB while profiling, 0.98 more than the pass needs, the size of the table. No
    source was found for it.
    """
    if setting.version < RUNNER_V2_SINCE or not runner_v2(profile, setting):
        return 0
    return profile.vocabulary * profile.hidden * profile.itemsize // setting.parallelism.tensor


def _cublas(setting: RankSetting) -> int:
    generation = setting.generation
    newer = generation >= HOPPER if generation is not None else setting.total_bytes >= BIG_CARD
    return CUBLAS if newer else CUBLAS_BEFORE_HOPPER

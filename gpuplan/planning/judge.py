"""One verdict for one shape on given devices, remembered: every strategy asks here, so they can never disagree.

The rule (S0.8 and its corrections): every GPU must have the engine's budget free, and every rank must hold its own
need against its own card. Nothing is pooled.
"""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gpuplan.domain.memory import EngineAnswer, MemoryEstimate, StartCheck
from gpuplan.domain.plan import Parallelism
from gpuplan.engine import activation, shared_memory
from gpuplan.engine.capability import unsupported
from gpuplan.engine.divisibility import Rule, Violation, grouped, split_of, violations
from gpuplan.engine.offloading import pinned_bytes
from gpuplan.engine.startup import budget_bytes, free_memory_line, least_utilization, world_size_line
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.planning.argument_rules import contradictions
from gpuplan.planning.batch import Batch
from gpuplan.planning.estimate import estimate
from gpuplan.planning.offers import Device, Offer
from gpuplan.planning.question import SHORTEST_USEFUL_CONTEXT, Question
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.slots import slots
from gpuplan.units import ceil_div


class Lack(StrEnum):
    """What a rank is short of."""

    CLAIM = "claim"
    LOADING = "loading"
    WEIGHTS = "weights"
    KV_FOR_CONTEXT = "kv_for_context"
    KV_FOR_CONCURRENCY = "kv_for_concurrency"
    USEFUL_CONTEXT = "useful_context"
    CERTAINTY = "certainty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Need against have on the rank that is furthest short (bytes)."""

    lack: Lack
    rank: int
    need_bytes: int
    have_bytes: int
    context: int
    largest_context: int
    concurrency: int

    @property
    def gap_bytes(self) -> int:
        return self.need_bytes - self.have_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """A shape on a list of devices: it fits, breaks rules, or is short of something."""

    parallelism: Parallelism
    memory: MemoryEstimate | None = None
    shortfall: Shortfall | None = None
    violations: tuple[Violation, ...] = ()
    need_bytes: int | None = None
    """Per rank, where no share of the card is claimed (S0.8) or a claim was given."""
    own_share: float | None = None
    """Where no share is asked for: the least of two digits that holds the need on every card. The engine is given it,
    else it would want its default share of the card to be free."""
    instead_of: "Assessment | None" = None
    """The same shape with the engine's own split of the layers, which `planning.partition` left."""

    @property
    def fits(self) -> bool:
        return self.shortfall is None and not self.violations


Command = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""Arguments and environment of a launch."""


@dataclass(slots=True)
class Judge:
    """Assessments of one request, each made once."""

    request: PlanRequest
    commands: dict[tuple[int, tuple[int, ...]], tuple[Assessment, Command]] = field(default_factory=dict)
    """By identity of the assessment (kept alive here) and GPUs per host."""
    split: dict[tuple[Parallelism, tuple[Device, ...]], Assessment] = field(default_factory=dict)
    """Shapes with the layers on their stages as `planning.partition` chose."""
    stage_rooms: dict[tuple[Parallelism, Batch], dict[tuple[object, ...], int]] = field(default_factory=dict)
    """What `planning.stage_rooms` computed."""
    _shapes: dict[tuple[Parallelism, tuple[Device, ...]], Assessment] = field(default_factory=dict)
    _budgets: dict[Device, int] = field(default_factory=dict)
    _overheads: dict[tuple[Device, int], int] = field(default_factory=dict)
    _weights: int | None = None
    _rules: dict[Parallelism, tuple[Violation, ...]] = field(default_factory=dict)
    _at_shares: dict[float, "Judge"] = field(default_factory=dict)
    _drivers: dict[str, str | None] = field(default_factory=dict)

    @property
    def _replicas_together(self) -> int:
        """Replicas whose ranks work together."""
        return grouped(Parallelism(), self.request.profile, self.request.workload.engine).data

    @property
    def claim_only(self) -> bool:
        return self.request.workload.vram_claim_bytes is not None

    @property
    def planned_offload_gib(self) -> int:
        """GiB of weights per GPU that the plan leaves in host memory; 0 where the user decided that."""
        engine = self.request.workload.engine
        return 0 if "cpu_offload_gb" in engine.user_set else int(engine.cpu_offload_gb)

    def pinned_bytes(self, shape: Parallelism) -> int:
        """Host memory that all ranks of a replica pin for the weights they leave there. Raises Indivisible."""
        engine = self.request.workload.engine
        split = split_of(
            grouped(shape, self.request.profile, engine), language_model_only=engine.language_model_only
        )
        return (shape.world_size // shape.pipeline) * sum(
            pinned_bytes(
                self.request.profile,
                split,
                engine.cpu_offload_gb,
                stage=stage,
                stages=shape.pipeline,
                layer_partition=shape.layer_partition,
            )
            for stage in range(shape.pipeline)
        )

    def budget(self, device: Device) -> int:
        """Bytes the engine asks for on a card: ceil(total × gmu); 0 where it claims only its need."""
        known = self._budgets.get(device)
        if known is None:
            share = self.request.utilization
            known = 0 if share is None else budget_bytes(device.total_bytes, share)
            self._budgets[device] = known
        return known

    def claim(self, device: Device, assessment: Assessment) -> int:
        """Bytes booked on a card: floor(total × gmu), or the need without gmu (S0.8)."""
        share = self.request.utilization
        if share is None:
            return assessment.need_bytes or 0
        return math.floor(device.total_bytes * share)

    def start_overhead(self, device: Device, tensor: int) -> int:
        """Bytes the engine's own process holds before it measures free memory; 0 when only a claim is known."""
        if self.claim_only:
            return 0
        tensor *= self._replicas_together
        key = (device, tensor)
        known = self._overheads.get(key)
        if known is None:
            known = activation.start_overhead_bytes(
                device.total_bytes,
                compute_capability=device.compute_capability,
                tensor=tensor,
                version=self.request.version,
                unified=shared_memory.counts(unified=device.unified, backend=device.backend),
            )
            self._overheads[key] = known
        return known

    def least_bytes(self, ranks: int) -> int:
        """Weights of the heaviest of so many ranks, at the very least: no share below it can help."""
        profile = self.request.profile
        if self.claim_only or not profile.layer_order:
            return 0
        if self._weights is None:
            self._weights = rank_weights(profile, Split()).parameters
        return self._weights // (ranks * self._replicas_together)

    def free_enough(self, offer: Offer, assessment: Assessment | None = None, *, tensor: int = 1) -> bool:
        """The engine's first check: the budget (or the need) is free on this card now."""
        if self.request.utilization is None:
            return assessment is None or offer.allocatable_bytes >= self.need_free(offer, assessment, tensor)
        return offer.allocatable_bytes - self.start_overhead(offer.device, tensor) >= self.budget(
            offer.device
        )

    def need_free(self, offer: Offer, assessment: Assessment, tensor: int) -> int:
        """Bytes to be free on a card where no share is asked for: the need, which the engine is told as a share of the card."""
        need, share = assessment.need_bytes or 0, assessment.own_share
        if share is None:
            return need
        return max(need, budget_bytes(offer.total_bytes, share)) + self.start_overhead(offer.device, tensor)

    def free_line(self, offer: Offer, tensor: int, assessment: Assessment | None = None) -> str:
        """What the engine would print when `free_enough` is false."""
        own = None if assessment is None else assessment.own_share
        free = max(0, offer.allocatable_bytes - self.start_overhead(offer.device, tensor))
        return free_memory_line(
            f"{offer.device.backend}:{offer.index}",
            free,
            offer.total_bytes,
            self.request.utilization or own or 1.0,
            self.request.version,
        )

    def assess(self, parallelism: Parallelism, devices: tuple[Device, ...]) -> Assessment:
        """Whether a shape fits on devices, one per rank of a replica, looking at memory in total (not what is free)."""
        key = (parallelism, devices)
        known = self._shapes.get(key)
        if known is None:
            divided = self._divided(devices)
            if divided is not None:
                known = Assessment(parallelism=parallelism, violations=(divided,))
            elif self.claim_only:
                known = self._claimed(parallelism, devices)
            else:
                known = self._estimated(parallelism, devices)
            self._shapes[key] = known
        return known

    def at_share(self, share: float) -> "Judge":
        """The same request under another gpu_memory_utilization, with a memory of its own."""
        known = self._at_shares.get(share)
        if known is None:
            known = self._at_shares[share] = Judge(replace(self.request, utilization=share))
        return known

    def driver_of(self, host: str) -> str | None:
        """Version of the GPU driver on a host of the fleet; None where no probe told."""
        if not self._drivers:
            self._drivers = {one.name: one.facts.driver_version for one in self.request.fleet.hosts}
        return self._drivers.get(host)

    def _divided(self, devices: tuple[Device, ...]) -> Violation | None:
        """Ranks that work together are never MIG slices: a CUDA process sees one of them and reaches no other.

        Replicas share nothing; ranks of one mixture-of-experts server do.
        """
        together = len(devices) * self._replicas_together
        part = next((device.name for device in devices if device.slice), None) if together > 1 else None
        if part is None:
            return None
        return Violation(
            rule=Rule.SLICES, part=part, value=1, ranks=together, line=world_size_line(together, 1)
        )

    def broken_rules(self, parallelism: Parallelism) -> tuple[Violation, ...]:
        """What stands against building the model with these sizes."""
        known = self._rules.get(parallelism)
        if known is None:
            engine = self.request.workload.engine
            known = violations(
                self.request.profile,
                grouped(parallelism, self.request.profile, engine),
                language_model_only=engine.language_model_only,
                towers_data_parallel=engine.mm_encoder_tp_mode == "data",
                version=self.request.version,
            ) or contradictions(self.request, parallelism)
            self._rules[parallelism] = known
        return known

    def _claimed(self, parallelism: Parallelism, devices: tuple[Device, ...]) -> Assessment:
        """`--vram-claim`: an equal part of the claim on every rank, each against its own card."""
        claim = self.request.workload.vram_claim_bytes or 0
        broken = self.broken_rules(parallelism)
        need = ceil_div(claim, len(devices))
        worst = min(range(len(devices)), key=lambda rank: self._room(devices[rank]))
        room = self._room(devices[worst])
        short = None
        if need > room:
            short = Shortfall(
                lack=Lack.CLAIM,
                rank=worst,
                need_bytes=need,
                have_bytes=room,
                context=0,
                largest_context=0,
                concurrency=1,
            )
        return Assessment(parallelism=parallelism, shortfall=short, violations=broken, need_bytes=need)

    def _room(self, device: Device) -> int:
        share = self.request.utilization
        return device.total_bytes if share is None else math.floor(device.total_bytes * share)

    def _estimated(self, parallelism: Parallelism, devices: tuple[Device, ...]) -> Assessment:
        broken = self.broken_rules(parallelism) or self._incapable(devices)
        if broken:
            return Assessment(parallelism=parallelism, violations=broken)
        question = self.question(parallelism, devices)
        memory = estimate(question)
        need = share = None
        if self.request.utilization is None:
            need = max(sum(term.most for term in rank.terms) + rank.kv_needed_bytes for rank in memory.ranks)
            share = least_utilization(need, min(device.total_bytes for device in devices))
        return Assessment(
            parallelism=parallelism,
            memory=memory,
            shortfall=_shortfall(memory, question),
            need_bytes=need,
            own_share=share,
        )

    def _incapable(self, devices: tuple[Device, ...]) -> tuple[Violation, ...]:
        """What one of the cards cannot run at all, however much memory it has."""
        found = unsupported(
            self.request.profile,
            [device.compute_capability for device in devices],
            self.request.workload.engine.dtype,
            [device.name for device in devices],
        )
        return () if found is None else (found,)

    def question(self, parallelism: Parallelism, devices: tuple[Device, ...]) -> Question:
        """The estimator's question behind an assessment."""
        workload = self.request.workload
        context = workload.context
        if context == "max":
            context = self.request.profile.longest_context or None
        return Question(
            profile=self.request.profile,
            engine=workload.engine,
            version=self.request.version,
            parallelism=grouped(parallelism, self.request.profile, workload.engine),
            devices=devices,
            utilization=self.request.utilization,
            context=context if isinstance(context, int) else None,
            concurrency=slots(self.request),
            lessons=self.request.lessons,
        )

    def engine_answer(self, assessment: Assessment, offers: tuple[Offer, ...]) -> EngineAnswer:
        """What the engine would say on these very GPUs, the first failing check first."""
        tensor = assessment.parallelism.speaking
        if assessment.violations:
            return EngineAnswer(starts=False, check=StartCheck.LOADING, error=assessment.violations[0].line)
        for offer in offers:
            if not self.claim_only and not self.free_enough(offer, assessment, tensor=tensor):
                return EngineAnswer(
                    starts=False,
                    check=StartCheck.FREE_MEMORY,
                    error=self.free_line(offer, tensor, assessment),
                )
        if assessment.memory is not None:
            return assessment.memory.engine
        return EngineAnswer(starts=assessment.shortfall is None)


def _shortfall(memory: MemoryEstimate, question: Question) -> Shortfall | None:
    """The first lack, judged on the safe end of the ranges: a "fits" must hold there too."""
    worst = min(memory.ranks, key=lambda rank: rank.kv_cache_low - rank.kv_needed_bytes)
    common = {
        "rank": worst.rank,
        "context": memory.max_model_len,
        "largest_context": memory.largest_max_model_len,
    }
    fixed = question.engine.kv_cache_memory_bytes
    poorest = min(memory.ranks, key=lambda rank: rank.kv_cache_bytes)
    if memory.engine.check is StartCheck.NO_KV_ROOM or memory.engine.check is StartCheck.LOADING:
        fullest = max(memory.ranks, key=lambda rank: rank.loading_bytes - rank.total_bytes)
        if fullest.loading_bytes > fullest.total_bytes:
            return Shortfall(
                lack=Lack.LOADING,
                need_bytes=fullest.loading_bytes,
                have_bytes=fullest.total_bytes,
                concurrency=question.concurrency,
                **common | {"rank": fullest.rank},
            )
        loading = memory.engine.check is StartCheck.LOADING
        beside = sum(term.bytes for term in poorest.terms)
        need, have = beside + memory.block_bytes, poorest.budget.bytes
        if loading:
            need, have = beside + (fixed or 0), poorest.total_bytes
        elif fixed is not None:
            need, have = max(poorest.kv_needed_bytes, 2 * memory.block_bytes), fixed
        return Shortfall(
            lack=Lack.KV_FOR_CONTEXT if fixed is not None and not loading else Lack.WEIGHTS,
            rank=poorest.rank,
            need_bytes=need,
            have_bytes=have,
            context=memory.max_model_len,
            largest_context=memory.largest_max_model_len,
            concurrency=question.concurrency,
        )
    one = worst.kv_needed_bytes // max(question.concurrency, 1)
    asked = question.context is not None or isinstance(question.engine.max_model_len, int)
    if not asked:
        useful = min(SHORTEST_USEFUL_CONTEXT, question.profile.longest_context or SHORTEST_USEFUL_CONTEXT)
        if memory.max_model_len < useful and memory.block_bytes:
            return Shortfall(
                lack=Lack.USEFUL_CONTEXT,
                need_bytes=worst.kv_needed_bytes,
                have_bytes=worst.kv_cache_low,
                concurrency=question.concurrency,
                **common,
            )
        return None
    every = worst.kv_needed_bytes
    for lack, need, have, concurrency in (
        (Lack.KV_FOR_CONTEXT, one, worst.kv_cache_bytes, 1),
        (Lack.KV_FOR_CONCURRENCY, every, worst.kv_cache_bytes, question.concurrency),
        (Lack.CERTAINTY, every, worst.kv_cache_low, question.concurrency),
    ):
        if need > have:
            return Shortfall(lack=lack, need_bytes=need, have_bytes=have, concurrency=concurrency, **common)
    return None

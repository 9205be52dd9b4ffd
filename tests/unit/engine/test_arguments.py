"""vLLM's own argument syntax: what is read, what is refused and how, and what is written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.domain.workload import NO_ARGUMENTS, Category, EngineArguments
from gpuplan.engine.argument_tokens import flatten
from gpuplan.engine.arguments import (
    injected,
    layout_arguments,
    parse,
    render,
    serving_flags,
    speculative_config,
    written,
)
from gpuplan.engine.flags import flags, spellings
from gpuplan.engine.utilization import gpu_memory_utilization
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.errors import UsageError

V = EngineVersion.parse


@pytest.mark.parametrize(
    "entries",
    [
        ["--tensor-parallel-size 2"],
        [" --tensor-parallel-size=2"],
        ["--tensor-parallel-size =2"],
        ["--tensor-parallel-size = 2"],
        ["--tensor-parallel-size= 2"],
        ["--tensor-parallel-size", "2"],
        ["--tensor-parallel-size", "=", "2"],
        ["--tensor_parallel_size", "2"],
        ["--tensor-parallel-size '2'"],
        ["-tp 2"],
        ["-tp=2"],
        ["--tensor-par", "2"],
        ["-tp", "8", "-tp", "2"],
        ["vllm", "serve", "--tensor-parallel-size=2"],
    ],
)
def test_one_value_in_every_way_of_writing_it(entries: list[str]) -> None:
    arguments = parse(entries)
    assert arguments.tensor_parallel_size == 2
    assert arguments.user_set == {"tensor_parallel_size"}
    assert (arguments.parallel_sizes_set, arguments.user_world_size) == (("tensor_parallel_size",), 2)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("--name 'two words' --b", ("--name", "two words", "--b")),
        ('--name "two words"', ("--name", "two words")),
        ('--name="a \\"b\\""', ('--name=a "b"',)),
        ("--name=bob's", ("--name=bob's",)),
        ("--dir=two words --b 1", ("--dir=two words", "--b", "1")),
        ('--json={"a": {"b": [1, 2]}} -tp 2', ('--json={"a": {"b": [1, 2]}}', "-tp", "2")),
        ('--json {"a": 1} -tp 2', ("--json", '{"a": 1}', "-tp", "2")),
        ("--json '{\"a\": 1}'", ("--json", '{"a": 1}')),
        ("--t={{ messages }} x", ("--t={{ messages }} x",)),
        ('{"a": 1}', ('{"a": 1}',)),
        ("my model", ("my model",)),
    ],
)
def test_entries_are_taken_apart_but_values_are_not(entry: str, words: tuple[str, ...]) -> None:
    assert flatten([entry]) == words


def test_an_open_quote_is_an_error() -> None:
    with pytest.raises(UsageError, match="not closed"):
        parse(["--tokenizer 'a b"])


def test_last_value_and_negations_win() -> None:
    arguments = parse(["--enforce-eager", "--no-enforce-eager", "--disable-prefix-caching", "-ep"])
    assert arguments.enforce_eager is False
    assert arguments.enable_prefix_caching is False
    assert arguments.enable_expert_parallel is True


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("32k", 32_000),
        ("32K", 32_768),
        ("1.5m", 1_500_000),
        ("25.6k", 25_600),
        ("4096", 4096),
        ("auto", "auto"),
        ("AUTO", "auto"),
        ("-1", "auto"),
    ],
)
def test_lengths_are_read_as_the_engine_reads_them(text: str, length: int | str) -> None:
    assert parse(["--max-model-len", text]).max_model_len == length


def test_json_dotted_keys_and_shorthands() -> None:
    arguments = parse(
        [
            "--hf-overrides.rope_scaling.factor",
            "4",
            "--hf_overrides.rope_scaling.type=yarn",
            "-cc.cudagraph_mode",
            "NONE",
            "--limit-mm-per-prompt",
            '{"image": 0, "video": 0}',
            "--spec-method",
            "mtp",
            "--spec-tokens",
            "2",
            "--kv-transfer-config",
            '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}',
        ]
    )
    assert arguments.hf_overrides == {"rope_scaling": {"factor": 4, "type": "yarn"}}
    assert arguments.compilation_config == {"cudagraph_mode": "NONE"}
    assert arguments.limit_mm_per_prompt == {"image": 0, "video": 0}
    assert arguments.speculative_config == {"method": "mtp", "num_speculative_tokens": 2}
    assert (arguments.speculative_method, arguments.speculative_tokens) == ("mtp", 2)
    assert (NO_ARGUMENTS.speculative_method, NO_ARGUMENTS.speculative_tokens) == ("", 0)
    assert arguments.kv_transfer_config["kv_role"] == "kv_both"


def test_lists_take_several_values_and_the_model_may_stand_anywhere() -> None:
    arguments = parse(
        ["org/m", "--served-model-name", "a", "b", "--cudagraph-capture-sizes", "1", "2", "-O3"]
    )
    assert arguments.model == "org/m"
    assert arguments.served_model_name == ("a", "b")
    assert arguments.cudagraph_capture_sizes == (1, 2)
    assert arguments.optimization_level == 3


@pytest.mark.parametrize(
    ("entries", "words", "hint"),
    [
        (["--gpu-memory-utilisation", "0.9"], "--gpu-memory-utilisation", "--gpu-memory-utilization"),
        (["--tp", "2"], "--tp", "-tp"),
        (["--gpu-memory-utilization", "1.2"], "(0, 1]", "0.9"),
        (["--gpu-memory-utilization", "0"], "(0, 1]", "0.9"),
        (["--gpu-memory-utilization", "-0.1"], "(0, 1]", "0.9"),
        (["--gpu-memory-utilization", "abc"], "not a number", "0.9"),
        (["--gpu-memory-utilization", "nan"], "not a finite number", "0.9"),
        (["--gpu-memory-utilization"], "needs a value", "--gpu-memory-utilization"),
        (["-tp", "abc"], "not a whole number", None),
        (["-tp", "0"], "less than 1", None),
        (["-pp", "-2"], "less than 1", None),
        (["--max-model-len", "1.5K"], "1.5k", "32k"),
        (["--max-model-len", "0"], "not a length", None),
        (["--max-num", "3"], "ambiguous", None),
        (["--dtype", "bf16"], "bfloat16", None),
        (["--kv-cache-dtype", "fp9"], "did you mean fp8", None),
        (["--quantization", "fp88"], "did you mean fp8", None),
        (["--hf-overrides", "{bad}"], "not JSON", "--hf-overrides"),
        (["--hf-overrides", "[1]"], "not a JSON object", "--hf-overrides"),
        (["--compilation-config", '{"cudagraph_mod": 1}'], "cudagraph_mode", None),
        (["--enforce-eager=true"], "takes no value", "--no-enforce-eager"),
        (["m", "--enforce-eager", "true"], "without a flag", None),
        (["a/b", "c/d"], "'c/d'", None),
        (["--swap-space", "4"], "is gone", "leave"),
        (["--task", "embed"], "is gone", "--runner"),
        (["--hf-overrides.a"], "needs a value", None),
        (["--spec-method", "mtp", "--speculative-config", '{"method": "mtp"}'], "both set method", None),
    ],
)
def test_mistakes_name_the_flag_and_the_way_out(entries: list[str], words: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse(entries)
    assert words in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")


def test_a_model_named_elsewhere_is_not_given_again() -> None:
    with pytest.raises(UsageError, match="named already"):
        parse(["org/m"], model_given=True)


def test_the_release_decides_which_flags_there_are() -> None:
    assert parse(["--swap-space", "4"], version=V("0.11.2")).swap_space == 4.0
    assert parse(["--mamba-cache-mode", "all"], version=V("0.19.1")).mamba_cache_mode == "all"
    (newer,) = parse(["--nnodes", "2"], version=V("0.10.2")).notices
    assert (newer.code, newer.flag) == ("newer_flag", "--nnodes")
    (gone,) = parse(["--quantization", "gguf"]).notices
    assert gone.code == "quantization_removed"
    assert parse(["--quantization", "gguf"], version=V("0.19.1")).notices == ()


def test_every_flag_has_one_spelling_of_its_own() -> None:
    current = [flag for flag in flags() if flag.removed_in is None]
    assert len(current) > 300
    assert len({flag.destination for flag in flags()}) == len(flags())
    for flag in current:
        assert spellings()[flag.name].flag is flag
        assert not spellings()[flag.name].negative


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(sorted(spellings())),
            st.text(max_size=12),
            st.sampled_from(["2", "-1", "=", "{", '{"a": 1}', "--hf-overrides.a.b", "'", "-", "--", "32k"]),
        ),
        max_size=6,
    )
)
def test_whatever_is_written_is_read_or_refused(entries: list[str]) -> None:
    try:
        arguments = parse(entries)
    except UsageError:
        return
    assert parse(arguments.user_args).values == arguments.values


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 50_000, "9" * 100_000, '{"a": ' + "9" * 5000 + "}"]
)
def test_hostile_json_is_refused_quickly(text: str) -> None:
    with pytest.raises(UsageError):
        parse(["--hf-overrides", text])
    with pytest.raises(UsageError):
        parse(["--hf-overrides." + "a." * 5000 + "b", "1"])


def test_the_command_is_ours_first_and_the_users_last() -> None:
    user = parse(["--max-num-seqs 64", "--port", "9000"])
    ours = (*layout_arguments(tensor=4, pipeline=2, hosts=2, user=user), ("max_num_seqs", 8))
    command = render(
        "org/m", ours, user, serving={"host": "0.0.0.0", "port": 8000, "served_model_name": ("m",)}
    )
    expected = ("serve", "org/m", "--tensor-parallel-size", "4", "--pipeline-parallel-size", "2")
    serving = ("--host", "0.0.0.0", "--served-model-name", "m")
    assert command == (*expected, *serving, "--max-num-seqs", "64", "--port", "9000")
    assert injected(command, ("serve", "org/m"), user.user_args) == (*expected[2:], *serving)


def test_parallel_sizes_are_the_users_as_soon_as_one_is_given() -> None:
    user = parse(["-pp", "2"])
    assert layout_arguments(tensor=4, pipeline=2, hosts=2, user=user) == ()
    assert render("m", (("tensor_parallel_size", 4),), user) == ("serve", "m", "-pp", "2")
    assert layout_arguments(tensor=4, pipeline=1, hosts=1, user=NO_ARGUMENTS) == (
        ("tensor_parallel_size", 4),
    )
    assert layout_arguments(tensor=1, pipeline=1, hosts=1, user=NO_ARGUMENTS) == ()


def test_speculative_decoding_is_one_json_flag() -> None:
    config = speculative_config("ngram", draft_tokens=3, lookup_min=2, lookup_max=4)
    flag, text = written("speculative_config", config)
    assert flag == "--speculative-config"
    assert parse([flag, text]).speculative_config == config


def test_injected_takes_each_user_word_away_once() -> None:
    final = ("serve", "m", "-tp", "2", "--max-num-seqs", "2", "--port", "1")
    assert injected(final, ("serve", "m"), ("--max-num-seqs", "2")) == ("-tp", "2", "--port", "1")


def test_gated_flags_follow_release_and_user() -> None:
    assert serving_flags(V("0.9.0"), NO_ARGUMENTS) == ()
    assert serving_flags(V("0.9.0.1"), NO_ARGUMENTS) == (("enable_prompt_tokens_details", True),)
    assert len(serving_flags(DEFAULT, NO_ARGUMENTS)) == 2
    user = parse(["--no-enable-prompt-tokens-details"])
    assert [name for name, _ in serving_flags(DEFAULT, user)] == ["disable_access_log_for_endpoints"]


@pytest.mark.parametrize(
    ("category", "architecture", "version", "expected"),
    [
        (Category.LLM, "LlamaForCausalLM", "0.33.0", 0.92),
        (Category.LLM, "LlamaForCausalLM", "0.19.1", 0.9),
        (Category.SPEECH_TO_TEXT, "WhisperForConditionalGeneration", "0.33.0", 0.92),
        (Category.EMBEDDING, "XLMRobertaModel", "0.33.0", None),
        (Category.EMBEDDING, "Qwen3ForCausalLM", "0.33.0", 0.92),
        (Category.RERANKER, "Qwen3VLForConditionalGeneration", "0.33.0", 0.92),
        (Category.IMAGE, "FluxPipeline", "0.33.0", None),
        (None, "LlamaForCausalLM", "0.33.0", 0.92),
    ],
)
def test_utilization_follows_what_the_model_is_for(
    category: Category | None, architecture: str, version: str, expected: float | None
) -> None:
    def asked(arguments: EngineArguments) -> float | None:
        return gpu_memory_utilization(
            arguments, category=category, architectures=(architecture,), version=V(version)
        )

    assert asked(NO_ARGUMENTS) == expected
    assert asked(parse(["--gpu-memory-utilization", "0.5"])) == 0.5

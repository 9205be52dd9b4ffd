"""Arguments as a log shows them, and as the engine would be given them again."""

from gpuplan.engine.arguments import parse
from gpuplan.engine.start_arguments import argument_words, literals, words_of
from gpuplan.engine.versions import EngineVersion

V = EngineVersion(0, 22)


def test_literals_are_read_and_the_rest_is_passed_over() -> None:
    text = "'a': 1, 'b': {'c': [1, 2], 'd': 'x, y'}, 'e': <Enum.X: 1>, 'f': CompilationConfig(mode=3, x={}), 'g': True}"
    assert literals(text, ":") == {"a": 1, "b": {"c": [1, 2], "d": "x, y"}, "g": True}
    assert literals("host=None, n=4, name='it\\'s', f=Call(a=1, b=2))", "=") == {
        "host": None,
        "n": 4,
        "name": "it's",
    }


def test_names_are_read_from_the_configuration() -> None:
    words = words_of(
        "model='a/b', dtype=torch.bfloat16, max_seq_len=512, x=Config(a=1, b=2), kv_cache_dtype=auto"
    )
    assert words["dtype"] == "torch.bfloat16"
    assert words["kv_cache_dtype"] == "auto"
    assert words["x"] == "Config(a=1, b=2)"


def test_what_bears_on_memory_is_written_in_the_engines_syntax() -> None:
    values = {
        "tensor_parallel_size": 2,
        "enforce_eager": True,
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
        "limit_mm_per_prompt": {"image": 1},
        "served_model_name": ["x"],
        "max_num_seqs": None,
    }
    words, refused = argument_words(values, V)
    engine = parse(words, version=V, model_given=True)
    assert refused == ()
    assert (engine.tensor_parallel_size, engine.enforce_eager) == (2, True)
    assert engine.speculative_config == {"method": "ngram", "num_speculative_tokens": 3}
    assert engine.served_model_name == ()


def test_values_the_engine_would_refuse_are_named() -> None:
    words, refused = argument_words({"max_num_seqs": "many", "gpu_memory_utilization": 0.5}, V)
    assert refused == ("max_num_seqs",)
    assert words == ("--gpu-memory-utilization", "0.5")

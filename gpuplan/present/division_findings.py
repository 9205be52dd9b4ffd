"""Words about sizes that do not divide a model, and about cards that cannot compute it."""

from gpuplan.present.numbers import count
from gpuplan.present.subjects import engine_says, place, shape
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural


def _heads(_subject: Given, figures: Given) -> Words:
    return told(
        f"{figures['part']}: {count(figures['value'])} cannot be divided over TP {figures['tensor']}",
        engine_says(figures),
        f"use a tensor-parallel size that divides {count(figures['value'])}, or pipeline stages: "
        f"-- --pipeline-parallel-size {figures['tensor']}",
    )


def _width(_subject: Given, figures: Given) -> Words:
    return (
        f"{figures['part']} cannot be split over {figures['ranks']} ranks ({shape(figures)})",
        engine_says(figures),
        "use a smaller tensor-parallel size; for experts, --enable-expert-parallel keeps them whole",
    )


def _layers(_subject: Given, figures: Given) -> Words:
    return (
        f"{figures['pipeline']} pipeline stages for {plural(figures['value'], 'layer')}",
        engine_says(figures),
        f"use at most {figures['value']} stages",
    )


def _no_pipeline(_subject: Given, figures: Given) -> Words:
    return (
        f"{figures['part']} cannot run in pipeline stages",
        engine_says(figures),
        "use tensor parallel only, on one host",
    )


def _no_experts(_subject: Given, figures: Given) -> Words:
    return (
        "expert parallel was asked for, but the model has no experts",
        engine_says(figures),
        "leave --enable-expert-parallel out",
    )


def _context_parallel(_subject: Given, figures: Given) -> Words:
    return (
        f"context parallel does not go with {shape(figures)}",
        engine_says(figures),
        "see `gpuplan explain GP110`",
    )


def _dtype(subject: Given, figures: Given) -> Words:
    if not figures["value"]:
        return (
            f"{figures['part']} is numerically unstable in float16",
            engine_says(figures),
            "leave --dtype out, or use cards with bfloat16 (compute capability 8.0)",
        )
    return (
        f"{place(subject)}: {figures['part']} (compute capability {figures['value'] / 10:.1f}) has no bfloat16",
        engine_says(figures),
        "pass -- --dtype float16 if the model bears it, or use newer cards",
    )


def _no_quantization(subject: Given, figures: Given) -> Words:
    return told(
        f"{place(subject)}: {figures['part']} (compute capability {figures['value'] / 10:.1f}) "
        f"cannot run this quantization, which needs {figures['ranks'] / 10:.1f}",
        engine_says(figures),
        "use another variant of the model, or newer cards",
    )


def _too_old(subject: Given, figures: Given) -> Words:
    return told(
        f"{place(subject)}: {figures['part']} (compute capability {figures['value'] / 10:.1f}) "
        f"is too old for vLLM, which needs {figures['ranks'] / 10:.1f}",
        (),
        "use newer cards",
    )


def _cut_groups(_subject: Given, figures: Given) -> Words:
    return told(
        f"{figures['part']}: a rank's share of {figures['value']} ends inside a quantization group; "
        "the engine starts, its answers may be wrong",
        (str(figures["line"]),),
        "use a smaller tensor-parallel size, or -- --enable-expert-parallel for experts",
    )


WORDS: dict[str, Worder] = {
    "GP101": _heads,
    "GP102": _width,
    "GP103": _heads,
    "GP104": _width,
    "GP105": _width,
    "GP106": _width,
    "GP107": _layers,
    "GP108": _no_pipeline,
    "GP109": _no_experts,
    "GP110": _context_parallel,
    "GP111": _dtype,
    "GP112": _no_quantization,
    "GP113": _too_old,
    "GP114": _cut_groups,
}

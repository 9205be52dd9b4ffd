"""Ascend's tool: recorded tables compared in full, and any text at all."""

import time

import pytest
from hypothesis import given

from gpuplan.probing import npu_smi
from gpuplan.probing.output import Output
from tests.unit.probing import recorded_cases
from tests.unit.probing.texts import outputs_of

PROBE = "npu_smi"


@pytest.mark.parametrize("case", recorded_cases.names(PROBE))
def test_recorded_output_is_read_in_full(case: str) -> None:
    outputs = recorded_cases.outputs(PROBE, case)
    assert outputs.keys() <= {command.name for command in npu_smi.COMMANDS}
    report = npu_smi.report(outputs)
    assert recorded_cases.plain(report) == recorded_cases.expected(PROBE, case)
    assert recorded_cases.source(PROBE, case).strip()


@given(outputs_of(npu_smi.COMMANDS))
def test_any_text_gives_a_report(outputs: dict[str, Output]) -> None:
    report = npu_smi.report(outputs)
    indexes = [gpu.index for gpu in report.gpus]
    assert indexes == sorted(set(indexes))
    for gpu in report.gpus:
        assert gpu.free_bytes is None or (
            gpu.total_bytes is not None and 0 <= gpu.free_bytes <= gpu.total_bytes
        )


@pytest.mark.parametrize(
    "junk",
    ["|" * 4_000_000, "| 0 x | OK | 1 / 2 |\n" * 200_000, "1 / " * 1_000_000],
    ids=["bars", "rows", "slashes"],
)
def test_four_megabytes_of_junk_take_bounded_time(junk: str) -> None:
    begin = time.process_time()
    report = npu_smi.report(dict.fromkeys((command.name for command in npu_smi.COMMANDS), Output(text=junk)))
    assert not report.gpus
    assert [fact.code for fact in report.conditions] == ["GP606"]
    assert time.process_time() - begin < 20


def test_a_release_candidate_is_older_than_its_release() -> None:
    report = npu_smi.report(
        recorded_cases.outputs(PROBE, "310p3_duo_no_hbm_column")
        | {"npu_cann": Output(text="version=8.0.RC3\nversion=8.0.0\n")}
    )
    assert report.runtime_version == "8.0.0"


def test_without_a_mapping_and_physical_ids_the_card_number_is_the_index() -> None:
    outputs = recorded_cases.outputs(PROBE, "910b3_container_two_of_eight")
    del outputs["npu_map"]
    assert [gpu.index for gpu in npu_smi.report(outputs).gpus] == [0, 5]

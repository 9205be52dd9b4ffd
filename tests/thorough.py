"""Variants of slow tests that add little to the ones beside them; GPUPLAN_TEST_THOROUGH=1 runs them too."""

import os

import pytest

THOROUGH = bool(os.environ.get("GPUPLAN_TEST_THOROUGH"))
thorough = pytest.mark.skipif(not THOROUGH, reason="a slow variant: GPUPLAN_TEST_THOROUGH=1 runs it")

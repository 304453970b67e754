"""The local engine keeps up with plain ``generate``; a figure, so slow and outside the fast tests."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_multi_turn_rollout_reaches_four_fifths_of_plain_generate(capsys: pytest.CaptureFixture[str]) -> None:
    name = "peira_bench_local_engine"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "bench_local_engine.py")
    assert spec is not None
    assert spec.loader is not None
    bench = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    found = bench.measure(bench.Shape(turns=6))
    with capsys.disabled():
        print(f"\ngenerate {found['generate']:,.0f}, multi-turn {found['multi_turn']:,.0f} tokens/s", found["ratio"])
    assert found["ratio"] >= 0.8

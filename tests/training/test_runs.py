"""Run folders, strict metrics (P111, P112) and learning curves."""

import json
import math

import numpy as np
import pytest

from peira.tools.errors import UsageError
from peira.training.report import Panel, draw, series_of
from peira.training.runs import Metrics, RunFolder, read_metrics, steps_of


def test_p111_everything_logged_under_a_step_is_found_under_it_also_after_a_resume(tmp_path):
    file = tmp_path / "metrics.jsonl"
    with Metrics(file) as metrics:
        metrics.log(2, {"loss": 0.5})
        metrics.log(3, {"loss": 0.25})
        metrics.log(3, {"grad_norm": 1.0})
        metrics.log(3, {"success": 0.75}, phase="eval")
    with Metrics(file) as metrics:  # resumed at 3
        metrics.log(3, {"loss": 0.25, "lr": 0.1})
        metrics.log(4, {"loss": 0.125})
    assert steps_of(file) == [
        {"step": 2, "loss": 0.5},
        {"step": 3, "loss": 0.25, "grad_norm": 1.0, "eval/success": 0.75, "lr": 0.1},
        {"step": 4, "loss": 0.125},
    ]
    assert steps_of(file, phase="eval") == [{"step": 3, "success": 0.75}]


def test_p112_metrics_are_strict_json_and_what_is_no_number_is_null(tmp_path):
    file = tmp_path / "metrics.jsonl"
    values = {"nan": math.nan, "inf": np.float32("-inf"), "count": np.int64(3), "share": np.float64(0.5), "note": "x"}
    with Metrics(file) as metrics:
        metrics.log(np.int64(1), values)

    def no_constants(name):
        raise AssertionError(name)

    (line,) = file.read_text().splitlines()
    assert json.loads(line, parse_constant=no_constants) == {
        "step": 1,
        "phase": "train",
        "nan": None,
        "inf": None,
        "count": 3,
        "share": 0.5,
        "note": "x",
    }


def test_the_writers_own_keys_and_other_things_are_refused(tmp_path):
    with Metrics(tmp_path / "m.jsonl") as metrics:
        with pytest.raises(UsageError, match="cannot be called 'step'"):
            metrics.log(1, {"step": 2})
        with pytest.raises(UsageError, match="'ids' is a list"):
            metrics.log(1, {"ids": [1]})
    assert (tmp_path / "m.jsonl").read_text() == ""


def test_a_line_that_a_crash_cut_off_costs_only_itself(tmp_path):
    file = tmp_path / "m.jsonl"
    with Metrics(file) as metrics:
        metrics.log(1, {"loss": 1.0})
    whole = file.read_text()
    file.write_text(whole + '{"step": 2, "ph')
    assert [line["step"] for line in read_metrics(file)] == [1]
    with Metrics(file) as metrics:
        metrics.log(2, {"loss": 0.5})
    assert [line["step"] for line in read_metrics(file)] == [1, 2]


def test_a_damaged_line_is_named(tmp_path):
    file = tmp_path / "m.jsonl"
    file.write_text('{"step": 1, "phase": "train"}\n{"step": 2, "x": NaN}\n')
    with pytest.raises(UsageError, match="line 2 is damaged"):
        steps_of(file)


def test_a_run_is_begun_once_and_resumed_where_it_is(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(UsageError, match="no run to resume"):
        folder.begin("seed = 1\n", resume=True)
    assert not folder.path.exists()
    folder.begin("seed = 1\n")
    with pytest.raises(UsageError, match="not empty"):
        folder.begin("seed = 2\n")
    folder.begin("seed = 1\n", resume=True)
    assert folder.config.read_text() == "seed = 1\n"
    assert folder.episodes(12).name == "000012.jsonl.zst"


def test_a_run_does_not_replace_a_file(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        RunFolder(tmp_path / "run").begin("")
    assert (tmp_path / "run").read_text() == "mine"


def log(path, points):
    with Metrics(path) as metrics:
        for step, value in points:
            metrics.log(step, {"success": value, "total_tokens": 100 * step})
    return path


def test_a_curve_is_mean_and_range_over_seeds_where_all_runs_are(tmp_path):
    first = log(tmp_path / "a.jsonl", [(0, 0.0), (1, 0.5), (2, 1.0), (3, 1.0)])
    second = log(tmp_path / "b.jsonl", [(0, 0.5), (2, 0.5)])
    series = series_of([first, second], "success")
    np.testing.assert_allclose(series.x, [0, 1, 2])
    np.testing.assert_allclose(series.mean, [0.25, 0.5, 0.75])
    np.testing.assert_allclose(series.low, [0.0, 0.5, 0.5])
    np.testing.assert_allclose(series.high, [0.5, 0.5, 1.0])
    assert series.seeds == 2


def test_smoothing_looks_back_only(tmp_path):
    run = log(tmp_path / "a.jsonl", [(0, 0.0), (1, 1.0), (2, 0.5), (3, math.nan), (4, 1.0)])
    np.testing.assert_allclose(series_of([run], "success", smooth=2).mean, [0.0, 0.5, 0.75, 0.75])


def test_an_unknown_metric_names_the_nearest(tmp_path):
    run = log(tmp_path / "a.jsonl", [(0, 0.0)])
    with pytest.raises(UsageError, match="Did you mean 'success'"):
        series_of([run], "sucess")
    with pytest.raises(UsageError, match="Did you mean 'total_tokens'"):
        series_of([run], "success", x="total_token")


def test_the_picture_is_a_png_and_the_same_each_time(tmp_path):
    runs = {
        "earl": [log(tmp_path / f"{seed}.jsonl", [(0, 0.1 * seed), (10, 1.0)]) for seed in range(3)],
        "grpo": [log(tmp_path / "g.jsonl", [(0, 0.0), (10, 0.4)])],
    }
    panels = [Panel("success", {"optimum": 1.0}, bottom=0.0), Panel("success", {})]
    paths = [draw(tmp_path / name, runs, panels, title="t", x="total_tokens") for name in ("a.png", "b.png")]
    assert paths[0].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert paths[0].read_bytes() == paths[1].read_bytes()

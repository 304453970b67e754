"""Learning curves: a picture from the metrics of one or several runs, with a band over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peira.tools.errors import UsageError, missing_extra, unknown
from peira.training.runs import RunFolder, steps_of

__all__ = ["Panel", "Series", "draw", "series_of"]

_LABELS = {
    "success": "success",
    "score": "score",
    "actions/compare": "comparisons per episode",
    "actions/swap": "swaps per episode",
    "total_tokens": "sampled tokens",
    "step": "step",
}


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: the mean over seeds and their range."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    seeds: int


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot of a figure."""

    metric: str
    lines: Mapping[str, float]
    """Horizontal lines by label: a demonstrator, an optimum."""
    bottom: float | None = None
    top: float | None = None


def series_of(runs: Sequence[str | Path], metric: str, *, x: str = "step", smooth: int = 1) -> Series:
    """Return the curve of runs that differ only in their seed.

    Args:
        runs: run folders or metrics files.
        metric: a key of the metrics; null values are left out.
        x: key of the horizontal axis. Runs need not share its values: between its points a run is interpolated, and
            the curve ends where the shortest run does.
        smooth: length of the moving mean over a run's points.

    Raises:
        UsageError: no runs, or a metric that a run does not have.
    """
    if not runs:
        raise UsageError("a curve needs at least one run")
    curves = [_points(Path(run), metric, x) for run in runs]
    curves = [(at, _smoothed(values, smooth)) for at, values in curves]
    end = min(at[-1] for at, _ in curves)
    start = max(at[0] for at, _ in curves)
    longest = max(curves, key=lambda curve: len(curve[0]))[0]
    grid = longest[(longest >= start) & (longest <= end)]
    values = np.stack([np.interp(grid, at, value) for at, value in curves])
    return Series(grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0), len(curves))


def _points(run: Path, metric: str, x: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    file = RunFolder(run).metrics if run.is_dir() else run
    records = steps_of(file)
    found = [
        (record[x], record[metric]) for record in records if _number(record.get(metric)) and _number(record.get(x))
    ]
    if not found:
        known = sorted({key for record in records for key in record})
        raise unknown(f"metric of {file}", metric if metric not in known else x, known)
    at, values = np.array(found, dtype=np.float64).T
    return at, values


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _smoothed(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Return the mean of each value and up to ``width - 1`` before it: nothing looks into the future."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - width, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))


def draw(
    path: str | Path,
    runs: Mapping[str, Sequence[str | Path]],
    panels: Sequence[Panel],
    *,
    title: str = "",
    x: str = "step",
    smooth: int = 1,
) -> Path:
    """Draw one plot per panel, side by side, and write them as one PNG.

    Args:
        path: where to.
        runs: for each curve's label the runs of its seeds.
        panels: what to plot.
        title: above the figure.
        x: key of the horizontal axis, ``step`` or ``total_tokens``.
        smooth: length of the moving mean.

    Raises:
        UsageError: a metric that a run does not have, or matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise missing_extra("matplotlib", "train", "a learning curve") from error
    figure = Figure(figsize=(5.2 * len(panels), 3.6), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(1, len(panels), place)
        for index, (label, folders) in enumerate(runs.items()):
            series = series_of(folders, panel.metric, x=x, smooth=smooth)
            name = label if series.seeds == 1 else f"{label} ({series.seeds} seeds)"
            axes.plot(series.x, series.mean, color=f"C{index}", label=name)
            if series.seeds > 1:
                axes.fill_between(series.x, series.low, series.high, color=f"C{index}", alpha=0.2, linewidth=0)
        for index, (label, value) in enumerate(panel.lines.items()):
            axes.axhline(value, color="0.35", linestyle=("--", ":", "-.")[index % 3], linewidth=1.2, label=label)
        axes.set_xlabel(_LABELS.get(x, x))
        axes.set_ylabel(_LABELS.get(panel.metric, panel.metric))
        axes.set_ylim(bottom=panel.bottom, top=panel.top)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8)
    if title:
        figure.suptitle(title)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(str(path), format="png", metadata={"Software": "peira"})
    return Path(path)

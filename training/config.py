"""A run as data: every choice of a training run in one frozen, checked object.

Each section is the settings class of the piece that reads it; this file only puts them side by side. How a
``RunConfig`` comes out of recipes and the command line is ``peira.training.recipe``.
"""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from peira.training.credit import CreditSettings
from peira.training.filters import FilterSettings
from peira.training.learner import LearnerSettings
from peira.training.reference import ReferenceSettings
from peira.training.rewards import RewardSettings
from peira.training.settings import Settings
from peira.training.trainer import CollectSettings, Counterfactual, RewardKL

__all__ = ["EvaluateSettings", "PolicySettings", "RunConfig", "ViewSettings", "WorldSettings"]


class WorldSettings(Settings):
    """Which world, and which of its instances."""

    id: str
    """A world's name (``peira list``)."""
    params: dict[str, Any] = Field(default_factory=dict)
    """The world's own parameters; the world refuses those it does not have."""
    levels: dict[int, float] = Field(default_factory=dict)
    """Weight of each difficulty level; empty: all levels alike."""
    split: str = "train"
    """Which part of the instances is trained on."""


class PolicySettings(Settings):
    """Whose weights are trained."""

    path: str
    """A Hugging Face folder, large or tiny (``peira policy new`` makes tiny ones). It is read, never written."""
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    engine: Literal["local", "vllm", "vllm-server"] = "local"
    """Who samples: this process, vLLM in this process, or a vLLM server that the run starts and ends."""
    cache: float = Field(default=1.0, gt=0)
    """GiB of key-value cache; vLLM only."""


class ViewSettings(Settings):
    """How much of an episode the policy reads at each turn."""

    history: Literal["append", "window"] = "append"
    """One growing sequence, or each turn its own bounded prompt."""
    window: int = Field(default=2, ge=1)
    """Exchanges shown; ``window`` only."""
    system: str | None = None
    """System message before the first observation."""


class EvaluateSettings(Settings):
    """When a run is measured on held-out instances, and on which."""

    every: int = Field(default=0, ge=0)
    """Steps between evaluations, which also happen before the first step and after the last; 0: never."""
    suite: str | None = None
    """A named list of tasks (``sort4``); left out, ``n`` tasks of ``split`` at ``level``."""
    split: str = "test"
    level: int | None = None
    """Left out: the hardest level that is trained on."""
    n: int | None = Field(default=None, ge=1)
    """Tasks; left out, as many as there are, 100 at the most."""
    seeds: int = Field(default=1, ge=1)
    """Times every task is tried."""
    temperature: float = Field(default=1.0, ge=0)
    """0 is greedy."""


class RunConfig(Settings):
    """Everything that decides what a run does. Equal configurations and equal policies give equal runs."""

    recipe: str
    """Name of the recipe it came from; decides nothing."""
    seed: int = Field(default=0, ge=0)
    """All random streams of the run hang on it."""
    steps: int = Field(default=100, ge=0)
    """Iterations: collect, judge, learn, deliver."""
    tokens: int | None = Field(default=None, ge=1)
    """Sampled ids after which a run ends, whatever ``steps`` says: for comparisons under one budget."""
    keep_episodes: int = Field(default=0, ge=0)
    """Steps between those whose episodes are kept in the run's folder; 0: none are."""
    save_every: int = Field(default=10, ge=0)
    """Steps between checkpoints; 0: only the last step is saved."""
    world: WorldSettings
    policy: PolicySettings
    view: ViewSettings = ViewSettings()
    rollout: CollectSettings = CollectSettings()
    filters: FilterSettings = FilterSettings()
    counterfactual: Counterfactual | None = None
    """EARL's rewriting of groups in which nothing succeeded."""
    rewards: RewardSettings = RewardSettings()
    reward_kl: RewardKL = RewardKL()
    credit: CreditSettings = CreditSettings()
    learner: LearnerSettings = LearnerSettings()
    reference: ReferenceSettings = ReferenceSettings()
    evaluate: EvaluateSettings = EvaluateSettings()

    @model_validator(mode="after")
    def _pieces_fit(self) -> Self:
        if self.counterfactual is not None and self.world.params.get("actions", "expanded") != "expanded":
            raise ValueError(
                "'counterfactual' forces routing actions: it needs world.params.actions = \"expanded\" "
                '(or counterfactual = "none")'
            )
        if self.counterfactual is not None and self.reward_kl.coefficient > 0:
            raise ValueError(
                "the credit of a counterfactual episode is a difference of two scores, which a KL in the reward has "
                "no part in: set reward_kl.coefficient = 0 and use learner.divergence"
            )
        if self.evaluate.suite is None and self.evaluate.split == self.world.split:
            raise ValueError(
                f"'evaluate.split' is {self.evaluate.split!r}, which is trained on: it would measure memory"
            )
        rates = [self.learner.lr.at(step) for step in (0, self.steps)]
        if min(rates) < 0 or max(rates) == 0:
            raise ValueError(f"'learner.lr' runs from {rates[0]:g} to {rates[1]:g}; a learning rate is positive")
        return self

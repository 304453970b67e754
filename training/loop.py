"""A run: from a configuration to a trained policy, resumable at every step.

The loop itself holds nothing. ``Trainer.iterate`` makes one step; between steps there are numbers to write, an
evaluation now and then, and a checkpoint from which another process goes on exactly where this one was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peira.agents import codec
from peira.agents.policy import Policy
from peira.agents.policy.save import save_policy
from peira.agents.rollout import Progress, run_sync
from peira.agents.view import View
from peira.envs.spec import make
from peira.tasks.sampler import Sampler
from peira.tools.errors import UsageError
from peira.training.checkpoint import Checkpoint, Checkpoints
from peira.training.config import RunConfig
from peira.training.engines import engine_of
from peira.training.evaluate import Score, measure, tasks_of
from peira.training.learner import Learner
from peira.training.recipe import Resolved
from peira.training.reference import Reference
from peira.training.runs import Metrics, RunFolder
from peira.training.trainer import Trainer, TrainerState

__all__ = ["RunResult", "train", "trainer_of"]

Watch = Callable[[int, int, Mapping[str, float]], None]
"""Told the steps done, the steps wanted, and the metrics of the last one."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run left."""

    path: Path
    """The run's folder."""
    policy: Path
    """The trained policy, an ordinary Hugging Face folder."""
    steps: int
    tokens: int
    """Ids sampled in training."""
    last: Mapping[str, float]
    """Metrics of the last step."""
    score: Score | None
    """The last evaluation."""


def trainer_of(config: RunConfig, policy: Policy) -> Trainer:
    """Build the pieces of a run from its configuration.

    Raises:
        UsageError: pieces that do not fit: a policy of another world, an unknown world or level, a split kept for
            evaluation.
    """
    world = config.world
    params = dict(world.params)
    native = make(world.id, **params).native()
    if native:
        policy.require(world.id, native)
    if world.split != "train":
        raise UsageError(f"world.split is {world.split!r}; only the split 'train' may be trained on")
    view = View(
        policy.text,
        policy.actions if native else None,
        history=config.view.history,
        window=config.view.window,
        system=config.view.system,
    )
    engine = engine_of(config, policy)
    model = policy.model(device=config.policy.device, dtype=config.policy.dtype)
    divergence = config.learner.divergence
    needed = (divergence is not None and divergence.coefficient > 0) or config.reward_kl.coefficient > 0
    reference = Reference(model, config.reference) if needed else None
    return Trainer(
        sampler=Sampler(world.id, params, world.split, world.levels, config.seed),
        engine=engine,
        view=view,
        learner=Learner(model, reference, config.learner, policy.vocab, config.seed),
        collecting=config.rollout,
        crediting=config.credit,
        rewards=config.rewards,
        filters=config.filters,
        rewriting=config.counterfactual,
        reward_kl=config.reward_kl,
        seed=config.seed,
    )


def train(
    config: RunConfig | Resolved,
    run_dir: str | Path,
    *,
    resume: bool = False,
    watch: Watch | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Train a policy.

    Args:
        config: the run; a ``Resolved`` also says in ``config.toml`` where each value came from.
        run_dir: the run's folder; it must be empty or absent, or hold the run that ``resume`` goes on with.
        resume: go on from the newest checkpoint: the same weights, losses and episodes as if never interrupted.
        watch: told each step.
        progress: told each finished episode.

    Raises:
        UsageError: a configuration that does not fit the world or the policy, a folder in the way, a checkpoint of
            another run, a full disk.
        Fault: machinery failed; the newest checkpoint is there to resume from.
    """
    resolved = config if isinstance(config, Resolved) else Resolved(config, {})
    run = _Run(resolved, RunFolder(Path(run_dir)), watch, progress)
    return run_sync(run.go(resume))


class _Run:
    """One run between its first and its last step."""

    def __init__(self, resolved: Resolved, folder: RunFolder, watch: Watch | None, progress: Progress | None) -> None:
        self.config, self.folder, self.watch, self.progress = resolved.config, folder, watch, progress
        self.resolved = resolved
        self.policy = Policy.load(self.config.policy.path)
        self.trainer = trainer_of(self.config, self.policy)
        self.checkpoints = Checkpoints(folder.checkpoints, _identity(self.config, self.policy))
        self.score: Score | None = None

    async def go(self, resume: bool) -> RunResult:
        """Make the steps that are missing; whatever happens, the engine does not outlive them."""
        try:
            state, last = await self._steps(resume)
        finally:
            await self.trainer.engine.close()
        out = self.folder.path / "policy"
        save_policy(self.policy, self.trainer.learner.model, out, overwrite=True)
        return RunResult(self.folder.path, out, state.step, state.tokens, last, self.score)

    async def _steps(self, resume: bool) -> tuple[TrainerState, Mapping[str, float]]:
        config, folder = self.config, self.folder
        folder.begin(self.resolved.toml(), resume=resume)
        state = self._restore() if resume else TrainerState()
        last: Mapping[str, float] = {}
        with Metrics(folder.metrics) as metrics:
            if state.step == 0:
                await self._evaluate(metrics, state)
            while state.step < config.steps and (config.tokens is None or state.tokens < config.tokens):
                step = await self.trainer.iterate(state, self.progress)
                state, last = step.state, step.metrics
                metrics.log(state.step, last)
                if config.keep_episodes and state.step % config.keep_episodes == 0:
                    codec.write(folder.episodes(state.step), step.groups)
                over = state.step == config.steps or (config.tokens is not None and state.tokens >= config.tokens)
                if over or (config.evaluate.every and state.step % config.evaluate.every == 0):
                    await self._evaluate(metrics, state)
                if over or (config.save_every and state.step % config.save_every == 0):
                    self._save(state)
                if self.watch is not None:
                    self.watch(state.step, config.steps, last)
        return state, last

    async def _evaluate(self, metrics: Metrics, state: TrainerState) -> None:
        """Measure the policy on tasks it is never trained on."""
        chosen = self.config.evaluate
        if not chosen.every:
            return
        world = self.config.world
        level = chosen.level if chosen.level is not None or chosen.suite else max(self.trainer.sampler.levels)
        tasks = tasks_of(
            world.id, params=world.params, suite_name=chosen.suite, split=chosen.split, level=level, n=chosen.n
        )
        limits = self.config.rollout.rollout(temperature=chosen.temperature)
        seeds = 1 if chosen.temperature == 0 else chosen.seeds
        self.score = await measure(
            tasks, self.trainer.engine, self.trainer.view, limits, agent="policy", seeds=seeds, seed=self.config.seed
        )
        metrics.log(state.step, {"total_tokens": state.tokens, **self.score.metrics()}, phase="eval")

    def _save(self, state: TrainerState) -> None:
        self.checkpoints.save(Checkpoint(state.step, self.trainer.learner.state(), state.plain()))

    def _restore(self) -> TrainerState:
        """Take up the newest checkpoint; the engine gets its weights before the first request."""
        saved = self.checkpoints.load()
        self.trainer.learner.restore(saved.tensors)
        return TrainerState.of(saved.state)


def _identity(config: RunConfig, policy: Policy) -> dict[str, Any]:
    """Return what a checkpoint must have in common with the run that takes it up."""
    decides = config.model_dump(mode="json", exclude={"steps", "tokens", "save_every", "keep_episodes", "evaluate"})
    decides["policy"] = {"fingerprint": policy.fingerprint}
    return decides

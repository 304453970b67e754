"""A world that does what a test tells it, engines beside it, and a log of everything that was opened and closed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from peira.agents.engines.scripted import Scripted, replay
from peira.agents.episode import run_episode
from peira.agents.rollout import RolloutSettings, collect
from peira.agents.text import ByteText
from peira.agents.view import View
from peira.envs.core import Env
from peira.envs.spec import WorldSpec
from peira.envs.types import Step
from peira.tasks.task import Task

TEXT = ByteText()
END = TEXT.stop[0]


@dataclass
class Scene:
    """What the world does, and what happened to it."""

    act: Callable[[Any, str], Step]
    first: str = "Begin."
    verbs: tuple[str, ...] = ()
    native: tuple[Any, ...] = ()
    legal: Callable[[Any], tuple[tuple[str, ...], bool]] = lambda env: ((), True)
    limit: int = 64
    blocking: bool = False
    begin: Callable[[Any], str] | None = None
    close: Callable[[Any], None] = lambda env: None
    opened: int = 0
    closed: int = 0
    actions: list[str] = field(default_factory=list)


SCENES: dict[str, Scene] = {}


class Stage(Env[int]):
    name = "stage"
    reward_range = (-10.0, 10.0)

    def __init__(self, *, scene: str) -> None:
        super().__init__(scene=scene)
        self.scene = SCENES[scene]
        self.limit, self.verbs, self.blocking = self.scene.limit, self.scene.verbs, self.scene.blocking
        self.scene.opened += 1

    def draw(self, rng, level, split):
        return int(rng.integers(10**9))

    def begin(self, instance):
        self.state = []
        return self.scene.first if self.scene.begin is None else self.scene.begin(self)

    def act(self, action):
        self.scene.actions.append(action)
        self.state.append(action)
        return self.scene.act(self, action)

    def state_key(self):
        return repr(self.state)

    def legal(self):
        return self.scene.legal(self)[0]

    def free_text(self):
        return self.scene.legal(self)[1]

    def native(self):
        return self.scene.native

    def close(self):
        self.scene.closed += 1
        self.scene.close(self)


WORLD = WorldSpec(id="stage", env=Stage, summary="For tests.")


def scene(act=None, **options) -> tuple[Scene, Task]:
    """A new scene and a task in it; by default the world goes on until it hears "done"."""
    name = f"scene {len(SCENES)}"
    SCENES[name] = made = Scene(act or until_done, **options)
    return made, Task.of(f"{__name__}:WORLD", 0, scene=name)


def until_done(env, action):
    return Step.win("Good.") if action == "done" else Step.go_on(f"You said {action}.")


def play(task, engine, view=None, *, seed=0, **options):
    """Run one episode to its end. Settings stand among the options."""
    view = view or View(TEXT)
    extra = {key: options.pop(key) for key in ("player", "fork", "watch") if key in options}
    engine = replay(engine, TEXT, keep=True) if isinstance(engine, list) else engine
    return asyncio.run(run_episode(task, engine, view, RolloutSettings(**options), seed=seed, **extra))


def gather(tasks, engine, view=None, *, group_size=4, seed=0, player=None, progress=None, **options):
    """Run a collection."""
    settings = RolloutSettings(**options)
    made = []

    async def work():
        made.extend(
            await collect(
                tasks, engine, view or View(TEXT), settings, group_size=group_size, seed=seed, player=player,
                progress=progress,
            )
        )  # fmt: skip

    asyncio.run(work())
    return made


def said(ids) -> str:
    return TEXT.decode(ids.tolist())


def engine(script, **options) -> Scripted:
    return Scripted(script, TEXT, **{"keep": True, **options})

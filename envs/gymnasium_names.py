"""peira's worlds under Gymnasium's names: ``peira/<world>-v0``.

Importing this module registers them, without importing any world. Gymnasium does it by itself when the id names the
module, also in a freshly spawned worker process::

    gymnasium.make("peira.envs.gymnasium_names:peira/sorting-v0", actions="expanded")

Worlds keep their own turn limit; ``max_turns`` or Gymnasium's ``max_episode_steps`` *replaces* it.
"""

from typing import Any

import gymnasium
from gymnasium.envs.registration import WrapperSpec
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import TimeLimit

from peira.envs.core import Env
from peira.envs.spec import make, names
from peira.tools.errors import UsageError

__all__ = ["NAMESPACE", "AdoptLimit", "open_world", "register"]

NAMESPACE = "peira"
_HERE = f"{__name__}:open_world"


class AdoptLimit(gymnasium.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Makes the limit of a ``TimeLimit`` wrapper around a world the world's own, and changes nothing else.

    Two limits would mean that the longer one has no effect, and that the world does not say why the episode ended.
    """

    def __init__(self, env: gymnasium.Env[str, str]) -> None:
        """Look for a time limit among the wrappers of ``env``; Gymnasium puts it on before this one."""
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        world, layer = env.unwrapped, env
        while isinstance(layer, gymnasium.Wrapper):
            if isinstance(layer, TimeLimit) and isinstance(world, Env):
                world.limit = layer._max_episode_steps
            layer = layer.env


_LIMIT = WrapperSpec("AdoptLimit", f"{__name__}:AdoptLimit", {})


def open_world(*, peira_world: str, **params: Any) -> Env[Any]:
    """Open a world; what Gymnasium calls.

    Raises:
        UsageError: unknown world or parameter.
    """
    return make(peira_world, **params)


def register() -> tuple[str, ...]:
    """Register every world that has a name, and return the ids. Doing it again does nothing.

    Raises:
        UsageError: somebody else has registered one of the ids for something else.
    """
    ids = []
    for name in names():
        env_id = f"{NAMESPACE}/{name}-v0"
        taken = gymnasium.registry.get(env_id)
        if taken is None:
            gymnasium.register(
                env_id,
                entry_point=_HERE,
                kwargs={"peira_world": name},
                order_enforce=False,
                additional_wrappers=(_LIMIT,),
            )
        elif taken.entry_point != _HERE:
            raise UsageError(
                f"Gymnasium's registry already has {env_id!r}, as {taken.entry_point}; "
                f"delete it from gymnasium.registry, or register it under another namespace than {NAMESPACE!r}"
            )
        ids.append(env_id)
    return tuple(ids)


register()

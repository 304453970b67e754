"""peira's worlds under Gymnasium's names: ``peira/<world>-v0``.

Importing this module registers them, without importing any world. Gymnasium does it by itself when the id names the
module, also in a freshly spawned worker process::

    gymnasium.make("peira.envs.gymnasium_names:peira/sorting-v0", actions="expanded")

Worlds keep their own turn limit, so nothing is wrapped; ``max_episode_steps`` (or ``max_turns``) replaces it.
"""

from typing import Any

import gymnasium

from peira.envs.core import Env
from peira.envs.spec import make, names
from peira.tools.errors import UsageError

__all__ = ["NAMESPACE", "open_world", "register"]

NAMESPACE = "peira"
_HERE = f"{__name__}:open_world"


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
            gymnasium.register(env_id, entry_point=_HERE, kwargs={"peira_world": name}, order_enforce=False)
        elif taken.entry_point != _HERE:
            raise UsageError(
                f"Gymnasium's registry already has {env_id!r}, as {taken.entry_point}; "
                f"delete it from gymnasium.registry, or register it under another namespace than {NAMESPACE!r}"
            )
        ids.append(env_id)
    return tuple(ids)


register()

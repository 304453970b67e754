"""peira: the gym in which language-model agents learn by trial.

Everything a user starts from is here and loads on first use, so that ``import peira`` stays fast and free of torch;
everything else is imported from its room (``peira.envs``, ``peira.tools``, ``peira.tasks``, ``peira.agents``,
``peira.training``).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peira.agents.rollout import rollout
    from peira.envs.core import Env
    from peira.envs.spec import WorldSpec, make
    from peira.tasks.task import Task
    from peira.tools.errors import Fault, PeiraError, ToolRefusal, UsageError
    from peira.tools.tool import Tool
    from peira.training.evaluate import evaluate
    from peira.training.loop import train

__version__ = "0.1.0"

_HOME = {
    "Env": "peira.envs.core",
    "Fault": "peira.tools.errors",
    "PeiraError": "peira.tools.errors",
    "Task": "peira.tasks.task",
    "Tool": "peira.tools.tool",
    "ToolRefusal": "peira.tools.errors",
    "UsageError": "peira.tools.errors",
    "WorldSpec": "peira.envs.spec",
    "evaluate": "peira.training.evaluate",
    "make": "peira.envs.spec",
    "rollout": "peira.agents.rollout",
    "train": "peira.training.loop",
}

__all__ = [
    "Env",
    "Fault",
    "PeiraError",
    "Task",
    "Tool",
    "ToolRefusal",
    "UsageError",
    "WorldSpec",
    "evaluate",
    "make",
    "rollout",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import the home of a public name when it is first asked for."""
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'peira' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

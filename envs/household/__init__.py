"""ALFWorld's household tasks, generated without end, with the real engine's words, an oracle, snapshots and keys."""

from peira.envs.household.instance import Game, Instance, State
from peira.envs.household.world import WORLD, Household

__all__ = ["WORLD", "Game", "Household", "Instance", "State"]

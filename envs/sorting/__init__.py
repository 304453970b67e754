"""Sorting hidden values by comparing and swapping: the world in which an agent can discover an algorithm."""

from peira.envs.sorting.rules import Instance, State
from peira.envs.sorting.world import WORLD, Sorting

__all__ = ["WORLD", "Instance", "Sorting", "State"]

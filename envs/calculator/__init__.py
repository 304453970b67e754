"""Arithmetic with a calculator at hand: the world in which an agent learns when and how to use a tool."""

from peira.envs.calculator.problems import Instance
from peira.envs.calculator.world import WORLD, Calculator, State

__all__ = ["WORLD", "Calculator", "Instance", "State"]

"""Credit: which decision helped. ``Group → Credited``, by statistics and tags alone; no text is ever read here."""

from peira.training.credit.estimate import CreditSettings, PerToken, PerTurn, credit

__all__ = ["CreditSettings", "PerToken", "PerTurn", "credit"]

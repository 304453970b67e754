"""Token-native tools: actions that stand beside the vocabulary instead of being spelt in it.

A native action owns an output row of the policy. Choosing it is *one* decision; its ``text`` is then written into the
context as ordinary tokens that carry no loss (EARL / ExpA, arXiv 2510.07581). Which actions may be chosen is the
world's business and changes with its state.
"""

from dataclasses import dataclass

__all__ = ["NativeAction"]


@dataclass(frozen=True, slots=True)
class NativeAction:
    """One action of an expanded action space."""

    name: str
    """The action string that the world's ``step`` receives, unique in the world."""
    text: str
    """What is written into the context when the action is chosen; its first token seeds the output row."""
    routing: bool = False
    """True when the action opens a nested environment and may be chosen in the middle of language."""

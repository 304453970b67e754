"""The rules of sorting as pure functions: instances, states, what a comparison teaches, swaps, and the reward.

Formulas: EARL / ExpA (arXiv 2510.07581), the sorting environment. Items are letters, a sequence is a string of them
(``"CADB"``), and hidden values enter only through ``Instance.order``, the letters from the smallest to the largest.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise, permutations
from math import ceil, factorial, log2
from typing import NamedTuple

__all__ = [
    "LETTERS",
    "Instance",
    "State",
    "best_question",
    "efficiency",
    "exchange",
    "fewest_comparisons",
    "fewest_swaps",
    "knows",
    "learn",
    "most_comparisons",
    "most_swaps",
    "swaps_to",
]

LETTERS = "ABCDE"
_N = len(LETTERS)


@dataclass(frozen=True, slots=True)
class Instance:
    """One sorting problem."""

    shown: str
    """The items in the order in which they are shown at first."""
    order: str
    """The items by hidden value, smallest first."""
    ascending: bool
    relations: tuple[str, ...] = ()
    """Task *order*: the relations that are told, ``"AB"`` for A < B, as told."""
    pair: str = ""
    """Task *compare*: the two items that are asked about, as asked."""

    @property
    def target(self) -> str:
        """The sequence that counts as sorted."""
        return self.order if self.ascending else self.order[::-1]

    def below(self, first: str, second: str) -> bool:
        """Whether the hidden value of ``first`` is the smaller one."""
        return self.order.index(first) < self.order.index(second)

    def sorted(self, items: str) -> bool:
        """Whether these items stand in the wanted order, with others left out."""
        places = [self.target.index(item) for item in items]
        return all(earlier < later for earlier, later in pairwise(places))


class State(NamedTuple):
    """Everything that changes during an episode. Immutable, so a snapshot is a reference."""

    sequence: str
    compared: int = 0
    """Comparisons made, C in the reward."""
    swapped: int = 0
    """Swaps made, S in the reward."""
    known: int = 0
    """What the agent can know of the hidden order: bit ``5 i + j`` says that letter i < letter j (closed under <)."""
    pending: str = ""
    """Expanded actions: the part of an operation chosen so far (``"swap"``, ``"swap A"``)."""
    log: str = ""
    """Operations so far, three characters each (``cAB`` compare, ``sAB`` swap). A notebook for scripted players; it
    influences neither what happens nor the reward, so it is no part of the state's key."""


def exchange(sequence: str, first: str, second: str) -> str:
    """Return the sequence with two items having changed places."""
    # Letters outside A..E serve as a hand to hold one item.
    return sequence.replace(first, "?").replace(second, first).replace("?", second)


@lru_cache(maxsize=1 << 14)
def learn(known: int, low: str, high: str) -> int:
    """Add ``low < high`` to what is known, and all that follows from it."""
    i, j = LETTERS.index(low), LETTERS.index(high)
    lower = [x for x in range(_N) if x == i or known >> (_N * x + i) & 1]
    higher = [y for y in range(_N) if y == j or known >> (_N * j + y) & 1]
    for x in lower:
        for y in higher:
            known |= 1 << (_N * x + y)
    return known


def knows(known: int, first: str, second: str) -> bool | None:
    """Return whether ``first < second`` as far as is known; ``None`` when it is not known."""
    i, j = LETTERS.index(first), LETTERS.index(second)
    if known >> (_N * i + j) & 1:
        return True
    return False if known >> (_N * j + i) & 1 else None


@lru_cache(maxsize=1 << 12)
def best_question(items: str, known: int) -> tuple[str, str] | None:
    """Return the comparison that halves the possible orders of ``items`` best; ``None`` when the order is known.

    Asking it again and again needs at most ceil(log2 n!) comparisons for every n up to 5.
    """
    orders = [
        order
        for order in permutations(items)
        if all(knows(known, low, high) is not False for low, high in combinations(order, 2))
    ]
    if len(orders) == 1:
        return None

    def lopsided(pair: tuple[str, str]) -> int:
        below = sum(order.index(pair[0]) < order.index(pair[1]) for order in orders)
        return abs(2 * below - len(orders))

    return min(combinations(items, 2), key=lopsided)


@lru_cache(maxsize=1 << 14)
def fewest_swaps(sequence: str, target: str) -> int:
    """Return n minus the number of cycles of the permutation that sorts: the least number of swaps."""
    return len(swaps_to(sequence, target))


def swaps_to(sequence: str, target: str) -> list[tuple[str, str]]:
    """Return a shortest list of swaps from a sequence to another: each of them puts an item into its final place."""
    swaps = []
    for place, wanted in enumerate(target):
        if sequence[place] != wanted:
            swaps.append((sequence[place], wanted))
            sequence = exchange(sequence, sequence[place], wanted)
    return swaps


def fewest_comparisons(n: int) -> int:
    """C_min: the information-theoretic bound ceil(log2 n!). Fewer than that is a guess."""
    return ceil(log2(factorial(n)))


def most_comparisons(n: int) -> int:
    """C_ref: the number of comparisons from which on they earn nothing."""
    return max(fewest_comparisons(n), n * ceil(log2(n)))


def most_swaps(n: int, fewest: int) -> int:
    """S_ref: the number of swaps from which on they earn nothing."""
    return max(fewest + 1, n * (n - 1) // 2)


@lru_cache(maxsize=1 << 12)
def efficiency(task: str, n: int, compared: int, swapped: int, fewest: int) -> float:
    """Return the efficiency in [0, 1] of a correct answer.

    Args:
        task: ``sort``, ``order`` or ``compare``.
        n: number of items.
        compared: comparisons made.
        swapped: swaps made.
        fewest: S_min, the least number of swaps from the instance's start.
    """
    if task == "compare":
        return float(compared == 1)
    reference = most_swaps(n, fewest)
    swaps = min(max((swapped - fewest) / (reference - fewest), 0.0), 1.0)
    if task == "order":
        return 1.0 - swaps
    least = fewest_comparisons(n)
    if compared < least:
        return 0.0
    comparisons = min((compared - least) / max(1, most_comparisons(n) - least), 1.0)
    return 0.5 * (1.0 - comparisons) + 0.5 * (1.0 - swaps)

"""The sorting POMDP of EARL / ExpA (arXiv 2510.07581): n letters whose hidden values can only be compared.

Tasks: ``sort`` (compare and swap), ``order`` (enough relations are told; only swap), ``compare`` (answer one
comparison). The only reward comes at the end: half for being correct, half for being correct with few operations.

A transcript (``actions="tags"``)::

    Sort ascending: B A. Ops: <compare>X Y</compare>, <swap>X Y</swap>. When sorted, say done.
    compare A B   ->  A < B
    swap A B      ->  A B
    done          ->  Correct. Comparisons: 1, swaps: 1.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import permutations
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np

from peira.envs.core import BUCKETS, Env, Player
from peira.envs.seeding import rng as stream
from peira.envs.sorting import players, rules
from peira.envs.sorting.rules import LETTERS, Instance, State
from peira.envs.spec import WorldSpec
from peira.envs.types import Step
from peira.tools.errors import unknown
from peira.tools.native import NativeAction

__all__ = ["WORLD", "Sorting"]

Actions = Literal["tags", "expanded"]
Direction = Literal["both", "ascending", "descending"]
TaskName = Literal["sort", "order", "compare"]

_VERBS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"sort": ("compare", "swap"), "order": ("swap",), "compare": ("compare",)}
)
_PAIRS = tuple((a, b) for a in LETTERS for b in LETTERS if a != b)
_RELATIONS = {(low, high): f"{low} < {high}" for low, high in _PAIRS}
_NATIVE = (
    NativeAction("compare", "compare", routing=True),
    NativeAction("swap", "swap", routing=True),
    *(NativeAction(letter, f" {letter}") for letter in LETTERS),
)
"""The same for every task and level, so that a policy keeps its action rows when it moves from one to another."""

_VERB = re.compile(r"\s*<?(compare|swap)\b", re.IGNORECASE)
_TAG = re.compile(r"\s*<(compare|swap)>\s*(.*?)\s*</\1>\s*", re.IGNORECASE | re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_RELATION = re.compile(r"\b([A-E])\s*([<>])\s*([A-E])\b")


class Sorting(Env[Instance]):
    """Sort letters by hidden values, with as few comparisons and swaps as can be.

    ``state_key`` names what decides all that can still happen: the hidden order, the direction, the present sequence,
    what is known (as a set: neither when nor in which order it was learnt), a half-chosen operation, and the two
    operation counts as far as the reward still depends on them.
    """

    name = "sorting"
    text: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "sort tags": "Sort {way}: {items}. Ops: <compare>X Y</compare>, <swap>X Y</swap>. When sorted, say done.",
            "sort expanded": "Sort {way}: {items}. Ops: compare, swap. When sorted, say done.",
            "order tags": "{told}. Sort {way}: {items}. Op: <swap>X Y</swap>. When sorted, say done.",
            "order expanded": "{told}. Sort {way}: {items}. Op: swap. When sorted, say done.",
            "compare tags": "Items: {items}. Is {first} < {second} or {second} < {first}? "
            "Op: <compare>X Y</compare>. Then say <answer>X < Y</answer>.",
            "compare expanded": "Items: {items}. Is {first} < {second} or {second} < {first}? "
            "Op: compare. Then say X < Y.",
            "relation": "A < B",
            "bad tags": "Not possible. {verbs} takes two different items of {items}, as in {example}.",
            "bad expanded": "Not possible. Choose one of: {legal}.",
            "right": "Correct. Comparisons: {compared}, swaps: {swapped}.",
            "wrong": "Wrong.",
        }
    )
    levels = range(2, len(LETTERS) + 1)
    max_turns = 48
    verbs = ("compare", "swap")
    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"naive": players.naive, "noisy_naive": players.noisy_naive, "network": players.network}
    )

    def __init__(self, *, task: TaskName = "sort", direction: Direction = "both", actions: Actions = "tags") -> None:
        """Open the world.

        Args:
            task: ``sort``, ``order`` or ``compare``.
            direction: the direction of the instances, or ``both``.
            actions: ``tags`` (``step("compare A B")``) or ``expanded`` (``step("compare")``, ``step("A")``, ...).

        Raises:
            UsageError: a value that is not among these.
        """
        choices = {"task": (task, TaskName), "direction": (direction, Direction), "actions": (actions, Actions)}
        for kind, (given, allowed) in choices.items():
            if given not in get_args(allowed):
                raise unknown(f"{kind} of world 'sorting'", given, get_args(allowed))
        super().__init__(task=task, direction=direction, actions=actions)
        self._task = task
        self._expanded = actions == "expanded"
        self._verbs = _VERBS[task]
        self._facts: _Facts | None = None
        if self._expanded:
            self.limit = 3 * self.max_turns

    # ---- instances ----------------------------------------------------------------------------------------------

    def draw(self, rng: np.random.Generator, level: int, split: str) -> Instance:
        """Draw the shown order, the hidden order, the direction, and what the task tells or asks beside them."""
        del split
        letters = rng.permutation(list(LETTERS))[:level].tolist()
        order = "".join(rng.permutation(letters).tolist())
        way = self.params["direction"]
        ascending = self._task == "compare" or (bool(rng.integers(2)) if way == "both" else way == "ascending")
        target = order if ascending else order[::-1]
        shown = "".join(rng.permutation(letters).tolist())
        while self._task == "order" and shown == target:
            shown = "".join(rng.permutation(letters).tolist())
        if self._task == "order":
            return Instance(shown, order, ascending, relations=_relations(rng, order))
        if self._task == "compare":
            return Instance(shown, order, ascending, pair="".join(rng.permutation(letters)[:2].tolist()))
        return Instance(shown, order, ascending)

    @staticmethod
    def pattern(instance: Instance) -> str:
        """Return what has to be done, whatever the items are called: the ranks in shown order, and the direction."""
        return "".join(str(instance.order.index(item)) for item in instance.shown) + "-+"[instance.ascending]

    @classmethod
    def bucket(cls, instance: Instance) -> int:
        """Return a bucket by content such that each pattern occurs in every split, under other names.

        A pattern has as many namings as there are ways to choose and lay out n of the letters; they are spread evenly
        over the buckets in an order hashed from the pattern. A plain hash of the content would leave the test split
        of two items with next to nothing.
        """
        ranks = _ranks(len(instance.shown))
        place = _scattered(cls.name, cls.pattern(instance))[ranks[instance.shown]]
        return BUCKETS - 1 - BUCKETS * place // len(ranks)

    def begin(self, instance: Instance) -> str:
        """Lay the items out."""
        known = 0
        for relation in instance.relations:
            known = rules.learn(known, relation[0], relation[1])
        self.state = State(instance.shown, known=known)
        told = ", ".join(_RELATIONS[pair[0], pair[1]] for pair in instance.relations)
        return self.text[f"{self._task} {self.params['actions']}"].format(
            way="ascending" if instance.ascending else "descending",
            items=" ".join(instance.shown),
            told=told,
            first=instance.pair[:1],
            second=instance.pair[1:],
        )

    # ---- play ---------------------------------------------------------------------------------------------------

    def act(self, action: str) -> Step:
        """Compare, swap, or end the episode with any other text."""
        if self._expanded:
            return self._act_expanded(action.strip())
        possible = self._now().operations
        operation = possible.get(action)
        if operation is None:
            if not _VERB.match(action):
                return self._judge(action)
            tag = _TAG.fullmatch(action)
            written = f"{tag[1].lower()} {tag[2]}" if tag else action
            operation = possible.get(" ".join(written.split()))
            if operation is None:
                return self._refuse()
        return self._operate(*operation)

    def _act_expanded(self, action: str) -> Step:
        state: State = self.state
        if not state.pending:
            if action in self._verbs:
                self.state = state._replace(pending=action)
                return Step.go_on("", progress=self._progress())
            return self._refuse() if _VERB.match(action) else self._judge(action)
        verb, _, first = state.pending.partition(" ")
        if len(action) != 1 or action not in state.sequence or action == first:
            return self._refuse()
        if not first:
            self.state = state._replace(pending=f"{verb} {action}")
            return Step.go_on("", progress=self._progress())
        return self._operate(verb, first, action)

    def _operate(self, verb: str, first: str, second: str) -> Step:
        sequence, compared, swapped, known, _, log = self.state
        if verb == "swap":
            sequence = rules.exchange(sequence, first, second)
            self.state = State(sequence, compared, swapped + 1, known, "", f"{log}s{first}{second}")
            answer = " ".join(sequence)
        else:
            low, high = (first, second) if self.instance.below(first, second) else (second, first)
            known = rules.learn(known, low, high)
            self.state = State(sequence, compared + 1, swapped, known, "", f"{log}c{first}{second}")
            answer = _RELATIONS[low, high]
        return Step.go_on(f": {answer}\n" if self._expanded else answer, progress=self._progress())

    def _judge(self, answer: str) -> Step:
        state: State = self.state
        if self._task == "compare":
            correct = _says(answer) == {"".join(sorted(self.instance.pair, key=self.instance.order.index))}
        else:
            correct = state.sequence == self.instance.target
        if not correct:
            return Step.lose(self.text["wrong"])
        good = rules.efficiency(self._task, len(state.sequence), state.compared, state.swapped, self._now().fewest)
        told = self.text["right"].format(compared=state.compared, swapped=state.swapped)
        return Step.win(told, 0.5 + 0.5 * good, {"correct": 0.5, "efficiency": 0.5 * good})

    def _refuse(self) -> Step:
        if self._expanded:
            legal = [*self.legal(), *(["any text, to finish"] if self.free_text() else [])]
            return Step.refuse(self.text["bad expanded"].format(legal=", ".join(legal)))
        verb, items = self._verbs[0], sorted(self.state.sequence)
        example = f"<{verb}>{items[0]} {items[1]}</{verb}>"
        verbs, listed = " or ".join(self._verbs), " ".join(items)
        return Step.refuse(self.text["bad tags"].format(verbs=verbs, items=listed, example=example))

    def _progress(self) -> float:
        if self._task == "compare":
            return float(rules.knows(self.state.known, *self.instance.pair) is not None)
        return _share_placed(self.state.sequence, self._now().target)

    def _now(self) -> "_Facts":
        """Return what follows from the present instance alone, worked out once per instance."""
        # Looked up by identity: both reset and restore exchange the instance, and hashing it would cost more.
        if self._facts is None or self._facts.instance is not self._instance:
            self._facts = _Facts.of(self._task, self.instance)
        return self._facts

    # ---- beyond Gymnasium ---------------------------------------------------------------------------------------

    def state_key(self) -> str:
        """Return the key described above."""
        sequence, compared, swapped, known, pending, _ = self.state
        _, _, _, _, fewest, most_compared, most_swapped, prefix = self._now()
        # Counts are named only as far as a future reward can tell them apart.
        if compared > most_compared:
            compared = most_compared
        if swapped > most_swapped:
            swapped = most_swapped
        key = f"{prefix} {sequence} {known} {compared} {swapped}/{fewest}"
        return f"{key} {pending}" if pending else key

    def legal(self) -> tuple[str, ...]:
        """Return the full operations and the final answers (tags), or the native actions admissible now (expanded)."""
        items = self._now().items
        if self._expanded:
            return _legal_expanded(self._verbs, items, self.state.pending)
        return _legal_tags(self._task, items, self.instance.pair)

    def free_text(self) -> bool:
        """Any text is a final answer, except in the middle of an operation."""
        return not self.state.pending

    def native(self) -> tuple[NativeAction, ...]:
        """Return two routing actions and five items; the items serve both operations."""
        return _NATIVE if self._expanded else ()

    def secrets(self) -> tuple[str, ...]:
        """Return the hidden order as a chain of relations, which is never said (task *order* tells its parts)."""
        return (" < ".join(self.instance.order),) if self._task == "sort" and len(self.instance.order) > 2 else ()

    def copy_state(self, state: State) -> State:
        """Return the state itself: it is immutable."""
        return state

    def oracle(self) -> tuple[str, ...]:
        """Return the plan that earns most from here, using only what has been told and compared.

        It earns exactly 1 from the start of every instance, and never asks for more comparisons than a decision tree
        of least depth.
        """
        state: State = self.state
        if not state.pending:
            plan = players.plan(self._task, self.instance, state)
        else:
            plan = players.finish_pending(self._task, self.instance, state)
        if not self._expanded:
            return tuple(plan)
        words = [word for action in plan for word in (action.split() if _VERB.match(action) else [action])]
        return tuple(words[len(state.pending.split()) :])


def _relations(rng: np.random.Generator, order: str) -> tuple[str, ...]:
    """Return all adjacent relations of an order and up to n - 2 others, shuffled."""
    pairs = [order[i] + order[j] for i in range(len(order)) for j in range(i + 2, len(order))]
    extra = int(rng.integers(len(order) - 1))
    told = [order[i : i + 2] for i in range(len(order) - 1)] + rng.permutation(pairs)[:extra].tolist()
    return tuple(rng.permutation(told).tolist())


def _says(answer: str) -> set[str]:
    """Return the relations an answer states, ``"AB"`` for A < B; only those in its last <answer> tag if it has one."""
    tagged = _ANSWER.findall(answer)
    found = _RELATION.findall(tagged[-1] if tagged else answer)
    return {first + second if sign == "<" else second + first for first, sign, second in found}


class _Facts(NamedTuple):
    """What follows from a task and an instance."""

    instance: Instance
    items: str
    """The letters in alphabetical order."""
    operations: Mapping[str, tuple[str, str, str]]
    target: str
    fewest: int
    most_compared: int
    most_swapped: int
    prefix: str

    @classmethod
    def of(cls, task: str, instance: Instance) -> "_Facts":
        n, items = len(instance.shown), "".join(sorted(instance.shown))
        fewest = rules.fewest_swaps(instance.shown, instance.target)
        most_compared = {"sort": rules.most_comparisons(n), "order": 0, "compare": 2}[task]
        most_swapped = 0 if task == "compare" else rules.most_swaps(n, fewest)
        prefix = f"{task} {'+' if instance.ascending else '-'} {instance.order} {instance.pair}".rstrip()
        return cls(
            instance, items, _operations(task, items), instance.target, fewest, most_compared, most_swapped, prefix
        )


@lru_cache(maxsize=1 << 14)
def _share_placed(sequence: str, target: str) -> float:
    return sum(map(str.__eq__, sequence, target)) / len(target)


@lru_cache(maxsize=128)
def _operations(task: str, items: str) -> Mapping[str, tuple[str, str, str]]:
    """Return the full operations of a task on these items, as they are written."""
    pairs = [(a, b) for a, b in _PAIRS if a in items and b in items]
    return MappingProxyType({f"{verb} {a} {b}": (verb, a, b) for verb in _VERBS[task] for a, b in pairs})


@lru_cache(maxsize=256)
def _legal_tags(task: str, items: str, pair: str) -> tuple[str, ...]:
    answers = (f"{pair[0]} < {pair[1]}", f"{pair[1]} < {pair[0]}") if pair else ("done",)
    return (*_operations(task, items), *answers)


@lru_cache(maxsize=256)
def _legal_expanded(verbs: tuple[str, ...], items: str, pending: str) -> tuple[str, ...]:
    return tuple(item for item in items if not pending.endswith(f" {item}")) if pending else verbs


@lru_cache(maxsize=8)
def _ranks(n: int) -> dict[str, int]:
    return {"".join(items): rank for rank, items in enumerate(permutations(LETTERS, n))}


@lru_cache(maxsize=1024)
def _scattered(name: str, pattern: str) -> tuple[int, ...]:
    """Return a fixed permutation of the namings of a pattern."""
    return tuple(stream("bucket", name, pattern).permutation(len(_ranks(len(pattern) - 1))).tolist())


WORLD = WorldSpec(
    id="sorting",
    env=Sorting,
    summary="Sort letters by hidden values with the fewest comparisons and swaps.",
    source="EARL / ExpA, arXiv 2510.07581",
)

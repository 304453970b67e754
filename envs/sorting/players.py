"""Scripted players of sorting, from wasteful to optimal. They know what the agent knows: what was shown and compared.

Each answers for any state, also one that somebody else's actions led to, and in both action formats.
"""

from typing import Any

import numpy as np

from peira.envs.core import Env
from peira.envs.sorting.rules import (
    LETTERS,
    Instance,
    State,
    best_question,
    exchange,
    fewest_comparisons,
    knows,
    learn,
    swaps_to,
)

__all__ = ["NETWORKS", "finish_pending", "naive", "network", "noisy_naive", "plan"]

NETWORKS = {
    2: ((0, 1),),
    3: ((0, 2), (0, 1), (1, 2)),
    4: ((0, 2), (1, 3), (0, 1), (2, 3), (1, 2)),
    5: ((0, 3), (1, 4), (0, 2), (1, 3), (0, 1), (2, 4), (1, 2), (3, 4), (2, 3)),
}
"""Comparator networks of least size by number of items (Knuth, TAOCP 3, 5.3.4)."""

_NOISE = 0.15


def naive(env: Env[Any], rng: np.random.Generator) -> str:
    """Bubble sort: passes over adjacent pairs, swapping what is out of order, until a whole pass swaps nothing."""
    del rng
    return _next_word(env, _bubble(env.params["task"], env.instance, env.state))


def noisy_naive(env: Env[Any], rng: np.random.Generator) -> str:
    """Bubble sort that sometimes repeats its last comparison, or drops what it was doing for a pass begun elsewhere."""
    instance, state = env.instance, env.state
    wanted = _bubble(env.params["task"], instance, state)
    verb = "swap" if env.params["task"] == "order" else "compare"
    where = int(rng.integers(len(state.sequence) - 1))
    first, second = state.sequence[where : where + 2]
    if rng.random() < 0.5 and state.log[-3:-2] == verb[0]:
        first, second = state.log[-2:]
    strays = rng.random() < _NOISE
    if state.pending:
        # One that strayed at an earlier word goes on straying; it takes a neighbour as the second item.
        strays = state.pending.startswith(verb) and (
            not wanted.startswith(state.pending) or (strays and " " not in state.pending)
        )
        if " " in state.pending:
            first = state.pending[-1]
            at = state.sequence.index(first)
            second = state.sequence[at + 1] if at + 1 < len(state.sequence) else state.sequence[at - 1]
    return _next_word(env, f"{verb} {first} {second}" if strays else wanted)


def network(env: Env[Any], rng: np.random.Generator) -> str:
    """Ask what a least comparator network asks of the first sequence, then make the fewest swaps."""
    del rng
    task, instance, state = env.params["task"], env.instance, env.state
    if task != "sort":
        return _next_word(env, plan(task, instance, state)[0])
    wires = list(instance.shown)
    asked = [set(state.log[at + 1 : at + 3]) for at in range(0, len(state.log), 3) if state.log[at] == "c"]
    for low, high in NETWORKS[len(wires)]:
        first, second = wires[low], wires[high]
        while asked and asked[0] != {first, second}:
            del asked[0]
        if not asked:
            return _next_word(env, f"compare {first} {second}")
        del asked[0]
        if instance.below(second, first):
            wires[low], wires[high] = second, first
    target = "".join(wires if instance.ascending else reversed(wires))
    swaps = swaps_to(state.sequence, target)
    return _next_word(env, f"swap {swaps[0][0]} {swaps[0][1]}" if swaps else "done")


def plan(task: str, instance: Instance, state: State) -> list[str]:
    """Return the full actions that earn most from a state without a pending operation, using only what is known.

    From the start of any instance they earn exactly 1.
    """
    if task == "compare":
        first, second = instance.pair[0], instance.pair[1]
        asking = [] if knows(state.known, first, second) is not None else [f"compare {first} {second}"]
        return [*asking, _answer(instance)]
    actions = []
    compared, known = state.compared, state.known
    if task == "sort":
        items = "".join(sorted(state.sequence))
        while question := best_question(items, known):
            first, second = question if instance.below(*question) else question[::-1]
            known = learn(known, first, second)
            actions.append("compare {} {}".format(*question))
            compared += 1
        # Luck can leave the order known after too few comparisons to count as work; asking again makes up for it.
        actions += [f"compare {items[0]} {items[1]}"] * (fewest_comparisons(len(items)) - compared)
    actions += [f"swap {first} {second}" for first, second in swaps_to(state.sequence, instance.target)]
    return [*actions, "done"]


def _answer(instance: Instance) -> str:
    first, second = instance.pair[0], instance.pair[1]
    return f"{first} < {second}" if instance.below(first, second) else f"{second} < {first}"


def _bubble(task: str, instance: Instance, state: State) -> str:
    """Return the naive player's next full action."""
    if task == "compare":
        first, second = instance.pair[0], instance.pair[1]
        # It asks both ways round before it believes the answer.
        for question in (first + second, second + first):
            if "c" + question not in state.log:
                return f"compare {question[0]} {question[1]}"
        return _answer(instance)
    pairs = [state.sequence[at : at + 2] for at in range(len(state.sequence) - 1)]
    if task == "order":
        wrong = [pair for pair in pairs if instance.below(pair[0], pair[1]) != instance.ascending]
        return f"swap {wrong[0][0]} {wrong[0][1]}" if wrong else "done"
    return _bubble_sort(instance, state.log, pairs)


def _bubble_sort(instance: Instance, log: str, pairs: list[str]) -> str:
    """Tell from the log's end how far the present pass has come, and continue it."""
    if log.endswith("".join("c" + pair for pair in pairs)) and all(
        instance.below(pair[0], pair[1]) == instance.ascending for pair in pairs
    ):
        return "done"
    verb, last = log[-3:-2], log[-2:]
    at = next((at for at, pair in enumerate(pairs) if set(pair) == set(last)), None)
    if at is None:
        at = -1
    elif verb == "c" and instance.below(pairs[at][0], pairs[at][1]) != instance.ascending:
        return f"swap {pairs[at][0]} {pairs[at][1]}"
    following = pairs[(at + 1) % len(pairs)]
    return f"compare {following[0]} {following[1]}"


def _next_word(env: Env[Any], action: str) -> str:
    """Return what the world's ``step`` gets next on the way to a full action."""
    if env.params["actions"] == "tags" or action not in _OPERATIONS:
        # A final answer cannot be given in the middle of an operation that somebody else began: end that first.
        return env.legal()[0] if env.state.pending else action
    begun = env.state.pending.split()
    words = action.split()
    return words[len(begun)] if words[: len(begun)] == begun else env.legal()[0]


_OPERATIONS = {f"{verb} {a} {b}" for verb in ("compare", "swap") for a in LETTERS for b in LETTERS if a != b}


def finish_pending(task: str, instance: Instance, state: State) -> list[str]:
    """Return the best way on for a state in which an operation has been begun: its missing words, then the plan."""
    verb, *chosen = state.pending.split()
    wanted = plan(task, instance, state._replace(pending=""))
    if wanted[0].startswith(state.pending + " "):
        return [wanted[0], *wanted[1:]]
    best: list[str] = []
    for first, second in ((a, b) for a in state.sequence for b in state.sequence if a != b):
        if chosen and first != chosen[0]:
            continue
        if verb == "swap":
            after = state._replace(sequence=exchange(state.sequence, first, second), pending="")
        else:
            low, high = (first, second) if instance.below(first, second) else (second, first)
            after = state._replace(compared=state.compared + 1, known=learn(state.known, low, high), pending="")
        actions = [f"{verb} {first} {second}", *plan(task, instance, after)]
        if not best or len(actions) < len(best):
            best = actions
    return best

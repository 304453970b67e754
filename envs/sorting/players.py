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

_NOISE = 0.2
"""Chance of another item than the one that was meant, at each of the two items of a comparison."""
_HASTE = 0.02
"""Chance to end instead of comparing once more."""


def naive(env: Env[Any], rng: np.random.Generator) -> str:
    """Bubble sort: passes over adjacent pairs, swapping what is out of order, until a whole pass swaps nothing."""
    del rng
    return _next_word(env, _bubble(env.params["task"], env.instance, env.state))


def noisy_naive(env: Env[Any], rng: np.random.Generator) -> str:
    """Bubble sort by somebody careless: compares other items than it meant to, and at times ends without checking.

    It leaves much to be found out by trial: that most of its comparisons tell nothing new, which ones tell most, and
    when it is safe to end.
    """
    state, task = env.state, env.params["task"]
    wanted = _bubble(task, env.instance, state)
    if task != "sort":
        return _next_word(env, wanted)
    verb, *meant = wanted.split()
    if not state.pending:
        hasty = verb == "compare" and rng.random() < _HASTE
        return "done" if hasty else _next_word(env, _strayed(state, verb, meant, rng) if meant else wanted)
    begun, *chosen = state.pending.split()
    if begun != verb or chosen != meant[: len(chosen)]:
        # What has been begun is not what was meant: any way on is as good as another.
        meant = [*chosen, "", ""]
    return _next_word(env, _strayed(state, begun, meant, rng, len(chosen)))


def _strayed(state: State, verb: str, meant: list[str], rng: np.random.Generator, chosen: int = 0) -> str:
    """Return the operation that is meant, or another one from its word ``chosen`` on; found inversions are swapped."""
    first, second = meant[:2]
    sequence = state.sequence
    if second and (verb == "swap" or rng.random() >= _NOISE):
        return f"{verb} {first} {second}"
    if not chosen:
        first = sequence[int(rng.integers(len(sequence) - 1))]
    at = sequence.index(first)
    others = sequence[at + 1 :] or sequence[:at][::-1]
    # Most often it has only lost its place and goes on from there with neighbours.
    pick = int(rng.integers(len(others))) if rng.random() < _NOISE else 0
    return f"{verb} {first} {others[pick]}"


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
    sequence = state.sequence
    if task == "sort":
        return _bubble_sort(instance, state.log, sequence)
    wrong = [pair for pair in _neighbours(sequence) if not instance.sorted(pair)]
    return f"swap {wrong[0][0]} {wrong[0][1]}" if wrong else "done"


def _bubble_sort(instance: Instance, log: str, sequence: str) -> str:
    """Tell from the log's end how far the present pass has come, and continue it."""
    pairs = _neighbours(sequence)
    if log.endswith("".join("c" + pair for pair in pairs)) and instance.sorted(sequence):
        return "done"
    verb, last = log[-3:-2], sorted(log[-2:], key=sequence.index)
    if verb == "c" and not instance.sorted("".join(last)):
        return f"swap {last[0]} {last[1]}"
    at = next((at for at, pair in enumerate(pairs) if [*pair] == last), -1)
    following = pairs[(at + 1) % len(pairs)]
    return f"compare {following[0]} {following[1]}"


def _neighbours(sequence: str) -> list[str]:
    return [sequence[at : at + 2] for at in range(len(sequence) - 1)]


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

"""The calculator world: a problem, a calculator, and an answer after ``####``.

Source: EARL / ExpA (arXiv 2510.07581), calculator benchmark. Reward 1 for a right answer, 0 for a wrong one.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np

from peira.envs.calculator import players
from peira.envs.calculator.expressions import EXECUTE, SYMBOLS, admissible, after
from peira.envs.calculator.problems import KINDS, LEVELS, Instance, draw, is_right, rounded
from peira.envs.calculator.words import WORDS
from peira.envs.core import BUCKETS, Env, Player
from peira.envs.seeding import seed_of
from peira.envs.spec import WorldSpec
from peira.envs.types import Step
from peira.tools.calculator import evaluate
from peira.tools.errors import ToolRefusal, unknown
from peira.tools.native import NativeAction

__all__ = ["WORLD", "Calculator", "State"]

TaskName = Literal["arithmetic", "countdown", "count", "mix"]
Actions = Literal["tags", "expanded"]

_VERB = "calculator"
_MARK = "####"
_ROUTING = (_VERB,)
_NATIVE = (NativeAction(_VERB, _VERB + " ", routing=True), *(NativeAction(symbol, symbol) for symbol in SYMBOLS))
_NOTHING: Mapping[str, str] = MappingProxyType({})


class State(NamedTuple):
    """Everything that changes during an episode. Immutable, so a snapshot is a reference."""

    typed: str | None = None
    """What stands in the calculator; ``None`` outside it (always so in the tags format)."""
    kind: int = 0
    """Kind of place at the end of ``typed``, see ``expressions``."""
    depth: int = 0
    """Open parentheses in ``typed``."""
    known: Mapping[str, str] = _NOTHING
    """What the calculator has printed, by expression."""
    facts: int = 0
    """Hash of ``known`` that does not depend on its order: the exclusive or of the hashes of its pairs."""
    end: str = ""
    """``won`` or ``lost`` after the answer."""


class Calculator(Env[Instance]):
    """Solve a problem with numbers, with a calculator at hand.

    In the *tags* format ``calculator EXPRESSION`` calculates (any expression of ``peira.tools.calculator``). In the
    *expanded* format ``calculator`` opens the calculator, 17 symbols type an expression under a mask that admits only
    what can still become one, and ``=`` executes and closes. In both, any other text that holds ``####`` is the final
    answer: what follows the last mark. Text without the mark is refused with a hint, until the turn limit.

    ``state_key`` names the problem, what has been printed so far (as a set: neither order nor repetitions), and what
    stands in the calculator.
    """

    name = "calculator"
    text: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "arithmetic": "Calculate {expression}. {tool} Answer: #### NUMBER",
            "countdown": "Make {target} out of {numbers}: use each exactly once, with + - * / ( ). {tool} "
            "Answer: #### EXPRESSION",
            "count": "How often does the digit {digit} occur in {number}? {tool} Answer: #### NUMBER",
            "tool tags": "Tool: <calculator>2*(3+4)</calculator>.",
            "tool expanded": "Tool: calculator.",
            "error": "Error: {reason}.",
            "no answer tags": "No answer found. Calculate with <calculator>2*(3+4)</calculator>, or answer after ####.",
            "no answer expanded": "No answer found. Choose calculator, or answer after ####.",
            "not legal": "Not possible here. Choose one of: {legal}",
            "right": "Correct.",
            "wrong": "Wrong.",
            "words": " ".join(WORDS),
        }
    )
    levels = LEVELS
    max_turns = 32
    verbs = (_VERB,)
    players: ClassVar[Mapping[str, Player]] = MappingProxyType({"naive": players.naive})

    def __init__(self, *, task: TaskName = "arithmetic", actions: Actions = "tags") -> None:
        """Open the world.

        Args:
            task: ``arithmetic``, ``countdown``, ``count``, or ``mix`` (each a third).
            actions: ``tags`` or ``expanded``; a turn of the latter is one symbol, so its limit is 16 times as high.

        Raises:
            UsageError: a value that is not among these.
        """
        for kind, given, allowed in (("task", task, TaskName), ("actions", actions, Actions)):
            if given not in get_args(allowed):
                raise unknown(f"{kind} of world 'calculator'", given, get_args(allowed))
        super().__init__(task=task, actions=actions)
        self._expanded = actions == "expanded"
        self._prefix: tuple[Instance | None, str] = (None, "")
        if self._expanded:
            self.limit = 16 * self.max_turns

    # ---- instances ----------------------------------------------------------------------------------------------

    def draw(self, rng: np.random.Generator, level: int, split: str) -> Instance:
        """Draw a problem; ``problems`` has the sizes."""
        task = self.params["task"]
        return draw(rng, KINDS[int(rng.integers(len(KINDS)))] if task == "mix" else task, level, split)

    @classmethod
    def bucket(cls, instance: Instance) -> int:
        """Return a bucket by the problem alone, so that no problem is in two splits in different wordings."""
        return seed_of("bucket", cls.name, *instance.content) % BUCKETS

    def begin(self, instance: Instance) -> str:
        """Ask."""
        self.state = State()
        return self.text[instance.kind].format(
            expression=instance.shown(instance.expression),
            numbers=", ".join(map(instance.shown, instance.numbers)),
            number=instance.shown(instance.numbers[0]) if instance.numbers else "",
            target=instance.target,
            digit=instance.target,
            tool=self.text[f"tool {self.params['actions']}"],
        )

    # ---- play ---------------------------------------------------------------------------------------------------

    def act(self, action: str) -> Step:
        """Type, calculate, or answer."""
        typed, kind, depth, known, facts, end = self.state
        if typed is not None:
            if action == EXECUTE and EXECUTE in admissible(kind, depth):
                return self._execute(typed)
            if action not in admissible(kind, depth):
                return Step.refuse(self.text["not legal"].format(legal=" ".join(admissible(kind, depth))))
            depth += (action == "(") - (action == ")")
            self.state = State(typed + action, after(kind, action), depth, known, facts, end)
            return Step.go_on("")
        if _MARK in action:
            return self._judge(action.rpartition(_MARK)[2])
        if self._expanded:
            if action != _VERB:
                return Step.refuse(self.text["no answer expanded"])
            self.state = State("", known=known, facts=facts)
            return Step.go_on("")
        verb, _, expression = action.partition(" ")
        return self._calculate(expression.strip()) if verb == _VERB else Step.refuse(self.text["no answer tags"])

    def _execute(self, typed: str) -> Step:
        printed = _calculate(typed)
        self._learn(printed)
        return Step.go_on(f"{printed.result}\n")

    def _calculate(self, expression: str) -> Step:
        printed = _calculate(expression)
        if not printed.understood:
            return Step.refuse(printed.result)
        self._learn(printed)
        return Step.go_on(printed.result)

    def _learn(self, printed: "_Printed") -> None:
        """Close the calculator and remember what it printed."""
        _, _, _, known, facts, _ = self.state
        if printed.expression not in known:
            known = {**known, printed.expression: printed.result}
            facts ^= printed.hash
        self.state = State(None, 0, 0, known, facts)

    def _judge(self, said: str) -> Step:
        right = is_right(self.instance, said)
        self.state = State(known=self.state.known, facts=self.state.facts, end="won" if right else "lost")
        return Step.win(self.text["right"]) if right else Step.lose(self.text["wrong"])

    # ---- beyond Gymnasium ---------------------------------------------------------------------------------------

    def state_key(self) -> str:
        """Return the key described above."""
        # Looked up by identity: both reset and restore exchange the instance, and hashing it would cost more.
        instance, prefix = self._prefix
        if instance is not self._instance:
            prefix = self.fingerprint(self._instance)
            self._prefix = self._instance, prefix
        typed, _, _, _, facts, end = self.state
        return f"{prefix} {facts:x} {end}" if typed is None else f"{prefix} {facts:x} {typed}<"

    def legal(self) -> tuple[str, ...]:
        """Return the admissible symbols or the routing action (expanded); in the tags format any text is an action."""
        if not self._expanded:
            return ()
        return _ROUTING if self.state.typed is None else admissible(self.state.kind, self.state.depth)

    def free_text(self) -> bool:
        """Any text may be said outside the calculator."""
        return self.state.typed is None

    def native(self) -> tuple[NativeAction, ...]:
        """Return the routing action and the calculator's 18."""
        return _NATIVE if self._expanded else ()

    def secrets(self) -> tuple[str, ...]:
        """Return the answer as it has to be given; its bare digits may well stand in the question or on the display."""
        return (f"{_MARK} {self.instance.answer}",)

    def copy_state(self, state: State) -> State:
        """Return the state itself: it is never changed in place."""
        return state

    def oracle(self) -> tuple[str, ...]:
        """Return a plan that calculates the whole expression, unless that has been done, and answers.

        One who can calculate in the head needs the last action only; from inside a calculation that leads elsewhere,
        that calculation is ended first.
        """
        return players.plan(self, players.direct_calculation(self.instance, self.state.known))


class _Printed(NamedTuple):
    """What the display shows for an expression."""

    expression: str
    """Without spaces."""
    result: str
    understood: bool
    hash: int


@lru_cache(maxsize=4096)
def _calculate(expression: str) -> _Printed:
    """Calculate; the members of a group ask for the same things over and over."""
    written = "".join(expression.split())
    try:
        result, understood = rounded(evaluate(expression)), True
    except ToolRefusal as refusal:
        result, understood = Calculator.text["error"].format(reason=refusal), False
    fact = f"{written}={result}".encode("utf-8", "replace")
    return _Printed(written, result, understood, int.from_bytes(blake2b(fact, digest_size=8).digest(), "big"))


WORLD = WorldSpec(
    id="calculator",
    env=Calculator,
    summary="Arithmetic, countdown and digit counting with a calculator at hand.",
    source="EARL / ExpA, arXiv 2510.07581: calculator benchmark",
)

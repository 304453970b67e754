"""The household world: ALFWorld's six tasks in houses without end, word for word what the real engine says.

A transcript::

    -= Welcome to TextWorld, ALFRED! =-

    You are in the middle of a room. Looking quickly around you, you see a bed 1, a desk 1, and a drawer 1.

    Your task is to: put a book in bed.
    go to desk 1                ->  You arrive at desk 1. On the desk 1, you see a pen 1, and a book 1.
    take book 1 from desk 1     ->  You pick up the book 1 from the desk 1.
    go to bed 1                 ->  You arrive at bed 1. On the bed 1, you see nothing.
    move book 1 to bed 1        ->  You move the book 1 to the bed 1.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal, Self, get_args

import numpy as np

from peira.envs.core import BUCKETS, Env, Player
from peira.envs.household import houses, native, planner, players, reader, rules, sentences
from peira.envs.household.instance import TASKS, Game, Instance, State
from peira.envs.seeding import digest
from peira.envs.spec import WorldSpec
from peira.envs.types import Step
from peira.tools.errors import UsageError, unknown
from peira.tools.native import NativeAction

__all__ = ["WORLD", "Household"]

TaskName = Literal["all", "place", "light", "clean", "heat", "cool", "two"]
Actions = Literal["tags", "expanded"]
Wording = Literal["real", "sane"]
Reading = Literal["exact", "lenient"]

_PUT = re.compile(r"put (.+) (?:in/on|in|on|to) (.+)")
_DECORATION = re.compile(r"^(?:>|action\s*:|\d+[.)]|[-*])\s*", re.IGNORECASE)
_QUOTES = "`\"'* "
_TRIMMED = _QUOTES + ".!"
_LONGEST_COMMAND = 5


class Household(Env[Instance]):
    """Find things, treat them, and bring them where they belong.

    ``state_key`` names the game and what is where, open, held, hot, cool, clean, sliced, switched on: whatever what is
    said or possible later depends on, and nothing of the way there.
    """

    name = "household"
    text = sentences.TEXT
    splits: ClassVar[Mapping[str, tuple[int, int]]] = MappingProxyType(
        {"train": (0, 60), "test": (60, 75), "pairs": (75, 84), "plans": (84, 92), "large": (92, BUCKETS)}
    )
    levels = range(1, len(houses.LEVELS) + 1)
    formats: ClassVar[tuple[str, ...]] = ("actions", "listed", "put", "wording", "reading")
    max_turns = 50
    verbs = tuple(verb.split(" ")[0] for verb in rules.VERBS)
    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"searcher": players.searcher, "careless": players.careless}
    )

    def __init__(
        self,
        *,
        task: TaskName = "all",
        actions: Actions = "tags",
        listed: bool = False,
        put: bool = False,
        wording: Wording = "real",
        reading: Reading = "exact",
        games: str = "",
    ) -> None:
        """Open the world.

        Args:
            task: one of the six task types, or ``all`` of them.
            actions: ``tags`` (whole commands) or ``expanded`` (verbs, classes and numbers are single actions; the turn
                limit is five times as high).
            listed: whether each observation ends with the admissible commands.
            put: whether ``put X in/on Y`` is understood as ``move X to Y``, as in older data.
            wording: ``real``, or ``sane`` where the real engine's text is plainly at fault.
            reading: ``exact``, or ``lenient``: ``> Go to shelf 1.`` and ``Action: go to shelf 1`` are understood.
            games: a game file of ALFWorld's, or a folder with such files, to play instead of generated games.

        Raises:
            UsageError: a value that is not among these, or no games there.
        """
        choices = (
            ("task", task, TaskName), ("actions", actions, Actions), ("wording", wording, Wording),
            ("reading", reading, Reading),
        )  # fmt: skip
        for kind, given, allowed in choices:
            if given not in get_args(allowed):
                raise unknown(f"{kind} of world 'household'", given, get_args(allowed))
        super().__init__(
            task=task, actions=actions, listed=listed, put=put, wording=wording, reading=reading, games=games
        )
        if games and not Path(games).exists():
            reader.files_in(Path(games))
        self._files: list[tuple[Path, str]] = []
        self._tasks = TASKS if task == "all" else (task,)
        self._expanded = actions == "expanded"
        self._listed, self._put, self._sane, self._lenient = listed, put, wording == "sane", reading == "lenient"
        self._known: Game | None = None
        self._prefix = ""
        self._listing: tuple[State | None, tuple[str, ...]] = (None, ())
        self._possible: tuple[State | None, tuple[str, ...]] = (None, ())
        self._keyed: tuple[State | None, str] = (None, "")
        self._inside: tuple[int, str] = (0, "0")
        if self._expanded:
            self.limit = _LONGEST_COMMAND * self.max_turns

    # ---- instances ----------------------------------------------------------------------------------------------

    def draw(self, rng: np.random.Generator, level: int, split: str) -> Instance:
        """Draw a house and a task (``houses`` has the sizes), or one of the files, whatever the level."""
        if self.params["games"]:
            return self._drawn_file(rng, split)
        return houses.draw(rng, houses.LEVELS[level - 1], split, self._tasks)

    def _drawn_file(self, rng: np.random.Generator, split: str) -> Instance:
        given = self.params["games"]
        self._files = self._files or reader.files_in(Path(given))
        files = [(path, told) for path, told in self._files if told in ("", split)]
        for at in rng.permutation(len(files)).tolist():
            game = _read(*files[at])
            self._check_names(game)
            if game.task in self._tasks and self.bucket(game) == self.splits[split][0]:
                return game
        raise UsageError(
            f"household: none of the {len(self._files)} games in {given!r} is of split {split!r} and of task "
            f"{self.params['task']!r}; folders named {', '.join(reader.FOLDERS)} say where games belong, others are "
            "dealt out by content"
        )

    def _check_names(self, game: Instance) -> None:
        """Refuse a game that the expanded format has no actions for."""
        if not self._expanded:
            return
        allowed = {action.name for action in native.NATIVE}
        for name in (*game.receptacles, *game.objects):
            if not set(name.split(" ")) <= allowed:
                raise UsageError(
                    f"household: {name!r} of a game file is no action of the expanded format; use actions=tags"
                )

    @classmethod
    def bucket(cls, instance: Instance) -> int:
        """Return the first bucket of the split that the content (or a game file's folder) belongs to."""
        told = instance.facts.split if instance.facts is not None else ""
        return cls.splits[told or houses.split_of(instance)][0]

    @staticmethod
    def fingerprint(instance: Instance) -> str:
        """Return the content hash of an instance."""
        facts = instance.facts
        parts = [getattr(instance, field.name) for field in fields(instance)[:-1]]
        return digest([*parts, None if facts is None else [getattr(facts, field.name) for field in fields(facts)]])

    def begin(self, instance: Instance) -> str:
        """Look around for the first time."""
        game = self._game()
        self.state = game.start
        return self._with_list(sentences.begin(game))

    # ---- play ---------------------------------------------------------------------------------------------------

    def act(self, action: str) -> Step:
        """Carry a command out; whatever is not admissible changes nothing."""
        if self._expanded and (self.state.pending or action in rules.VERBS):
            return self._choose(action)
        return self._carry_out(self._read(action))

    def _carry_out(self, command: str) -> Step:
        game, state = self._known, self.state
        if game is None or game.instance is not self._instance:
            game = self._game()
        words = rules.parse(game, command)
        if words is not None:
            verb, one, two = words
            after = rules.perform(game, state, verb, one, two)
            if after is not None:
                self.state = after
                said = sentences.tell(game, state, after, verb, one, two, self._sane)
                if (verb in game.deciding or game.solved) and rules.holds(game, after):
                    return Step.win(said)
                return Step.go_on(self._with_list(said) if self._listed else said)
        said = sentences.TEXT["nothing"]
        # A game file's goal may hold before anything has been done; the real engine looks after each command.
        return Step.win(said) if game.solved else Step.refuse(self._with_list(said))

    def _read(self, action: str) -> str:
        command = action.strip()
        if self._lenient:
            command = _DECORATION.sub("", command.strip(_QUOTES)).strip(_TRIMMED).lower()
        if self._put and command.startswith("put "):
            match = _PUT.fullmatch(command)
            if match:
                command = f"move {match[1]} to {match[2]}"
        return command

    def _with_list(self, said: str) -> str:
        if not self._listed:
            return said
        listed = ", ".join(command for command in self._commands() if command != "help")
        return said + sentences.TEXT["possible"].format(list=listed)

    def _choose(self, action: str) -> Step:
        """Take one decision of the expanded format."""
        state: State = self.state
        commands, chosen, possible = self._commands(), native.chosen_in(state.pending), self.legal()
        if action not in possible:
            return Step.refuse(sentences.TEXT["not legal"].format(list=", ".join(possible)))
        chosen = (*chosen, action)
        command = next((one for one in commands if native.split(one) == chosen), None)
        if command is None:
            self.state = state._replace(pending="|".join(chosen))
            self._listing = self.state, commands
            return Step.go_on(native.LINKS.get(chosen[0], "") if len(chosen) == 3 else "")
        self.state = state._replace(pending="")
        self._listing = self.state, commands
        step = self._carry_out(command)
        return step._replace(observation=f"\n{step.observation}\n")

    # ---- beyond Gymnasium ---------------------------------------------------------------------------------------

    def _game(self) -> Game:
        """Return what follows from the present instance alone, worked out once per instance."""
        # Looked up by identity: both reset and restore exchange the instance, and hashing it would cost more.
        game = self._known
        if game is None or game.instance is not self._instance:
            game = self._known = Game(self.instance)
            game.solved = rules.holds(game, game.start)
            self._prefix = ""
        return game

    def _commands(self) -> tuple[str, ...]:
        """Return the admissible commands of the present state, worked out once per state."""
        state, commands = self._listing
        if state is not self.state:
            game = self._known
            if game is None or game.instance is not self._instance:
                game = self._game()
            commands = rules.admissible(game, self.state)
            self._listing = self.state, commands
        return commands

    def state_key(self) -> str:
        """Return the key described above."""
        known, key = self._keyed
        if known is self.state:
            return key
        game = self._known
        if game is None or game.instance is not self._instance:
            game = self._game()
        if not self._prefix:
            self._prefix = self.fingerprint(game.instance)
        at, held, opened, inside, lies, left, hot, cool, clean, sliced, used, pending, _ = self.state
        if inside is not self._inside[0]:
            # A long number, and most steps move nothing.
            self._inside = inside, f"{inside:x}"
        key = f"{self._prefix} {at} {held} {opened:x} {self._inside[1]}"
        if hot or cool or clean or sliced or used or left:
            key = f"{key} {hot:x} {cool:x} {clean:x} {sliced:x} {used:x} {left:x}"
        if not game.regular:
            key = f"{key} at {lies:x}"
        if pending:
            key = f"{key} {pending}"
        self._keyed = self.state, key
        return key

    def legal(self) -> tuple[str, ...]:
        """Return the admissible commands as the real engine lists them, or the decisions possible now (expanded)."""
        if not self._expanded:
            return self._commands()
        state, possible = self._possible
        if state is not self.state:
            possible = native.follow(self._commands(), native.chosen_in(self.state.pending))
            self._possible = self.state, possible
        return possible

    def free_text(self) -> bool:
        """Any text may be said, except in the middle of a command made of decisions."""
        return not self.state.pending

    def native(self) -> tuple[NativeAction, ...]:
        """Return the verbs (they open a command), the classes and the numbers."""
        return native.NATIVE if self._expanded else ()

    def copy_state(self, state: State) -> State:
        """Return the state itself: it is immutable."""
        return state

    def fork(self) -> Self:
        """Return an independent world in exactly this state; what follows from the instance is shared."""
        twin = super().fork()
        twin._known, twin._prefix = self._known, self._prefix
        return twin

    def oracle(self) -> tuple[str, ...]:
        """Return a plan of the fewest commands from the present state.

        Raises:
            UsageError: the goal cannot be reached any more (possible in games read from files only).
        """
        game, state = self._game(), self.state
        if not self._expanded:
            return _planned(game, state)
        chosen = native.chosen_in(state.pending)
        commands = _planned(game, state)
        if commands and chosen and native.split(commands[0])[: len(chosen)] != chosen:
            # Somebody has begun another command: end it in the best way, then go on.
            begun = [one for one in self._commands() if native.split(one)[: len(chosen)] == chosen]
            ways = [(one, *_planned(game, _after(game, state, one))) for one in begun]
            commands = min(ways, key=len)
        return tuple(word for command in commands for word in native.split(command))[len(chosen) :]


_read = lru_cache(maxsize=256)(reader.read_game)


def _after(game: Game, state: State, command: str) -> State:
    words = rules.parse(game, command)
    after = None if words is None else rules.perform(game, state, *words)
    assert after is not None
    return after


def _planned(game: Game, state: State) -> tuple[str, ...]:
    commands = planner.plan(game, state)
    if commands is None:
        raise UsageError(f"household: from here the goal {game.instance.goal!r} cannot be reached any more")
    return commands


WORLD = WorldSpec(
    id="household",
    env=Household,
    summary="ALFWorld's six household tasks in generated houses, word for word.",
    source="ALFWorld, arXiv 2010.03768",
)

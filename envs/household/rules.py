"""The rules: which commands are admissible, what they change, when the goal holds.

Admissible is what the real engine lists: every applicable action once, in alphabetical order. Its verbs come in that
order, so each group is sorted by itself and most of a list is the ready-made ``go to`` part.
"""

from peira.envs.household.instance import Game, State, bits

__all__ = ["APPLIANCES", "VERBS", "admissible", "holds", "parse", "perform"]

VERBS = (
    *("go to", "open", "close", "take", "move", "examine", "use", "heat", "clean", "cool", "slice"),
    *("look", "inventory", "help"),
)
"""Every verb of the text interface."""
APPLIANCES = {"clean": "cleanable", "cool": "coolable", "heat": "heatable"}
"""Verbs that need an appliance, and the trait that the held object needs."""

_LINKS = {"take": " from ", "move": " to ", "heat": " with ", "clean": " with ", "cool": " with ", "slice": " with "}
_BARE = frozenset({"look", "inventory", "help"})
_new = tuple.__new__


# ---- what may be said -------------------------------------------------------------------------------------------


def admissible(game: Game, state: State) -> tuple[str, ...]:
    """Return the admissible commands in alphabetical order."""
    return _holding(game, state) if state.held >= 0 else _empty_handed(game, state)


def _empty_handed(game: Game, state: State) -> tuple[str, ...]:
    at, _, opened, inside = state[:4]
    n, row, names, rooms, openable = game.n, game.row, game.names, game.instance.receptacles, game.openable
    close: list[str] = []
    examine: list[str] = []
    opens: list[str] = []
    takes: list[str] = []
    uses: list[str] = []
    for r in game.here[at]:
        room = rooms[r]
        examine.append(f"examine {room}")
        there = inside >> (r * n) & row
        if there & game.lamps:
            uses += [f"use {names[o]}" for o in bits(there & game.lamps)]
        if openable >> r & 1:
            if not opened >> r & 1:
                opens.append(f"open {room}")
                continue
            close.append(f"close {room}")
        there &= game.movable
        while there:
            low = there & -there
            there ^= low
            takes.append(f"take {names[low.bit_length() - 1]} from {room}")
    if len(takes) > 1:
        takes.sort()
    if len(examine) > 1:
        for group in (close, examine, opens):
            group.sort()
    if uses:
        uses = sorted(set(uses))
    return (*close, *examine, *game.goes(at), "help", "inventory", "look", *opens, *takes, *uses)


def _holding(game: Game, state: State) -> tuple[str, ...]:
    at, held, opened, inside, lies = state[:5]
    names, rooms, openable, here = game.names, game.instance.receptacles, game.openable, game.here[at]
    name, n = names[held], game.n
    close: list[str] = []
    examine = [f"examine {name}"]
    opens: list[str] = []
    moves: list[str] = []
    rest: list[str] = []
    for r in here:
        room = rooms[r]
        examine.append(f"examine {room}")
        if there := inside >> (r * n) & game.lamps:
            rest += [f"use {names[o]}" for o in bits(there)]
        if openable >> r & 1:
            if not opened >> r & 1:
                opens.append(f"open {room}")
                continue
            close.append(f"close {room}")
        if game.accepts(r) >> held & 1:
            moves.append(f"move {name} to {room}")
    examine.sort()
    if game.knives >> held & 1:
        rest += [f"slice {names[o]} with {name}" for o in bits(lies >> (at * n) & game.traits["sliceable"])]
    if rest:
        rest = sorted(set(rest))
    if len(here) > 1:
        for group in (close, opens, moves):
            group.sort()
    if not game.serving >> at & 1:
        return (*close, *examine, *game.goes(at), "help", "inventory", "look", *moves, *opens, *rest)
    cleans, cools, heats = (_with(game, held, here, verb) for verb in ("clean", "cool", "heat"))
    return (
        *cleans, *close, *cools, *examine, *game.goes(at), *heats, "help", "inventory", "look", *moves, *opens, *rest,
    )  # fmt: skip


def _with(game: Game, held: int, here: tuple[int, ...], verb: str) -> list[str]:
    trait = APPLIANCES[verb]
    if not game.traits[trait] >> held & 1:
        return []
    rooms = [game.instance.receptacles[r] for r in here if game.role[trait] >> r & 1]
    return sorted(f"{verb} {game.names[held]} with {room}" for room in rooms)


def parse(game: Game, command: str) -> tuple[str, int, int] | None:
    """Return (verb, thing, second thing) as places in the game's lists; ``None`` when the words name nothing.

    What *examine* looks at is the second thing when it is an object.
    """
    verb, _, rest = command.partition(" ")
    if not rest:
        return (verb, -1, -1) if command in _BARE else None
    if verb == "go":
        r = game.receptacles.get(rest[3:], -1)
        return (verb, r, -1) if r >= 0 and rest.startswith("to ") else None
    if verb == "open" or verb == "close":
        r = game.receptacles.get(rest, -1)
        return (verb, r, -1) if r >= 0 else None
    if verb == "examine":
        r, o = game.receptacles.get(rest, -1), game.objects.get(rest, -1)
        return (verb, r, o) if r >= 0 or o >= 0 else None
    if verb == "use":
        o = game.objects.get(rest, -1)
        return (verb, o, -1) if o >= 0 else None
    link = _LINKS.get(verb)
    if link is None:
        return None
    first, _, second = rest.partition(link)
    one = game.objects.get(first, -1)
    two = (game.objects if verb == "slice" else game.receptacles).get(second, -1)
    return (verb, one, two) if one >= 0 and two >= 0 else None


# ---- what it does -----------------------------------------------------------------------------------------------


def perform(game: Game, state: State, verb: str, one: int, two: int) -> State | None:
    """Return the state after a command, or ``None`` when it is not admissible."""
    if verb == "go":
        return None if game.spots[one] == state.at else _gone(game, state, one)
    if verb == "take":
        return _taken(game, state, one, two)
    if verb == "move":
        return _moved(game, state, one, two)
    if verb == "open" or verb == "close":
        is_open = state.opened >> one & 1
        if game.spots[one] != state.at or not game.openable >> one & 1 or is_open != (verb == "close"):
            return None
        seen = state.seen | 1 << one
        return state._replace(opened=state.opened ^ 1 << one, seen=seen)
    if verb == "examine":
        here = one >= 0 and game.spots[one] == state.at
        return state if here or (two >= 0 and two == state.held) else None
    if verb in _BARE:
        return state
    if verb == "use":
        here = any(state.inside >> (r * game.n + one) & 1 for r in game.here[state.at])
        return state._replace(used=state.used | 1 << one) if here and game.lamps >> one & 1 else None
    if verb == "slice":
        return _sliced(game, state, one, two)
    return _treated(game, state, verb, one, two)


def _gone(game: Game, state: State, r: int) -> State:
    _, held, opened, inside, lies, left, hot, cool, clean, sliced, used, pending, seen = state
    if not game.openable >> r & 1 or opened >> r & 1:
        seen |= 1 << r
    return _new(State, (game.spots[r], held, opened, inside, lies, left, hot, cool, clean, sliced, used, pending, seen))


def _shut(game: Game, state: State, r: int) -> bool:
    return bool(game.openable >> r & 1 and not state.opened >> r & 1)


def _taken(game: Game, state: State, o: int, r: int) -> State | None:
    at, held, opened, inside, lies, left, hot, cool, clean, sliced, used, pending, seen = state
    n = game.n
    here = 1 << (r * n + o)
    if held >= 0 or game.spots[r] != at or not inside & here or not game.movable >> o & 1 or _shut(game, state, r):
        return None
    if game.shared >> r & 1:
        left |= 1 << (o * len(game.spots) + r)
    lies &= ~(1 << (at * n + o))
    return _new(State, (at, o, opened, inside ^ here, lies, left, hot, cool, clean, sliced, used, pending, seen))


def _moved(game: Game, state: State, o: int, r: int) -> State | None:
    at, held, opened, inside, lies, left, hot, cool, clean, sliced, used, pending, seen = state
    if held != o or game.spots[r] != at or not game.accepts(r) >> o & 1 or _shut(game, state, r):
        return None
    n = game.n
    inside |= 1 << (r * n + o)
    lies |= 1 << (at * n + o)
    if left:
        left &= ~(1 << (o * len(game.spots) + r))
    return _new(State, (at, -1, opened, inside, lies, left, hot, cool, clean, sliced, used, pending, seen))


def _sliced(game: Game, state: State, o: int, knife: int) -> State | None:
    if state.held != knife or not game.knives >> knife & 1 or not game.traits["sliceable"] >> o & 1:
        return None
    if not state.lies >> (state.at * game.n + o) & 1:
        return None
    return state._replace(sliced=state.sliced | 1 << o)


def _treated(game: Game, state: State, verb: str, o: int, r: int) -> State | None:
    trait = APPLIANCES[verb]
    if state.held != o or game.spots[r] != state.at:
        return None
    if not game.traits[trait] >> o & 1 or not game.role[trait] >> r & 1:
        return None
    bit = 1 << o
    if verb == "clean":
        return state._replace(clean=state.clean | bit)
    if verb == "heat":
        return state._replace(hot=state.hot | bit, cool=state.cool & ~bit)
    return state._replace(cool=state.cool | bit, hot=state.hot & ~bit)


# ---- when it is done --------------------------------------------------------------------------------------------


def holds(game: Game, state: State) -> bool:
    """Return whether the goal holds."""
    task, wanted = game.instance.task, game.goal_target
    if task == "light":
        if state.held < 0 or not wanted >> state.held & 1:
            return False
        lit = game.goal_place & game.lamps & state.used
        return any(game.contents(state, r) & lit for r in game.here[state.at])
    if task == "heat":
        wanted &= state.hot & game.traits["heatable"]
    elif task == "cool":
        wanted &= state.cool & game.traits["coolable"]
    elif task == "clean":
        wanted &= state.clean & game.traits["cleanable"]
    if not wanted:
        return False
    least = 2 if task == "two" else 1
    return any((game.contents(state, r) & wanted).bit_count() >= least for r in bits(game.goal_place))

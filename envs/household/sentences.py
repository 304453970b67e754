"""What the world says: the real engine's sentences, and the sane ones where its own are plainly at fault.

Items are listed in the order of the hidden ids, each with "a", joined by ", " with ", and " before the last, also when
there are only two.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from peira.envs.household.instance import Game, State, bits

__all__ = ["TEXT", "begin", "goal_of", "tell"]

TEXT: Mapping[str, str] = MappingProxyType(
    {
        "banner": "-= Welcome to TextWorld, ALFRED! =-",
        "room": "You are in the middle of a room. Looking quickly around you, you see {list}.",
        "task": "Your task is to: {goal}.",
        "facing": "You are facing the {list}. Next to it, you see {floor}.",
        "carrying": "You are carrying: {list}.",
        "empty": "You are not carrying anything.",
        "go": "You arrive at {r}. {listing}",
        "is open": "The {r} is open. In it, you see {list}.",
        "is closed": "The {r} is closed.",
        "on": "On the {r}, you see {list}.",
        "open": "You open the {r}. {listing}",
        "close": "You close the {r}.",
        "take": "You pick up the {o} from the {r}.",
        "move": "You move the {o} to the {r}.",
        "heat": "You heat the {o} using the {r}.",
        "cool": "You cool the {o} using the {r}.",
        "clean": "You clean the {o} using the {r}.",
        "use": "You turn on the {o}.",
        "use sane": "The {o} is already on.",
        "slice": "You sliced the {o} with the {r}.",
        "container": "This is a normal {o}. In it, you see {list}.",
        "state": "This is a {state} {o}.",
        "is on": "This {o} is on.",
        "plain": "There's nothing special about {o}.",
        "nothing": "Nothing happens.",
        "none": "nothing",
        "hot": "hot",
        "cooled": "cool",
        "cleaned": "clean",
        "sliced": "sliced",
        "cold": "cold",
        "and": "{first} and {second}",
        "help": "Available commands:\n"
        "  look:                             look around your current location\n"
        "  inventory:                        check your current inventory\n"
        "  go to (receptacle):               move to a receptacle\n"
        "  open (receptacle):                open a receptacle\n"
        "  close (receptacle):               close a receptacle\n"
        "  take (object) from (receptacle):  take an object from a receptacle\n"
        "  move (object) to (receptacle):  place an object in or on a receptacle\n"
        "  examine (something):              examine a receptacle or an object\n"
        "  use (object):                     use an object\n"
        "  heat (object) with (receptacle):  heat an object using a receptacle\n"
        "  clean (object) with (receptacle): clean an object using a receptacle\n"
        "  cool (object) with (receptacle):  cool an object using a receptacle\n"
        "  slice (object) with (object):     slice an object using a sharp object\n",
        "goal place 0": "put a {target} in {place}",
        "goal place 1": "put some {target} on {place}",
        "goal light 0": "look at {target} under the {place}",
        "goal light 1": "examine the {target} with the {place}",
        "goal clean 0": "put a clean {target} in {place}",
        "goal clean 1": "clean some {target} and put it in {place}",
        "goal heat 0": "put a hot {target} in {place}",
        "goal heat 1": "heat some {target} and put it in {place}",
        "goal cool 0": "put a cool {target} in {place}",
        "goal cool 1": "cool some {target} and put it in {place}",
        "goal two 0": "put two {target} in {place}",
        "goal two 1": "find two {target} and put them in {place}",
        "possible": "\nPossible actions: {list}",
        "not legal": " (not possible here; choose one of: {list})",
    }
)
"""Every sentence, as templates."""

_SAY = {key: template.format for key, template in TEXT.items()}
_SHOWN = 128
"""Sentences about contents that a game keeps."""


def goal_of(task: str, form: int, target: str, place: str) -> str:
    """Return a goal as it is told, in one of its two forms."""
    return TEXT[f"goal {task} {form}"].format(target=target, place=place)


def listed(names: Sequence[str], article: str = "a ") -> str:
    """Return a list of names in words."""
    if not names:
        return TEXT["none"]
    if len(names) == 1:
        return article + names[0]
    return article + f", {article}".join(names[:-1]) + f", and {article}" + names[-1]


def begin(game: Game) -> str:
    """Return the first observation: what stands around (or before the agent, if anything does), and the task."""
    here, rooms = game.here[game.start.at], game.instance.receptacles
    if here:
        seen = _SAY["facing"](list=listed([rooms[r] for r in here], ""), floor=TEXT["none"])
    else:
        seen = _SAY["room"](list=listed(rooms))
    return f"{TEXT['banner']}\n\n{seen}\n\n{_SAY['task'](goal=game.instance.goal)}"


def contents(game: Game, state: State, r: int) -> str:
    """Return what one sees in or on a receptacle."""
    door = game.openable >> r & 1
    if door and not state.opened >> r & 1:
        return _SAY["is closed"](r=game.instance.receptacles[r])
    there = state.inside >> (r * game.n) & game.row
    key = there * len(game.spots) + r
    shown = game.shown.get(key)
    if shown is None:
        names = [game.names[o] for o in bits(there)]
        shown = _SAY["is open" if door else "on"](r=game.instance.receptacles[r], list=listed(names))
        if len(game.shown) >= _SHOWN:
            game.shown.clear()
        game.shown[key] = shown
    return shown


def tell(game: Game, before: State, state: State, verb: str, one: int, two: int, sane: bool) -> str:
    """Return what is said after a command that has been carried out."""
    rooms, names = game.instance.receptacles, game.names
    if verb == "go" or verb == "open":
        return _SAY[verb](r=rooms[one], listing=contents(game, state, one))
    if verb == "close":
        return _SAY[verb](r=rooms[one])
    if verb == "examine":
        return contents(game, state, one) if one >= 0 else _object(game, state, two, sane)
    if verb == "look":
        return _look(game, state, sane)
    if verb == "inventory":
        return TEXT["empty"] if state.held < 0 else _SAY["carrying"](list=f"a {names[state.held]}")
    if verb == "use":
        return _SAY["use sane" if sane and before.used >> one & 1 else "use"](o=names[one])
    if verb == "help":
        return TEXT["help"]
    return _SAY[verb](o=names[one], r=names[two] if verb == "slice" else rooms[two])


def _look(game: Game, state: State, sane: bool) -> str:
    here = game.here[state.at]
    rooms = game.instance.receptacles
    if not here:
        # The real engine forgets the list after its first sentence.
        return _SAY["room"](list=listed(rooms) if sane else TEXT["none"])
    floor = TEXT["none"] if sane or not state.left else listed(_fallen(game, state, here))
    return _SAY["facing"](list=listed([rooms[r] for r in here], ""), floor=floor)


def _fallen(game: Game, state: State, here: tuple[int, ...]) -> list[str]:
    """Return what the real engine says lies next to it: taken from one receptacle here, moved to another."""
    lying = state.lies >> (state.at * game.n) & game.row
    count = len(game.spots)
    return [game.names[o] for o in bits(lying) for r in here if state.left >> (o * count + r) & 1]


def _object(game: Game, state: State, o: int, sane: bool) -> str:
    name = game.names[o]
    container = game.container >> o & 1
    words = _condition(state, o, one_word=not sane)
    if container and not (sane and words):
        return _SAY["container"](o=name, list=listed([game.names[inner] for inner in game.nested(o)]))
    if words:
        return _SAY["state"](state=words, o=name)
    if game.lamps >> o & 1 and state.used >> o & 1:
        return _SAY["is on"](o=name)
    return _SAY["plain"](o=name)


def _condition(state: State, o: int, *, one_word: bool) -> str:
    """Return ``hot and clean sliced`` or less. Alone, the real engine says cold for cool."""
    warm = TEXT["hot"] if state.hot >> o & 1 else TEXT["cooled"] if state.cool >> o & 1 else ""
    clean, sliced = state.clean >> o & 1, state.sliced >> o & 1
    if warm == TEXT["cooled"] and not clean and not sliced and one_word:
        warm = TEXT["cold"]
    words = TEXT["and"].format(first=warm, second=TEXT["cleaned"]) if warm and clean else warm
    if clean and not warm:
        words = TEXT["cleaned"]
    return f"{words} {TEXT['sliced']}".strip() if sliced else words

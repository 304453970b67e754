"""The household oracle against exhaustive search: in every state of small houses its plan is as short as can be."""

import time
from collections import defaultdict, deque

import pytest

from peira.envs.household import Game, Instance, houses, planner, rules
from peira.envs.household import vocabulary as words
from peira.envs.household.sentences import goal_of
from peira.envs.seeding import rng
from peira.envs.spec import make
from peira.tools.errors import UsageError

_IDLE = ("look", "inventory", "help", "examine")

HOUSES = {
    "heat, everything behind doors": (
        "heat", "apple", "fridge", ("countertop 1", "fridge 1", "microwave 1"), (0, 1, 2), ("apple 1", "mug 1"), (2, 1),
    ),
    "heat, two apples": (
        "heat", "apple", "countertop", ("countertop 1", "fridge 1", "microwave 1"), (0, 1, 2), ("apple 2", "apple 1"),
        (0, 1),
    ),
    "cool, appliance beside the place": (
        "cool", "mug", "countertop", ("countertop 1", "fridge 1", "microwave 1"), (0, 0, 1), ("mug 1", "pan 1"), (2, 1),
    ),
    "clean, two sinks": (
        "clean", "fork", "drawer", ("drawer 2", "drawer 1", "sinkbasin 2", "sinkbasin 1"), (0, 0, 1, 2),
        ("fork 1", "knife 1"), (2, 0),
    ),
    "place, two drawers at one spot": (
        "place", "pen", "drawer", ("desk 1", "drawer 2", "drawer 1"), (0, 1, 1), ("pen 2", "pen 1", "watch 1"),
        (0, 0, 1),
    ),
    "place, the hand is full of what only one place takes": (
        "place", "mug", "coffeemachine", ("coffeemachine 1", "countertop 1", "garbagecan 1"), (0, 1, 2),
        ("egg 1", "mug 1"), (2, 1),
    ),
    "two, three of them": (
        "two", "cd", "drawer", ("desk 1", "drawer 2", "drawer 1"), (0, 1, 2), ("cd 3", "cd 2", "cd 1"), (0, 1, 2),
    ),
    "two, from behind doors": (
        "two", "cloth", "cabinet", ("cabinet 1", "drawer 1", "shelf 1"), (0, 1, 1), ("cloth 2", "cloth 1"), (1, 1),
    ),
    "light, the lamp beside the bed": (
        "light", "book", "desklamp", ("bed 1", "desk 1", "drawer 1"), (0, 0, 1), ("book 1", "desklamp 1", "pen 1"),
        (2, 1, 1),
    ),
    "light, two lamps": (
        "light", "cd", "floorlamp", ("desk 1", "dresser 1", "safe 1"), (0, 1, 2),
        ("cd 1", "floorlamp 2", "floorlamp 1"), (2, 0, 1),
    ),
}  # fmt: skip


def built(task, target, place, receptacles, spots, objects, homes):
    return Instance(task, goal_of(task, 0, target, place), target, place, receptacles, spots, objects, homes)


def moves(game, state):
    for command in rules.admissible(game, state):
        if not command.startswith(_IDLE):
            after = rules.perform(game, state, *rules.parse(game, command))
            yield command, after._replace(seen=0, left=0)


def distances(game):
    """Return the least number of commands to the goal for every state that can be reached."""
    start = game.start
    before, order, queue = defaultdict(list), {start}, deque([start])
    while queue:
        state = queue.popleft()
        if rules.holds(game, state):
            continue
        for _, after in moves(game, state):
            before[after].append(state)
            if after not in order:
                order.add(after)
                queue.append(after)
    far = {state: 0 for state in order if rules.holds(game, state)}
    queue = deque(far)
    while queue:
        state = queue.popleft()
        for earlier in before[state]:
            if earlier not in far:
                far[earlier] = far[state] + 1
                queue.append(earlier)
    return order, far


def assert_shortest(game, most=4_000):
    """Compare the oracle with the search in every state, or in evenly chosen ones when there are very many."""
    order, far = distances(game)
    assert len(far) > 10
    states = sorted(order)
    for state in states[:: max(1, len(states) // most)]:
        found = planner.plan(game, state)
        assert found is not None, state
        assert len(found) == far[state], (state, found)
        for command in found:
            state = rules.perform(game, state, *rules.parse(game, command))
            assert state is not None, command
        assert rules.holds(game, state)


@pytest.mark.parametrize("name", HOUSES)
def test_shortest_from_every_state_of_a_small_house(name):
    assert_shortest(Game(built(*HOUSES[name])), most=1_500)


def random_house(number):
    """Draw a house of three or four receptacles and two or three objects, doors and shared spots as they come."""
    chance = rng("small house", number)
    task = ("place", "light", "clean", "heat", "cool", "two")[number % 6]
    need = {"clean": ["sinkbasin"], "heat": ["microwave"], "cool": ["fridge"], "light": ["desk"]}.get(task, [])
    able = {"clean": words.CLEANABLE, "heat": words.HEATABLE, "cool": words.COOLABLE}.get(
        task, frozenset(words.OBJECTS)
    )
    kinds = [*need, *chance.choice(["countertop", "cabinet", "drawer", "fridge", "shelf", "garbagecan"], 3).tolist()]
    place = "desklamp" if task == "light" else kinds[-1]
    kinds.sort(key=lambda kind: f"{kind.removesuffix('basin')}_")
    homes_of = {o: [r for r, kind in enumerate(kinds) if o in words.ACCEPTS[kind]] for o in words.OBJECTS}
    pool = sorted(o for o in able - words.LAMPS if homes_of[o] and (task == "light" or o in words.ACCEPTS[place]))
    if not pool:
        return None
    target = pool[int(chance.integers(len(pool)))]
    junk = sorted(o for o in words.OBJECTS if o != target and homes_of[o] and o not in words.LAMPS)
    things = sorted([target] * (2 if task == "two" else 1) + [junk[int(chance.integers(len(junk)))]])
    if task == "light":
        things = sorted([*things, "desklamp"])
    left = {kind: kinds.count(kind) for kind in kinds}
    rooms, objects, homes, spots = [], [], [], []
    for kind in kinds:
        rooms.append(f"{kind} {left[kind]}")
        left[kind] -= 1
        spots.append(spots[-1] if spots and chance.random() < 0.3 else spots[-1] + 1 if spots else 0)
    left = {kind: things.count(kind) for kind in things}
    for kind in things:
        objects.append(f"{kind} {left[kind]}")
        left[kind] -= 1
        options = homes_of[kind] or [kinds.index("desk")]
        homes.append(options[int(chance.integers(len(options)))])
    return built(task, target, place, tuple(rooms), tuple(spots), tuple(objects), tuple(homes))


def test_shortest_from_states_of_random_small_houses():
    checked = 0
    for number in range(36):
        instance = random_house(number)
        game = instance and Game(instance)
        if game and not rules.holds(game, game.start):
            assert_shortest(game, most=150)
            checked += 1
    assert checked >= 20


def test_plans_stay_valid_and_short_of_any_detour_in_full_houses():
    """After any step the plan is at most one longer than before plus what the step itself undid: never worse than
    going back, and following it takes exactly as many steps as it says."""
    env = make("household", max_turns=10_000)
    for seed in range(18):
        chance = rng("full", seed)
        env.reset(seed=seed, options={"level": 1 + seed % 6})
        for _ in range(25):
            before = len(env.oracle())
            legal = env.legal()
            command = legal[int(chance.integers(len(legal)))]
            if env.fork().step(command)[2]:
                continue
            env.step(command)
            assert before - 1 <= len(env.oracle())
        for remaining in range(len(env.oracle()), 0, -1):
            assert len(env.oracle()) == remaining
            env.step(env.oracle()[0])
        assert env.oracle() == ()


def test_no_plan_is_an_error_that_says_why():
    instance = Instance(
        "place", "put a mug in coffeemachine", "mug", "coffeemachine", ("coffeemachine 1", "countertop 1"), (0, 1),
        ("egg 1",), (1,),
    )  # fmt: skip
    env = make("household")
    env.reset(seed=0, options={"instance": instance})
    with pytest.raises(UsageError, match="put a mug in coffeemachine"):
        env.oracle()


def test_a_plan_takes_less_than_five_milliseconds():
    """Processor time, the median of many, at the size of ALFWorld's own games and in the largest houses."""
    env = make("household")
    for split, level in (("train", 4), ("large", len(houses.LEVELS))):
        spent = []
        for seed in range(20):
            env.reset(seed=seed, options={"level": level, "split": split})
            begun = time.process_time()
            env.oracle()
            spent.append(time.process_time() - begun)
        assert sorted(spent)[len(spent) // 2] < 0.005

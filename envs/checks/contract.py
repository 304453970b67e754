"""Checks of the form: what a world says is what the contract says it says."""

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from gymnasium.utils.env_checker import check_env

from peira.envs.checks.lab import SEEDS, Bench, Check, Finding, Row
from peira.envs.core import Env
from peira.envs.seeding import canonical, rng
from peira.tools.errors import UsageError

__all__ = ["CHECKS", "GARBAGE"]

GARBAGE = (
    "",
    " ",
    "\n\n",
    "\x00\x07",
    "café 🚪 漢字",
    "\ud800",
    "None",
    "null",
    "-1",
    "1e999",
    "{}",
    "[]",
    '{"name": "no_such_tool", "arguments": {}}',
    '{"name": ',
    "<answer>",
    "<|im_end|>",
    "%s {0} {x} ${y} \\1",
    "(" * 500,
    "9" * 5_000,
    "no such action " * 700,
)
"""Texts a model may well produce and no world may break on."""

_INFO_KEYS = frozenset(
    {"success", "valid", "state_key", "reward_parts", "progress", "legal", "free_text", "end", "turn"}
)


def registration(bench: Bench) -> Iterator[Finding]:
    """The spec and the class agree, and parameters are plain keyword values that no two objects share."""
    spec, env = bench.spec, bench.spec.env
    if getattr(env, "name", None) != spec.id:
        yield Finding(
            "registration",
            f"the spec's id is {spec.id!r}, the class's name {getattr(env, 'name', None)!r}",
            "make them equal",
        )
    if not spec.summary:
        yield Finding("registration", "the spec has no summary", "say in one line what the world is")
    # A class without a constructor of its own has no parameters; the base's **params is not one.
    own = env.__init__ is not Env.__init__
    for parameter in inspect.signature(env).parameters.values() if own else ():
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            yield Finding(
                "registration",
                f"parameter {parameter.name!r} is not keyword-only with a default",
                "write `*, name=default`",
            )
        elif isinstance(parameter.default, (list, dict, set)):
            yield Finding(
                "registration",
                f"parameter {parameter.name!r} has a mutable default, which all objects would share",
                "use a tuple or None",
            )
    if not env.text:
        yield Finding(
            "registration",
            "the class attribute `text` is empty, so a change of wording would go unnoticed",
            "put every template the world can say into `text`",
        )


def gymnasium(bench: Bench) -> Iterator[Finding]:
    """Gymnasium's own checker is content, warnings included."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(bench.open(), skip_render_check=True)
        except Exception as error:  # the boundary of a foreign checker: it raises whatever it likes
            yield Finding("gymnasium", f"check_env: {type(error).__name__}: {error}", "do as the message says")
    for warning in caught:
        yield Finding("gymnasium", f"check_env warns: {warning.message}", "do as the message says")


def info(bench: Bench) -> Iterator[Finding]:
    """Each ``info`` has all its keys, is plain JSON, and tells how the episode stands."""
    env = bench.open()
    for seed, level in bench.starts():
        for at, row in enumerate(bench.episode(env, seed, level)):
            fault = _info_fault(row)
            if fault:
                yield Finding(
                    "info",
                    f"seed {seed}, level {level}, step {at}: {fault}",
                    "let `reset` and `step` of the base class build `info` from what `act` returns",
                )
                return


def _info_fault(row: Row) -> str | None:
    missing = _INFO_KEYS - set(row.info)
    if missing:
        return f"info lacks {sorted(missing)}"
    try:
        canonical(dict(row.info))
    except (TypeError, ValueError) as error:
        return f"info is not plain JSON data: {error}"
    if not isinstance(row.info["state_key"], str):
        return f"state_key is of type {type(row.info['state_key']).__name__}, not str"
    success, end = row.info["success"], row.info["end"]
    if row.terminated and row.truncated:
        return "both terminated and truncated"
    if row.terminated and not (isinstance(success, bool) and end == ("success" if success else "failure")):
        return f"terminated with success={success!r} and end={end!r}"
    if row.truncated and not (success is False and end == "turn_limit"):
        return f"truncated with success={success!r} and end={end!r}; a limit is not a success"
    if not row.over and not (success is None and end is None):
        return f"still going on, yet success={success!r} and end={end!r}"
    progress = row.info["progress"]
    if progress is not None and not 0 <= progress <= 1:
        return f"progress is {progress}, outside [0, 1]"
    return None


def reward(bench: Bench) -> Iterator[Finding]:
    """Rewards are finite numbers, their parts add up to them, and the return stays within the declared range."""
    env = bench.open()
    low, high = env.reward_range
    for seed, level in bench.starts():
        for skill in (0.0, 0.7, 1.0):
            total = 0.0
            for at, row in enumerate(bench.episode(env, seed, level, skill)):
                where = f"seed {seed}, level {level}, step {at}"
                parts = row.info.get("reward_parts") or {}
                if (
                    isinstance(row.reward, bool)
                    or not isinstance(row.reward, (int, float))
                    or not math.isfinite(row.reward)
                ):
                    yield Finding("reward", f"{where}: the reward is {row.reward!r}", "give a finite float")
                    return
                if parts and abs(sum(parts.values()) - row.reward) > 1e-9:
                    yield Finding(
                        "reward", f"{where}: parts {dict(parts)} do not sum to {row.reward}", "name all summands"
                    )
                    return
                total += row.reward
                if not low - 1e-9 <= total <= high + 1e-9:
                    yield Finding(
                        "reward",
                        f"{where}: the return {total} is outside the declared range [{low}, {high}]",
                        "declare the true `reward_range`; give the change per step, not the running score",
                    )
                    return


def legal(bench: Bench) -> Iterator[Finding]:
    """Every action called legal is accepted, and where only legal ones are admissible there are some."""
    env = bench.open()
    native = {action.name for action in env.native()}
    for seed, level in bench.starts(SEEDS[:3]):
        chance = rng("check", "legal", seed, level)
        over = bench.reset(env, seed, level).over
        for _ in range(12):
            if over:
                break
            fault = _legal_fault(bench, env, native)
            if fault:
                yield Finding(
                    "legal",
                    f"seed {seed}, level {level}, state {env.state_key()!r}: {fault}",
                    "let `legal` list exactly what `act` accepts in the present state",
                )
                return
            over = bench.step(env, bench.choose(env, chance, 0.3)).over


def _legal_fault(bench: Bench, env: Any, native: set[str]) -> str | None:
    actions = env.legal()
    if len(set(actions)) != len(actions):
        return "legal() lists an action twice"
    if not env.free_text() and not actions:
        return "free text is not admissible, and neither is any action"
    if native and not set(actions) <= native and not env.free_text():
        return f"legal() names {sorted(set(actions) - native)}, which native() does not"
    if not bench.can("snapshot"):
        return None
    for action in actions[:40]:
        row = bench.step(env.fork(), action)
        if not row.info["valid"]:
            return f"the legal action {action!r} was refused: {row.observation!r}"
    return None


def garbage(bench: Bench) -> Iterator[Finding]:
    """No text makes a world raise: the agent reads what was wrong, or the text counts as its answer."""
    env = bench.open()
    for seed, level in bench.starts(SEEDS[:2]):
        for nested in (False, True):
            for text in GARBAGE:
                row = bench.reset(env, seed, level)
                if nested and (actions := env.legal() if bench.can("legal") else ()):
                    row = bench.step(env, actions[0])
                if row.over:
                    continue
                try:
                    row = bench.step(env, text)
                except Exception as error:  # the boundary to the world under test
                    yield Finding(
                        "garbage",
                        f"the action {text[:40]!r} made the world raise {type(error).__name__}: {error}",
                        "return Step.refuse(text) that says what is legal",
                    )
                    return
                if not isinstance(row.observation, str) or (not row.info["valid"] and not row.observation):
                    yield Finding(
                        "garbage",
                        f"the action {text[:40]!r} was refused with the observation {row.observation!r}",
                        "say in the refusal what is legal",
                    )
                    return


def limit(bench: Bench) -> Iterator[Finding]:
    """The turn limit truncates exactly when it is reached, and a limit is not a success."""
    env = bench.spec.open(max_turns=3, guards=False, **bench.params)
    for seed, level in bench.starts(SEEDS[:3]):
        for at, row in enumerate(bench.episode(env, seed, level, skill=0.5, steps=5)):
            if at < 3 and row.truncated:
                yield Finding("limit", f"truncated at step {at} with max_turns=3", "leave limits to the base class")
                return
            if at >= 3 and not row.over:
                yield Finding(
                    "limit", f"still going on after step {at} with max_turns=3", "leave limits to the base class"
                )
                return


def errors(bench: Bench) -> Iterator[Finding]:
    """A person's mistakes are named: unknown level, split, option, and a step outside an episode."""
    env = bench.open()
    levels = env.levels
    cases: dict[str, Callable[[], object]] = {
        "step() before reset()": lambda: env.step("x"),
        "an unknown split": lambda: env.reset(seed=1, options={"split": "no such split"}),
        "an unknown level": lambda: env.reset(seed=1, options={"level": levels.stop + 1_000}),
        "an unknown option": lambda: env.reset(seed=1, options={"no such option": 1}),
    }
    for name, cause in cases.items():
        try:
            cause()
        except UsageError:
            continue
        except Exception as error:  # the boundary to the world under test
            yield Finding("errors", f"{name} raised {type(error).__name__}", "raise UsageError, as the base class does")
            continue
        yield Finding("errors", f"{name} raised nothing", "leave `reset`, `step` and `generate` to the base class")


CHECKS = (
    Check("registration", registration, "the spec tells the truth"),
    Check("gymnasium", gymnasium, "works wherever a Gymnasium environment does"),
    Check("info", info, "info is typed and plain JSON", ("state_key",)),
    Check("reward", reward, "rewards are finite and within their range"),
    Check("legal", legal, "legal actions are accepted", ("legal",)),
    Check("garbage", garbage, "no text breaks it"),
    Check("limit", limit, "the turn limit is exact"),
    Check("errors", errors, "mistakes are named"),
)

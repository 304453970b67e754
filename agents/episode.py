"""One episode: the only loop in which policy and world take turns.

::

    observation = world.reset(task)
    until somebody ends it:
        prompt      the view's ids, as many as fit
        completion  the engine's, a player's, or a recorded one that is forked
        reading     what it says: an action, nothing understandable, or a turn that was cut off
        answer      the world's observation, reward and end
    -> Episode, or a FaultRecord when machinery broke

The end is looked at after the world has answered, so an action in the last turn is carried out.
"""

import asyncio
import itertools
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from peira.agents.baselines import player_for
from peira.agents.boundary import Alarm, described, in_thread, world_fault
from peira.agents.engines.base import Engine, Request, is_exact
from peira.agents.forking import Fork, Kept
from peira.agents.limits import RolloutSettings
from peira.agents.types import Completion, End, Episode, FaultRecord, Finish, Ids, Tag, Turn
from peira.agents.view import Context, Reading, View
from peira.envs.core import Env, Player
from peira.envs.seeding import rng, seed_of
from peira.envs.types import NO_PARTS
from peira.tasks.task import Task
from peira.tools.errors import Fault, ToolRefusal, UsageError

__all__ = ["run_episode"]

ResultT = TypeVar("ResultT")

_SESSIONS = itertools.count(1)
_CLOSE_SECONDS = 10.0


async def run_episode(
    task: Task,
    engine: Engine | None,
    view: View,
    settings: RolloutSettings,
    *,
    seed: int,
    player: Player | str | None = None,
    fork: Fork | None = None,
    watch: Callable[[Turn], None] | None = None,
) -> Episode | FaultRecord:
    """Play one episode.

    Args:
        task: names the instance.
        engine: samples the completions; may be ``None`` when a player decides.
        view: renders prompts and reads completions.
        settings: limits.
        seed: seed of the episode's requests; turn ``k`` uses ``seed_of("request", seed, k)``.
        player: decides instead of the engine: a callable, or a name that ``player_for`` knows. Its actions are spelt
            as the policy would write them, tagged ``EXPERT``, with log-prob 0.
        fork: take up a recorded episode instead of starting afresh.
        watch: told each turn when it is complete.

    Returns:
        The episode; or a fault record when the engine, the world or a deadline broke it, which is never scored. The
        world is closed either way, also on cancellation.

    Raises:
        UsageError: something no retry can put right (an unknown world, a view that does not fit, an illegal fork).
    """
    if engine is None and player is None:
        raise UsageError("an episode needs an engine or a player to decide")
    trial = _Trial(task, engine, view, settings, seed, player, fork, watch)
    try:
        return await trial.run()
    except Fault as fault:
        return FaultRecord(task, fault.where, str(fault), len(trial.turns))
    finally:
        await trial.close()


class _Trial:
    """The state of one running episode."""

    def __init__(
        self,
        task: Task,
        engine: Engine | None,
        view: View,
        settings: RolloutSettings,
        seed: int,
        player: Player | str | None,
        fork: Fork | None,
        watch: Callable[[Turn], None] | None,
    ) -> None:
        self.task, self.engine, self.view, self.settings, self.seed = task, engine, view, settings, seed
        self.fork, self.watch = fork, watch
        self.turns: list[Turn] = []
        self._player_given = player
        self._player: Player | None = None
        self._kept: Kept | None = None
        self._stops = frozenset(view.text.stop)
        self._session = next(_SESSIONS)
        self._invalid = 0
        self._sampled = 0
        self._room = engine.context if engine is not None else 1 << 30
        self._exact = engine is None or is_exact(engine)
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + settings.episode_seconds
        self._alarm = Alarm()
        self.env: Env[Any] | None = None
        self._blocking = False

    # ---- from start to end ----------------------------------------------------------------------------------------

    async def run(self) -> Episode:
        """Open the world, play to the end, and judge."""
        env = self.env = self.task.open(max_turns=self.settings.max_turns)
        self._blocking = bool(getattr(env, "blocking", False))
        self._limit = self.settings.max_turns or env.limit
        observation, info = await self._world("reset", self.task.start, env)
        self._info: Mapping[str, Any] = info
        self._context: Context = self.view.open(env, observation, info)
        first = self._context.observation
        if self._player_given is not None:
            self._seat(env, first)
        if self.fork is not None:
            await self._replay(self.fork, first)
        end = None
        while end is None:
            end = await self._turn()
        if end.truncated and self.turns and not self.turns[-1].truncated:
            self.turns[-1] = replace(self.turns[-1], truncated=True)
        return Episode(
            task=self.task,
            turns=tuple(self.turns),
            score=float(sum(turn.reward for turn in self.turns)),
            success=bool(self._info.get("success")),
            end=end,
            temperature=self.settings.temperature,
            first_observation=first,
            seed=self.seed,
            fingerprints=_fingerprints(env, self.view),
            origin=None if self.fork is None else self.fork.origin,
        )

    async def close(self) -> None:
        """Close the world and free the engine's cache, whatever happened."""
        self._alarm.close()
        if self.engine is not None:
            with suppress(Fault):
                self.engine.release(self._session)
        if self.env is None:
            return
        if not self._blocking:
            with suppress(Exception):  # the boundary to foreign worlds: the episode's fate is decided already
                self.env.close()
        else:
            with suppress(Exception):  # the same, for a world that may hang even now
                await in_thread(self.env.close, seconds=_CLOSE_SECONDS)

    async def _turn(self) -> End | None:
        prompt = self._context.prompt(self._room - 1)
        if prompt is None:
            return End.CONTEXT_FULL
        allowance = min(self.settings.max_tokens, self._room - len(prompt))
        if self.settings.budget is not None:
            allowance = min(allowance, self.settings.budget - self._sampled)
            if allowance < 1:
                return End.TOKEN_LIMIT
        kept, self._kept = self._kept, None
        if self._player is not None:
            completion = self._played(self._player)
            if len(prompt) + len(completion.ids) > self._room:
                return End.CONTEXT_FULL
        elif kept is None:
            completion = await self._sample(prompt, allowance)
        else:
            completion = await self._resume(kept, prompt, allowance)
        reading = self._context.read(completion)
        if self._player is not None or not self._exact:
            reading = reading._replace(tags=np.full(len(completion.ids), Tag.EXPERT, dtype=np.uint8))
        elif kept is not None:
            tags = reading.tags.copy()
            tags[: len(kept.tags)] = kept.tags
            reading = reading._replace(tags=tags)
        self._sampled += len(completion.ids)
        return await self._answer(prompt, completion, reading)

    async def _answer(self, prompt: Ids, completion: Completion, reading: Reading) -> End | None:
        """Give the action to the world and record the turn; return the end, if this was it."""
        before, legal = self._info, self._context.legal
        action, end = reading.action, None
        observation, reward, terminated, truncated, valid = reading.problem or "", 0.0, False, False, False
        parts: Mapping[str, float] = NO_PARTS
        if action is not None:
            call = self._step
            answer = await self._world("step", call, action) if self._blocking else self._at_once("step", call, action)
            observation, reward, terminated, truncated, info = answer
            valid, parts = info.get("valid", True), info.get("reward_parts", NO_PARTS)
            self._info = info
        elif reading.problem is None:
            end, valid = End.CUT_OFF, True
        self._invalid = 0 if valid else self._invalid + 1
        if terminated:
            end = End.SUCCESS if self._info.get("success") else End.FAILURE
        elif truncated or (end is None and len(self.turns) + 1 >= self._limit):
            end = End.TURN_LIMIT
        elif end is None and self._invalid and self._invalid == self.settings.invalid_limit:
            end = End.INVALID
        if end is None:
            self._context.take_in(reading, observation, self._info)
            observation = self._context.observation
        else:
            observation = self.view.clip(observation)
        # By position: a turn is built ten thousand times a second.
        turn = Turn(
            prompt, completion, reading.written, reading.at, reading.tags, legal, action or "", observation,
            float(reward), str(before.get("state_key", "")), terminated, end is not None and not terminated,
            valid, parts,
        )  # fmt: skip
        self.turns.append(turn)
        if self.watch is not None:
            self.watch(turn)
        self._tell(observation)
        return end

    # ---- decisions --------------------------------------------------------------------------------------------------

    async def _sample(self, prompt: Ids, allowance: int) -> Completion:
        """Ask the engine, within the deadlines, and refuse an answer that cannot be trusted."""
        engine = self.engine
        assert engine is not None  # run_episode asks for an engine or a player
        seed = seed_of("request", self.seed, len(self.turns))
        request = Request(
            prompt, allowance, seed, self.settings.temperature, self.view.text.stop, self._context.legal, self._session
        )
        now = self._loop.time()
        due = min(now + self.settings.engine_seconds, self._deadline)
        self._alarm.set(due)
        try:
            completion = await engine.generate(request)
        except asyncio.CancelledError as error:
            if not self._alarm.rang():
                raise
            text = f"no completion within {due - now:.3g} s (turn {len(self.turns)})"
            raise Fault(text, where="timeout") from error
        except UsageError:
            raise
        except Fault as fault:
            raise Fault(str(fault), where="engine") from fault
        except Exception as error:  # the boundary to the engine
            raise Fault(described(error, "the engine's generate"), where="engine") from error
        finally:
            self._alarm.clear()
        return self._checked(completion, allowance)

    def _checked(self, completion: Completion, allowance: int) -> Completion:
        size = len(completion.ids)
        if completion.finish is Finish.ABORT:
            raise Fault("the engine gave up the completion (abort)", where="engine")
        if not self._exact:  # tokenized by us: the allowance counted the server's tokens, and a cut may leave nothing
            return completion
        if not 0 < size <= allowance:
            raise Fault(f"the engine returned {size} ids where 1..{allowance} were asked for", where="engine")
        if not math.isfinite(sum(completion.logprobs.tolist())):
            raise Fault("the engine returned log-probs that are not finite", where="engine")
        row = completion.ids.tolist()
        if self._stops.isdisjoint(row[:-1]):
            return completion
        # Nothing after the first stop id was part of the message, whatever the engine made of it.
        cut = next(index for index, i in enumerate(row) if i in self._stops) + 1
        return Completion(completion.ids[:cut], completion.logprobs[:cut], completion.versions[:cut], Finish.STOP)

    async def _resume(self, kept: Kept, prompt: Ids, allowance: int) -> Completion:
        """Write the kept ids, then the forced one, then let the engine go on."""
        legal = self._context.legal
        vocab, native = (True, ()) if legal is None else (legal.vocab, legal.ids)
        finish = None
        if kept.forced is not None:
            if kept.forced not in native and not (vocab and 0 <= kept.forced < self.view.text.vocab):
                raise UsageError(f"cannot force id {kept.forced} at turn {len(self.turns)}: it is not legal there")
            finish = Finish.ACTION if kept.forced in native else Finish.STOP if kept.forced in self._stops else None
        if finish is None and len(kept.ids) >= allowance:
            finish = Finish.LENGTH
        if finish is not None:
            return Completion(kept.ids, kept.logprobs, kept.versions, finish)
        rest = await self._sample(np.concatenate([prompt, kept.ids]), allowance - len(kept.ids))
        return Completion(
            np.concatenate([kept.ids, rest.ids]),
            np.concatenate([kept.logprobs, rest.logprobs]),
            np.concatenate([kept.versions, rest.versions]),
            rest.finish,
        )

    def _seat(self, env: Env[Any], first: str) -> None:
        given = self._player_given
        self._player = player_for(env, given) if isinstance(given, str) else given
        self._rng = rng("player", self.seed)
        self._tell(first)

    def _tell(self, observation: str) -> None:
        """Let a player that reads (a person) see what the world said."""
        if self._player is not None:
            told = getattr(self._player, "told", None)
            if told is not None:
                told(observation)

    def _played(self, player: Player) -> Completion:
        env = self.env
        assert env is not None  # a player is seated after the world was opened
        try:
            action = player(env, self._rng)
        except (Fault, UsageError):
            raise
        except Exception as error:  # the boundary to a world's scripted players
            raise Fault(described(error, "the player"), where="world") from error
        ids, finish = self._context.spell(action)
        version = self.engine.version if self.engine is not None else 0
        return Completion(ids, np.zeros(len(ids), dtype=np.float32), np.full(len(ids), version, dtype=np.int32), finish)

    # ---- the world --------------------------------------------------------------------------------------------------

    def _step(self, action: str) -> tuple[str, float, bool, bool, Mapping[str, Any]]:
        assert self.env is not None  # opened in `run`
        try:
            return self.env.step(action)
        except ToolRefusal as refusal:
            return str(refusal), 0.0, False, False, {**self._info, "valid": False, "reward_parts": NO_PARTS}

    async def _world(self, what: str, call: Callable[..., ResultT], *args: Any) -> ResultT:
        """Call the world: a cheap one here and now, a blocking one in a thread with a deadline."""
        if not self._blocking:
            return self._at_once(what, call, *args)
        try:
            seconds = min(self.settings.world_seconds, self._deadline - self._loop.time())
            return await in_thread(call, *args, seconds=seconds)
        except UsageError:
            raise
        except Exception as error:  # the boundary to the world
            raise world_fault(what, error) from error

    def _at_once(self, what: str, call: Callable[..., ResultT], *args: Any) -> ResultT:
        try:
            result = call(*args)
        except UsageError:
            raise
        except Exception as error:  # the boundary to the world
            raise world_fault(what, error) from error
        if self._loop.time() > self._deadline:
            raise Fault(f"the episode took longer than {self.settings.episode_seconds:.1f} s", where="timeout")
        return result

    async def _replay(self, fork: Fork, first: str) -> None:
        """Bring the fresh world and context to where the recorded episode was, and check that they agree."""
        recorded = fork.episode
        if recorded.task.key != self.task.key:
            raise UsageError(f"cannot fork an episode of task {recorded.task.key} as task {self.task.key}")
        if first != recorded.first_observation:
            raise Fault("replay: the first observation differs from the recorded one", where="world")
        for k, turn in enumerate(recorded.turns[: fork.turn]):
            prompt = self._context.prompt(self._room - 1)
            if prompt is None or not np.array_equal(prompt, turn.prompt):
                raise UsageError(f"cannot replay turn {k}: its prompt was made by another view or another template")
            native = turn.completion.finish is Finish.ACTION
            answer = turn.observation
            if turn.action or turn.valid:
                answer, _, terminated, _, info = await self._world("step", self._step, turn.action)
                if self.view.clip(answer) != turn.observation or terminated != turn.terminated:
                    raise Fault(f"replay: the world answered turn {k} otherwise than recorded", where="world")
                self._info = info
            self._context.take_in(
                Reading(turn.written, turn.at, turn.tags, turn.action, None, native), answer, self._info
            )
            self._invalid = 0 if turn.valid else self._invalid + 1
            self._sampled += len(turn.completion.ids)
            self.turns.append(replace(turn, truncated=False) if turn.truncated else turn)
        if fork.position or fork.force is not None:
            self._kept = Kept.of(fork, self.engine.version if self.engine is not None else 0)


def _fingerprints(env: Env[Any], view: View) -> dict[str, str]:
    prints = {
        "instance": env.fingerprint(env.instance),
        "text": env.text_version(),
        "template": view.text.fingerprint,
        "view": view.fingerprint,
    }
    return prints if view.actions is None else {**prints, "actions": view.actions.fingerprint}

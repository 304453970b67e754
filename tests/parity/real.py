"""The real engine, game by game: ``python tests/parity/real.py`` answers orders on stdin, one JSON line each.

It runs under the interpreter that has the package ``alfworld`` (``PEIRA_ALFWORLD_PYTHON``, or the present one), so it
imports nothing of peira.
"""

import json
import sys
import tempfile
import time
from pathlib import Path


def engine():
    """Return ALFWorld's text engine, made of the parts that its own environments are made of."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
    from textworld.envs import PddlEnv

    return AlfredInfos(AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))))


def rules():
    """Return the package's domain and grammar."""
    from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

    return [Path(path).read_text() for path in (ALFRED_PDDL_PATH, ALFRED_TWL2_PATH)]


def row(state, reward, done):
    return [state.feedback, list(state.admissible_commands), reward, bool(done)]


def serve():
    """Answer orders until stdin ends: ``rules``, ``load`` (text of a game file), ``step`` (a command), ``plan``.

    Each answer comes with the seconds of processor time that it took.
    """
    out = sys.stdout
    sys.stdout = sys.stderr
    env = None
    for line in sys.stdin:
        order, since = json.loads(line), time.process_time()
        if order["do"] == "rules":
            answer = rules()
        elif order["do"] == "load":
            env = engine()
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "game.tw-pddl"
                path.write_text(order["game"])
                env.load(str(path))
            answer = row(env.reset(), 0, False)
        elif order["do"] == "plan":
            state = env.unwrapped._pddl_state
            answer = state.replan(env.unwrapped._entity_infos)
        else:
            answer = row(*env.step(order["command"]))
        out.write(json.dumps([answer, time.process_time() - since]) + "\n")
        out.flush()


if __name__ == "__main__":
    serve()

"""The process of a server of ours: vLLM's own API server, which ends when the process that started it does.

Started by ``server.py`` as ``python -m peira.agents.engines.vllm.child OPTIONS``, in a process group of its own and
with a pipe as its standard input. When the other end of the pipe closes, whatever the reason, the group is killed.
"""

import os
import runpy
import signal
import sys
import threading


def _follow() -> None:
    """Wait until nobody holds the pipe any more, then end everything in this process group."""
    while os.read(0, 4_096):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main() -> None:
    """Run the server in this process; it returns when the server ends."""
    threading.Thread(target=_follow, name="peira-follow", daemon=True).start()
    # As a module, not by its command, which asks for a distribution called "vllm" and so fails with the CPU build.
    sys.argv[0] = "api_server"
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=False)


if __name__ == "__main__":
    main()

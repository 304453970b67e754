"""vLLM behind the engine contract: in this process (``inside.py``) or as a server of our own (``server.py``).

Nothing here imports vLLM until an engine is made, except ``worker.py`` and ``child.py``, which only ever run inside it.
"""

"""The commands of ``peira``: one module each, with ``parser()`` and ``run(arguments) -> exit code``."""

"""The options by which a command speaks to an OpenAI-compatible server."""

import argparse
import os

from peira.agents.engines.server import Served, ServerSettings
from peira.tools.errors import UsageError
from peira.training.commands.common import Parser

__all__ = ["add_server", "key_of", "served_of"]


def add_server(parser: Parser, *, evaluation: bool = True) -> None:
    """Add the options; those that choose between text and ids only where an evaluation can do with text."""
    parser.add_argument("--server", metavar="URL", help="address of an OpenAI-compatible API, usually ending in /v1")
    parser.add_argument("--model", metavar="NAME", help="name of the model on that server")
    parser.add_argument("--key-env", metavar="NAME", help="environment variable that holds the server's key")
    if not evaluation:
        return
    parser.add_argument("--api", default="chat", help="chat, or completions, which needs --tokenizer (default: chat)")
    parser.add_argument("--tokenizer", metavar="DIR", help="folder of the served model's tokenizer")


def served_of(arguments: argparse.Namespace) -> Served | None:
    """Return the model that was asked for, or ``None`` if no server was named.

    Raises:
        UsageError: half of what is needed, or settings that do not fit.
    """
    if arguments.server is None:
        if arguments.model is not None:
            raise UsageError("--model names a model on a server: give its address too (--server http://HOST:PORT/v1)")
        return None
    if arguments.model is None:
        raise UsageError("--server needs the name of a model there: give --model")
    served = Served(
        arguments.server, arguments.model, ServerSettings(api=arguments.api), arguments.tokenizer, key_of(arguments)
    )
    served.seat()  # what does not fit is told before anything begins
    return served


def key_of(arguments: argparse.Namespace) -> str | None:
    """Return the server's key, read from the environment so that no command line holds it.

    Raises:
        UsageError: the variable that was named is not set.
    """
    if arguments.key_env is None:
        return None
    key = os.environ.get(arguments.key_env)
    if not key:
        raise UsageError(f"the environment variable {arguments.key_env} (--key-env) is not set; put the key there")
    return key

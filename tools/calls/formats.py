"""The formats by name. A new one is one file that ends in a ``Format``, and one line here."""

from types import MappingProxyType

from peira.tools.calls import hermes, llama3, mistral, pythonic, qwen_coder, react, tags
from peira.tools.calls.types import Format
from peira.tools.errors import unknown

__all__ = ["FORMATS", "format_of"]

FORMATS = MappingProxyType(
    {
        one.name: one
        for one in (
            hermes.FORMAT,
            qwen_coder.FORMAT,
            llama3.FORMAT,
            mistral.FORMAT,
            pythonic.FORMAT,
            react.FORMAT,
            tags.FORMAT,
        )
    }
)
"""Every format that ``parse`` and ``write`` know."""


def format_of(name: str) -> Format:
    """Return a format by its name.

    Raises:
        UsageError: there is none of that name.
    """
    found = FORMATS.get(name)
    if found is None:
        raise unknown("call format", name, FORMATS)
    return found

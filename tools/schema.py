"""Python annotations to JSON Schema, and values a model wrote to values a function wants, without losing anything.

Models write ``"5"`` where a number is wanted. A value is converted only if nothing can be lost and only one reading is
possible; everything else is refused with a sentence the model can act on:

=========  ============================================================================================================
``str``    a string, untouched (also if it looks like JSON); a whole number becomes its digits
``int``    a whole number; ``5.0``, ``"5"`` and ``"5.0"`` are 5; not ``true``, not ``5.5``, not ``"abc"``
``float``  a finite number or its text; not ``true``; not a whole number that a double cannot hold
``bool``   ``true``, ``false`` or their text; not 0 and 1
``list``   a list, or the JSON text of one; items by their own rule (``tuple`` likewise)
``dict``   an object, or the JSON text of one; values by their own rule
others     ``None``, ``Literal``, ``X | Y`` (the first that fits as it is, else the first that converts), ``Any``
=========  ============================================================================================================
"""

import json
import math
import re
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from peira.tools.errors import UsageError

__all__ = ["coerce", "json_schema"]

_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,300}(?:\.0{0,300})?\s*", re.ASCII)
_DECIMAL = re.compile(r"\s*[+-]?(?:[0-9]{1,300}\.?[0-9]{0,300}|\.[0-9]{1,300})(?:[eE][+-]?[0-9]{1,3})?\s*", re.ASCII)
_EXACT = 2**53
_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
}
_SEQUENCES = (list, tuple, Sequence)
_MAPPINGS = (dict, Mapping)


def json_schema(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema of an annotation.

    Raises:
        UsageError: an annotation that has none here; the text lists what can be used.
    """
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin is Annotated:
        return json_schema(arguments[0])
    if origin in _SIMPLE:
        return dict(_SIMPLE[origin])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [json_schema(member) for member in arguments]}
    if origin in _SEQUENCES and (origin is not tuple or len(arguments) == 0 or arguments[-1] is Ellipsis):
        return {"type": "array", "items": json_schema(arguments[0] if arguments else Any)}
    if origin in _MAPPINGS and (not arguments or arguments[0] is str):
        return {"type": "object", "additionalProperties": json_schema(arguments[1] if arguments else Any)}
    raise UsageError(
        f"{hint!r} cannot be a tool's parameter; use str, int, float, bool, list[...], dict[str, ...], Literal, a "
        "union of these, or no annotation for anything"
    )


def coerce(value: Any, hint: Any) -> Any:
    """Return a value as the annotation wants it.

    Raises:
        ValueError: it does not fit, or could be converted only by losing something; the text says what is wanted.
    """
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin is Annotated:
        return coerce(value, arguments[0])
    if origin in _SIMPLE:
        return _coerce_simple(value, origin)
    if origin is Literal:
        return _coerce_literal(value, arguments)
    if origin in (Union, types.UnionType):
        return _coerce_union(value, arguments)
    if origin in _MAPPINGS:
        found = _from_text(value, dict, "an object")
        return {key: coerce(item, arguments[1] if arguments else Any) for key, item in found.items()}
    items = [coerce(item, arguments[0] if arguments else Any) for item in _from_text(value, list, "a list")]
    return tuple(items) if origin is tuple else items


def _coerce_simple(value: Any, hint: Any) -> Any:
    if hint is Any:
        return value
    if hint is str:
        if isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise _unfit("a string", value)
    if hint is int:
        return _coerce_int(value)
    if hint is float:
        return _coerce_float(value)
    if hint is bool:
        text = value.strip().lower() if isinstance(value, str) else value
        if isinstance(value, bool) or text in ("true", "false"):
            return text in (True, "true")
        raise _unfit("true or false", value)
    if value is not None:
        raise _unfit("null", value)
    return None


def _coerce_int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value.partition(".")[0])
    raise _unfit("a whole number", value)


def _coerce_float(value: Any) -> float:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        number = float(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, int) and abs(value) > _EXACT:
            raise _unfit("a number that a double holds exactly", value)
        number = float(value)
    else:
        raise _unfit("a number", value)
    if not math.isfinite(number):
        raise _unfit("a finite number", value)
    return number


def _coerce_literal(value: Any, allowed: Sequence[Any]) -> Any:
    for choice in allowed:
        if type(value) is type(choice) and value == choice:
            return choice
    for choice in allowed:
        try:
            if coerce(value, type(choice)) == choice:
                return choice
        except ValueError:
            continue
    raise _unfit("one of " + ", ".join(json.dumps(choice) for choice in allowed), value)


def _coerce_union(value: Any, members: Sequence[Any]) -> Any:
    converted: list[Any] = []
    reasons: list[str] = []
    for member in members:
        try:
            result = coerce(value, member)
        except ValueError as error:
            reasons.append(str(error).partition(", not ")[0])
            continue
        if type(result) is type(value) and result == value:
            return result
        converted.append(result)
    if converted:
        return converted[0]
    raise _unfit(" or ".join(dict.fromkeys(reasons)), value)


def _from_text(value: Any, kind: type[Any], what: str) -> Any:
    """Return a list or dict, read from JSON text if that is what was given."""
    if isinstance(value, str):
        try:
            read = json.loads(value)
        except (ValueError, RecursionError):
            raise _unfit(what, value) from None
        if isinstance(read, kind):
            return read
    if not isinstance(value, kind):
        raise _unfit(what, value)
    return value


def _unfit(wanted: str, value: Any) -> ValueError:
    try:
        given = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        given = type(value).__name__
    return ValueError(f"{wanted}, not {given if len(given) <= 60 else given[:57] + '...'}")

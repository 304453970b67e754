"""The only source of randomness: generators named by what they are for.

A key is hashed, never added up, so that ``("task", 1, 12)`` and ``("task", 11, 2)`` share nothing.
"""

import json
from hashlib import blake2b
from typing import Any

import numpy as np

__all__ = ["canonical", "digest", "rng", "seed_of"]


# Built once: json.dumps makes an encoder anew for each call with other than its default options.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
_quoted = json.encoder.encode_basestring_ascii


def canonical(value: Any) -> str:
    """Return the one JSON text of a value (sorted keys, no spaces, no NaN).

    Raises:
        TypeError, ValueError: the value is not plain JSON data.
    """
    return _ENCODER.encode(value)


def digest(value: Any, *, size: int = 8) -> str:
    """Return the hexadecimal blake2b hash (``size`` bytes) of a JSON value; equal on every machine and Python."""
    return blake2b(canonical(value).encode(), digest_size=size).hexdigest()


def seed_of(*key: str | int) -> int:
    """Return a seed in [0, 2**63) for a key of names and integers."""
    # What `canonical` would write; its encoder is built for trees and would take most of the time.
    parts = [
        str(part) if type(part) is int else _quoted(part) if type(part) is str else canonical(part) for part in key
    ]
    return int.from_bytes(blake2b(f"[{','.join(parts)}]".encode(), digest_size=8).digest(), "big") >> 1


def rng(*key: str | int) -> np.random.Generator:
    """Return a fresh generator for a key; the same key always gives the same stream."""
    return np.random.Generator(np.random.PCG64(seed_of(*key)))

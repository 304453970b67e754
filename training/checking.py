"""The check of a configuration: every key is somebody's, every value in range, and an error says where it stands."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType
from typing import Any, get_args

from pydantic import ValidationError

from peira.tools.errors import UsageError, nearest
from peira.training.config import RunConfig
from peira.training.control import Schedule
from peira.training.recipe import Layer
from peira.training.settings import Settings

__all__ = ["checked", "keys_of"]

OFF = "none"
"""What stands for null, which TOML does not have."""

SYNONYMS = {
    "learning_rate": "learner.lr",
    "beta": "learner.divergence.coefficient",
    "kl_coef": "learner.divergence.coefficient",
    "entropy_coef": "learner.entropy.coefficient",
    "clip_range": "learner.policy.clip_low",
    "max_grad_norm": "learner.clip_norm",
    "num_generations": "rollout.group_size",
    "group_size": "rollout.group_size",
    "batch_size": "rollout.tasks",
    "max_steps": "steps",
    "num_steps": "steps",
    "max_completion_length": "rollout.max_tokens",
    "model": "policy.path",
    "env": "world.id",
}
"""Names by which others know a setting."""


def checked(layers: Sequence[Layer], data: Mapping[str, Any]) -> RunConfig:
    """Return the configuration that ``data``, merged from ``layers``, describes.

    Raises:
        UsageError: an unknown key, or values that do not fit.
    """
    for layer in layers:
        _check_keys(layer, layer.data, (RunConfig,), ())
    try:
        return RunConfig.model_validate(_without_off(data, (RunConfig,)))
    except ValidationError as error:
        raise UsageError(_told(error, layers)) from error


def keys_of(kinds: Sequence[type[Settings]] = (RunConfig,), path: str = "") -> Iterator[str]:
    """Yield every dotted key that a configuration may have; a schedule, which may hold others, is one key."""
    for kind in kinds:
        for name, field in kind.model_fields.items():
            here = f"{path}.{name}" if path else name
            yield here
            yield from keys_of([k for k in _sections(field.annotation) if not issubclass(k, Schedule)], here)


def _sections(annotation: Any) -> tuple[type[Settings], ...]:
    """Return the settings classes that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return (annotation,)
    if annotation is dict or getattr(annotation, "__origin__", None) in (dict, list, tuple):
        return ()
    return tuple(dict.fromkeys(kind for part in get_args(annotation) for kind in _sections(part)))


def _of_kind(kinds: Sequence[type[Settings]], data: Mapping[str, Any]) -> tuple[type[Settings], ...]:
    """Narrow a choice of sections by the ``kind`` that the data names."""
    named = [k for k in kinds if "kind" in k.model_fields and k.model_fields["kind"].default == data.get("kind")]
    return tuple(named or kinds)


def _field(kinds: Sequence[type[Settings]], key: str) -> Any:
    return next((kind.model_fields[key] for kind in kinds if key in kind.model_fields), None)


def _check_keys(layer: Layer, data: Mapping[str, Any], kinds: Sequence[type[Settings]], path: tuple[str, ...]) -> None:
    for key, value in data.items():
        field = _field(kinds, key)
        if field is None:
            raise _unknown_key(layer, (*path, key), sorted({name for kind in kinds for name in kind.model_fields}))
        inner = _sections(field.annotation)
        if isinstance(value, Mapping) and inner:
            _check_keys(layer, value, _of_kind(inner, value), (*path, key))


def _unknown_key(layer: Layer, path: tuple[str, ...], allowed: Sequence[str]) -> UsageError:
    key, section = path[-1], ".".join(path[:-1])
    where = f"section [{section}]" if section else "the top level"
    hint = _meant(key, section, allowed)
    return UsageError(
        f"unknown key {key!r} in {where} ({layer.place(path)}).{hint} Allowed there: {', '.join(allowed)}."
    )


def _meant(key: str, section: str, allowed: Sequence[str]) -> str:
    """Guess what was meant: a name close by, the same name in another section, a name that others use."""
    prefix = f"{section}." if section else ""
    known = next((SYNONYMS[name] for name in get_close_matches(key, SYNONYMS, n=1, cutoff=0.85)), None)
    if known:
        return f" Did you mean {known!r}?"
    close = nearest(key, allowed)
    if close:
        return f" Did you mean {prefix + close!r}?"
    elsewhere = [dotted for dotted in keys_of() if dotted.rsplit(".", 1)[-1] == key]
    if elsewhere:
        return f" It belongs elsewhere: {' or '.join(map(repr, elsewhere))}."
    close = nearest(f"{prefix}{key}", keys_of())
    return f" Did you mean {close!r}?" if close else ""


def _without_off(data: Mapping[str, Any], kinds: Sequence[type[Settings]]) -> dict[str, Any]:
    """Put ``None`` where an optional field says "none"."""
    result: dict[str, Any] = {}
    for key, value in data.items():
        field = _field(kinds, key)
        inner = _sections(field.annotation)
        if value == OFF and NoneType in get_args(field.annotation):
            result[key] = None
        elif isinstance(value, Mapping) and inner:
            result[key] = _without_off(value, _of_kind(inner, value))
        elif isinstance(value, bool) and not _holds(field.annotation, bool):
            raise UsageError(f"{key} = {str(value).lower()}: this setting is not a switch. Nothing was started.")
        else:
            result[key] = value
    return result


def _holds(annotation: Any, kind: type) -> bool:
    return annotation is kind or any(_holds(part, kind) for part in get_args(annotation))


_MISSING = {
    "world.id": "name a world (--world sorting; `peira list` shows them)",
    "policy.path": "name a policy folder (--policy policies/tiny; `peira policy new` makes one)",
}


def _told(error: ValidationError, layers: Sequence[Layer]) -> str:
    """Say each problem in one sentence, with the key and the place it was set."""
    problems = []
    for problem in error.errors(include_url=False):
        path = [str(part) for part in problem["loc"]]
        key = ".".join(path)
        if problem["type"] == "missing":
            missing = next((k for k in _MISSING if k == key or k.startswith(f"{key}.")), key)
            problems.append(f"{missing} is missing: {_MISSING.get(missing, 'give it a value')}")
            continue
        layer = next((layer for layer in reversed(layers) if _sets(layer.data, path)), None)
        place = f" ({layer.place(path)})" if layer else ""
        text = problem["msg"].removeprefix("Value error, ")
        scalar = not isinstance(problem["input"], Mapping | Settings)
        shown = f" = {problem['input']!r}" if scalar else ""
        problems.append(f"{key or 'the configuration'}{shown}{place}: {text[:1].lower()}{text[1:]}")
    return "; ".join(problems) + ". Nothing was started."


def _sets(data: Any, path: Sequence[str]) -> bool:
    """Whether a layer sets the key, or anything below it."""
    for part in path:
        if not isinstance(data, Mapping) or part not in data:
            return False
        data = data[part]
    return bool(path)

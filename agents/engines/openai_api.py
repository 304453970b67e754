"""The OpenAI-compatible wire format: bodies of requests, and what an answer says. Pure functions, no network.

An answer is looked at before it is believed: another request's answer, a wrong number of log-probs, numbers that are no
numbers and ends that mean nothing are each named.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from peira.agents.engines.attempts import excerpt
from peira.agents.engines.base import Request
from peira.agents.text import Message
from peira.tools.errors import Fault, UsageError

__all__ = ["Answer", "chat_body", "completion_body", "read_answer", "sampled"]

_SEEDS = 2**31
_SLACK = 1e-3
"""A log-prob may exceed 0 by the rounding of a server's arithmetic."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion as a server told it; ``None`` where it said nothing."""

    id: str | None
    model: str | None
    text: str
    finish: str
    """``stop`` or ``length``."""
    ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None
    prompt_ids: tuple[int, ...] | None
    prompt_tokens: int | None


def _shared(model: str, request: Request, limit: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        limit: request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed % _SEEDS,
        "n": 1,
        "stream": False,
        **extra,
    }
    return _given(body)


def _given(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in extra.items() if value is not None}


def chat_body(
    model: str, messages: Sequence[Message], request: Request, *, limit: str, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the body of a chat request."""
    return {**_shared(model, request, limit, extra), "messages": [dict(message) for message in messages]}


def completion_body(
    model: str, request: Request, *, exact: bool, vocab: int, limit: str, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the body of a completions request, whose prompt is ids.

    An exact one asks for ids and log-probs, switches off everything that would bend the distribution, and hands the
    ending over to our own stop ids.
    """
    body = {**_shared(model, request, limit, extra), "prompt": [int(i) for i in request.prompt]}
    if not exact:
        return body
    ends = list(request.stop)
    if request.legal is not None:
        plain = range(vocab) if request.legal.vocab else ()
        body["allowed_token_ids"] = sorted({*plain, *request.legal.ids})
        ends += [i for i in request.legal.ids if i not in ends]
    plain_sampling = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    asked = {"logprobs": 0, "return_token_ids": True, "stop_token_ids": ends, "ignore_eos": True}
    return {**body, **plain_sampling, **asked, "skip_special_tokens": False, **_given(extra)}


def read_answer(payload: bytes) -> Answer:
    """Read the answer to either kind of request.

    Raises:
        Fault: it is no answer: no JSON, no choice, an error in an envelope of success, an end that says nothing.
    """
    try:
        data = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise Fault(f"the server's answer is not JSON ({error}): {excerpt(payload)}", where="engine") from error
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise Fault(f"the server's answer holds no single choice: {excerpt(payload)}", where="engine")
    choice = choices[0]
    finish = choice.get("finish_reason")
    if finish not in ("stop", "length"):
        raise Fault(f"the server ended the completion with {finish!r}, not stop or length", where="engine")
    usage = data.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    given, model = data.get("id"), data.get("model")
    prompt = choice.get("prompt_token_ids", data.get("prompt_token_ids"))
    return Answer(
        id=given if isinstance(given, str) else None,
        model=model if isinstance(model, str) else None,
        text=_text(choice),
        finish=finish,
        ids=_ids(choice.get("token_ids"), "token_ids"),
        logprobs=_logprobs(choice.get("logprobs")),
        prompt_ids=_ids(prompt, "prompt_token_ids"),
        prompt_tokens=count if isinstance(count, int) else None,
    )


def _text(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    if isinstance(text, list):  # content may come in parts
        text = "".join(str(part.get("text", "")) for part in text if isinstance(part, Mapping))
    if text is None:
        return ""
    if not isinstance(text, str):
        raise Fault(f"the server's text is a {type(text).__name__}", where="engine")
    return text


def _ids(value: Any, name: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(i) is int and 0 <= i < _SEEDS for i in value):
        raise Fault(f"the server's {name} are not ids", where="engine")
    return tuple(value)


def _logprobs(value: Any) -> tuple[float, ...] | None:
    """Return the log-probs of the sampled ids, in either API's form."""
    if not isinstance(value, Mapping):
        return None
    content = value.get("content")
    row = value.get("token_logprobs")
    if isinstance(content, list):
        row = [entry.get("logprob") if isinstance(entry, Mapping) else None for entry in content]
    if not isinstance(row, list):
        return None
    for number in row:
        if isinstance(number, bool) or not isinstance(number, int | float) or not isfinite(number):
            raise Fault(f"the server returned {number!r} for a log-prob", where="engine")
    return tuple(float(number) for number in row)


def sampled(answer: Answer, request: Request, model: str, vocab: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the ids that were sampled and their log-probs, where the answer can be trusted with training.

    Raises:
        UsageError: the server does not return token ids and log-probs at all.
        Fault: it does, but not these: another prompt's, too many, too few, illegal, impossible.
    """
    ids, logprobs = answer.ids, answer.logprobs
    told = {"token_ids": ids, "logprobs": logprobs, "prompt_token_ids": answer.prompt_ids}
    missing = [name for name, value in told.items() if value is None]
    if missing or ids is None or logprobs is None:
        raise UsageError(
            f"this server returns no {', '.join(missing)}, so nobody knows what was sampled and nothing can be trained "
            "on it: use it for evaluation (exact=False), or a server that answers return_token_ids"
        )
    if answer.prompt_ids != tuple(int(i) for i in request.prompt):
        raise Fault("the server answered another prompt than the one it was sent", where="engine")
    if answer.model is not None and answer.model != model:
        raise Fault(f"the server answered with the model {answer.model!r}, not {model!r}", where="engine")
    if len(ids) != len(logprobs):
        raise Fault(f"the server returned {len(ids)} ids and {len(logprobs)} log-probs", where="engine")
    if not 0 < len(ids) <= request.max_tokens:
        raise Fault(f"the server returned {len(ids)} ids where 1..{request.max_tokens} were asked for", where="engine")
    if max(logprobs) > _SLACK:
        raise Fault(f"the server returned a log-prob above 0: {max(logprobs):g}", where="engine")
    legal = request.legal
    plain, more = (vocab, ()) if legal is None else (vocab if legal.vocab else 0, legal.ids)
    wrong = [i for i in ids if not i < plain and i not in more]
    if wrong:
        raise Fault(f"the server sampled id {wrong[0]}, which was not legal", where="engine")
    return ids, logprobs

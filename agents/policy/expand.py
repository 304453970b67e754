"""Native action rows for any causal language model: rows of its ordinary head (EARL / ExpA, arXiv 2510.07581)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peira.agents.actions import ActionTable
from peira.agents.policy.folder import Policy, libraries, silent, write_actions, writing
from peira.tools.errors import UsageError
from peira.tools.native import NativeAction

__all__ = ["add_actions", "expand"]


def add_actions(model: Any, tokenizer: Any, world: str, native: Sequence[NativeAction]) -> ActionTable:
    """Give each native action a token and an output row, in place; return their table.

    The row of a fresh action is the output row of the first token of its text, so that it scores exactly as that token
    does. Rows that a model keeps as padding after its vocabulary are used first. Input rows are copied too: they are
    never read, but an ordinary model folder has them.

    Raises:
        UsageError: no actions, or a tokenizer that does not number them one after the other.
    """
    from peira.agents.text import HFText

    torch, transformers = libraries()
    base = len(tokenizer)
    table = ActionTable.build(world, native, HFText(tokenizer).encode, base)
    tokens = [f"<|{world}:{name}|>" for name in table.names]
    added = [transformers.AddedToken(token, special=True, normalized=False) for token in tokens]
    tokenizer.add_tokens(added, special_tokens=True)
    got = tuple(tokenizer.convert_tokens_to_ids(tokens))
    if got != table.ids:
        raise UsageError(
            f"the tokenizer numbers new tokens {got}, not {table.ids}; its ids have gaps, so it cannot be used"
        )
    if model.get_output_embeddings().weight.shape[0] < base + len(tokens):
        # The library draws the new rows at random before they are overwritten below.
        with torch.random.fork_rng(devices=[]):
            model.resize_token_embeddings(base + len(tokens), mean_resizing=False)
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    sources = torch.tensor([int(written[0]) for written in table.written])
    rows = torch.tensor(table.ids)
    parameters = [head.weight, *([head.bias] if getattr(head, "bias", None) is not None else [])]
    if embedding.weight is not head.weight:
        parameters.append(embedding.weight)
    with torch.no_grad():
        for parameter in parameters:
            parameter[rows] = parameter[sources]
    return table


def expand(
    path_in: str | Path, path_out: str | Path, world: str, native: Sequence[NativeAction], *, overwrite: bool = False
) -> Policy:
    """Write a copy of a policy folder that has the world's native actions.

    Raises:
        UsageError: the policy already has native actions, or ``path_out`` holds something and ``overwrite`` is off.
    """
    policy = Policy.load(path_in)
    if policy.world is not None:
        raise UsageError(f"{path_in} already has the native actions of world {policy.world!r}; expand a plain policy")
    model, tokenizer = policy.model(dtype="auto"), policy.tokenizer
    with writing(Path(path_out), overwrite=overwrite) as folder, silent():
        table = add_actions(model, tokenizer, world, native)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        write_actions(folder, table, native)
    return Policy.load(path_out)

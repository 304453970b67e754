"""New weights into a policy folder of their own."""

import shutil
from pathlib import Path
from typing import Any

from peira.agents.policy.folder import Policy, silent, writing

__all__ = ["save_policy"]

_WEIGHTS = (".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json")


def save_policy(policy: Policy, model: Any, path: str | Path, *, overwrite: bool = False) -> Policy:
    """Write a policy with the weights of ``model`` and everything else as it was; the folder appears whole.

    Args:
        policy: where tokenizer, template and actions come from.
        model: a model of that policy (``Policy.model``), trained further.
        path: where to; may be the policy's own folder with ``overwrite``.
        overwrite: replace what is there.

    Raises:
        UsageError: the folder is in the way, or the disk refuses. What was there is then unchanged.
    """
    with writing(Path(path), overwrite=overwrite) as folder, silent():
        model.save_pretrained(folder)
        for file in policy.path.iterdir():
            if file.is_file() and not file.name.endswith(_WEIGHTS) and not (folder / file.name).exists():
                shutil.copyfile(file, folder / file.name)
    return Policy.load(path)

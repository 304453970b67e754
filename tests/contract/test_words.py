"""The repository speaks of peira alone: no registry hosts, no paths of somebody's machine."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Written in pieces, so that this file does not report itself.
HOSTS = ("py" + "pi.org", "python" + "hosted.org", "py" + "torch.org", "hugging" + "face.co", "ana" + "conda.org")
FOLDERS = "|".join(("work", "opt", "root", "home", "Users", "mnt"))
FORBIDDEN = re.compile("|".join(map(re.escape, HOSTS)) + r"|(?<![\w.$}~\])*-])/(?:" + FOLDERS + r")/\w")


def faults(path: str, text: str) -> list[str]:
    """Return the lines of one file that name a host or an absolute machine path."""
    return [
        f"{path}:{number} {line.strip()[:80]}"
        for number, line in enumerate(text.splitlines(), 1)
        if FORBIDDEN.search(line)
    ]


def tracked() -> list[Path]:
    """Return the files git knows, or every file of the tree in an export without git."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in ROOT.rglob("*") if path.is_file() and not path.relative_to(ROOT).parts[0].startswith(".")]


def test_tracked_files_name_no_hosts_or_machine_paths() -> None:
    found = []
    for path in tracked():
        if path.is_file() and not path.is_symlink() and path.suffix not in {".png", ".zst", ".safetensors"}:
            found += faults(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    assert found == []


@pytest.mark.parametrize(
    "line",
    ["pip install --index-url https://" + HOSTS[0] + "/simple", "DATA = '/" + "work/data'", "cd /" + "home/anna"],
)
def test_planted_words_are_reported(line: str) -> None:
    assert len(faults("x.py", line)) == 1


def test_relative_paths_and_urls_pass() -> None:
    assert faults("x.py", "see runs/work/x, $HOME/root/x, a/opt/b and https://arxiv.org/abs/2510.07581") == []

"""The gallery page is in step with the world, and shows what the real engine's list of quirks says."""

from pathlib import Path

from peira.envs.household import gallery

PAGE = Path(__file__).parents[2] / "docs" / "household.md"


def test_the_page_is_in_step_with_the_code(tmp_path):
    gallery.main([str(tmp_path)])
    assert (tmp_path / "household.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_the_page_shows_each_task_type_played_to_its_end():
    text = PAGE.read_text(encoding="utf-8")
    for task in ("place", "light", "clean", "heat", "cool", "two"):
        assert f"`task={task}`" in text
    assert text.count("Your task is to:") == 6
    assert text.count("| 1 | 1 |") == 1

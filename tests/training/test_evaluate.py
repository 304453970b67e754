"""Evaluation on worlds where the right numbers are known."""

import json

import pytest

import peira
from peira.agents.engines.scripted import Scripted
from peira.agents.text import ByteText
from peira.agents.view import View
from peira.tools.errors import Fault, UsageError
from peira.training.evaluate import score_of, tasks_of
from peira.training.measures import verbs_of


@pytest.fixture(scope="module")
def sort4():
    return peira.evaluate("sorting", {"naive": "naive", "network": "network"}, suite_name="sort4")


def test_the_network_takes_five_comparisons_and_the_fewest_swaps_on_every_permutation(sort4):
    network = sort4["network"]
    assert network.trials == 48
    assert network.success.mean == 1.0
    assert network.score.mean == pytest.approx(1.0)
    assert network.actions["compare"].mean == 5
    # n minus the number of cycles; the mean number of cycles of a permutation of four is 1 + 1/2 + 1/3 + 1/4.
    assert network.actions["swap"].mean == pytest.approx(4 - 25 / 12)
    assert network.ends == {"success": 48}


def test_naive_swaps_once_per_inversion_and_wastes_comparisons(sort4):
    # Swapping neighbours, a permutation of four needs three swaps on average: half of its six pairs.
    assert sort4["naive"].actions["swap"].mean == pytest.approx(3.0)
    assert sort4["naive"].actions["compare"].mean > 5
    assert 0.5 < sort4["naive"].score.mean < 1


def test_oracle_and_random_stand_beside(sort4):
    assert [score.agent for score in sort4.scores] == ["naive", "network", "oracle", "random"]
    assert sort4["oracle"].success.mean == 1.0
    assert sort4["random"].success.high < 0.5
    assert sum(sort4["random"].ends.values()) == 48


def test_success_is_the_worlds_word_and_not_read_off_the_score(sort4):
    assert sort4["naive"].success.mean == 1.0
    assert sort4["naive"].score.mean < 0.9


def test_both_formats_count_the_same_operations():
    tags = peira.evaluate("sorting", "network", suite_name="sort4", beside=())
    expanded = peira.evaluate("sorting", "network", suite_name="sort4", beside=(), actions="expanded")
    assert {v: e.mean for v, e in tags["network"].actions.items()} == {
        v: e.mean for v, e in expanded["network"].actions.items()
    }


def test_the_same_call_gives_the_same_report_and_another_seed_the_same_tasks():
    first, again, other = (
        peira.evaluate("sorting", "noisy_naive", level=3, n=6, seeds=2, seed=seed) for seed in (1, 1, 2)
    )
    assert first.json() == again.json()
    assert first.fingerprint == other.fingerprint
    assert first["noisy_naive"].turns != other["noisy_naive"].turns


def test_the_report_is_strict_json_and_a_table(sort4):
    data = json.loads(json.dumps(sort4.json(), allow_nan=False))
    assert data["tasks"] == 48
    assert data["agents"][0]["success"] == {"mean": 1.0, "low": pytest.approx(0.926, abs=1e-3), "high": 1.0}
    assert sort4.table().row_count == 4
    assert sort4["naive"].metrics()["actions/swap"] == pytest.approx(3.0)


def test_tasks_are_held_out_and_different():
    tasks = tasks_of("sorting", level=4, n=30)
    assert {task.split for task in tasks} == {"test"}
    starts = {tuple(task.start(task.open())[0:1]) for task in tasks}
    assert len(starts) > 20


def test_an_engine_stays_open_for_its_owner_and_faults_are_counted_apart():
    text = ByteText()
    calls = []

    def script(prompt, request):
        calls.append(len(prompt))
        if len(calls) % 2:
            raise Fault("cable pulled", where="engine")
        return "done"

    engine = Scripted(script, text)
    report = peira.evaluate("sorting", {"model": (engine, View(text))}, beside=(), level=2, n=4)
    assert report["model"].trials + report["model"].lost == 4
    assert report["model"].trials > 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"suite_name": "sort5"}, "unknown suite 'sort5'"),
        ({"split": "tset"}, "Did you mean 'test'"),
        ({"level": 9}, "level"),
        ({"n": 10_000, "level": 2}, "has only"),
        ({"seeds": 0}, "at least one try"),
        ({"task": "sorted"}, "Did you mean 'sort'"),
    ],
)
def test_wrong_requests_are_refused(call, said):
    with pytest.raises(UsageError, match=said):
        peira.evaluate("sorting", "naive", **call)


def test_nothing_to_sum_up_is_said():
    with pytest.raises(UsageError, match="no episode"):
        score_of("nobody", [])


def test_only_operations_that_the_world_understood_are_counted():
    episode = peira.rollout("sorting", lambda env, rng: "done" if env.state.log else "compare A B", n=1, level=5)[0]
    assert verbs_of(episode) == ["compare"]

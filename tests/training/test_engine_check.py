"""The engine checks on real weights: the local engine and a server over the loopback, against the learner itself."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from peira.agents.engine_check import ENGINE_CHECKS, check_engine  # noqa: E402
from peira.agents.engines.base import Request  # noqa: E402
from peira.agents.engines.local import LocalEngine  # noqa: E402
from peira.agents.types import Finish, Legal  # noqa: E402
from peira.tools.errors import UsageError  # noqa: E402
from peira.training.cli import main  # noqa: E402
from peira.training.engine_subjects import Learned, policy_subject, subject_of  # noqa: E402

NAMES = [check.name for check in ENGINE_CHECKS]


@pytest.fixture(scope="module")
def policy(models, tmp_path_factory):
    return models.policy(tmp_path_factory.mktemp("policies") / "nano")


def test_the_local_engine_passes_every_check(policy):
    report = check_engine(subject_of("local", str(policy.path)))
    assert report.findings == ()
    assert list(report.passed) == NAMES
    assert max(report.figures.values()) < 1e-4


def test_the_reference_is_the_learners_own_forward_pass(policy, models):
    told = Learned(policy.model(), policy.vocab)
    prompt, ids = np.array([5, 9, 3], dtype=np.int32), np.array([7, 1, 8], dtype=np.int32)
    request = Request(prompt, 3, 0, temperature=1.3)

    class Answer:
        pass

    Answer.ids = ids
    plain = models.teacher_forced(policy.model(), request, Answer, policy.vocab)
    assert told.logprobs(prompt, ids, 1.3, None, 0) == pytest.approx(plain, abs=1e-5)
    row = told.distribution(prompt, 1.3, None, 0)
    assert np.exp(row).sum() == pytest.approx(1.0)
    assert row[7] == pytest.approx(float(plain[0]), abs=1e-5)
    native = Legal(False, policy.actions.ids)
    narrow = told.distribution(prompt, 1.0, native, 0)
    assert np.exp(narrow[list(native.ids)]).sum() == pytest.approx(1.0)
    assert not np.allclose(told.logprobs(prompt, ids, 1.0, None, 1), told.logprobs(prompt, ids, 1.0, None, 0), atol=0.1)


@pytest.mark.parametrize("fault", ["keeps its cache", "loads nothing"])
def test_faults_of_the_local_engine_are_found(policy, fault):
    def opened(policy, *_):
        engine = LocalEngine(policy.model(), vocab=policy.vocab)
        if fault == "keeps its cache":
            engine._rows.invalidate = lambda: None
        else:

            def load(weights, version):
                engine._version = version

            engine.load = load
        return engine

    report = check_engine(policy_subject("local", opened, frozenset(), policy))
    assert "cache after delivery" in [finding.check for finding in report.findings]


def _serving(servers, policy, *, raw=False):
    """A loopback server that answers the completions API with the policy itself."""
    engine = LocalEngine(policy.model(), vocab=policy.vocab)
    told = Learned(policy.model(), policy.vocab)

    async def answer(asked):
        body = asked.body
        allowed = body.get("allowed_token_ids")
        legal = None
        if allowed is not None:
            whole = set(range(policy.vocab)) <= set(allowed)
            legal = Legal(whole, tuple(i for i in allowed if not whole or i >= policy.vocab))
        stop = tuple(i for i in body["stop_token_ids"] if legal is None or i not in legal.ids)
        prompt = np.array(body["prompt"], dtype=np.int32)
        request = Request(prompt, body["max_tokens"], body["seed"], body["temperature"], stop, legal)
        try:
            made = await engine.generate(request)
        except UsageError as error:
            return servers.Status(400, {"error": {"message": str(error)}})
        logprobs = made.logprobs
        if raw:
            logprobs = told.logprobs(prompt, made.ids, 1.0, legal, 0)
        finish = "length" if made.finish is Finish.LENGTH else "stop"
        return servers.tokens(asked, made.ids.tolist(), [float(x) for x in logprobs], finish)

    return servers.Loopback(answer)


def test_a_server_passes_every_check_that_its_api_allows(policy, servers, capsys):
    with _serving(servers, policy) as server:
        arguments = ["check", "--engine", "server", "--server", server.url, "--model", "nano"]
        assert main([*arguments, "--policy", str(policy.path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["findings"] == []
    assert set(report["skipped"]) == {"cache after delivery", "in flight over a delivery", "score"}
    assert set(report["passed"]) == set(NAMES) - set(report["skipped"])


def test_b34_p095_a_server_with_raw_logprobs_is_found(policy, servers):
    with _serving(servers, policy, raw=True) as server:
        report = check_engine(subject_of("server", str(policy.path), url=server.url, model="nano"))
    causes = [finding.cause for finding in report.findings if finding.check == "log-probs"]
    assert any("temperature 1 (raw)" in cause for cause in causes)


def test_a_server_that_returns_text_is_refused(policy, servers):
    with servers.Loopback(lambda asked: {"choices": [{"text": "hi", "finish_reason": "stop"}]}) as server:
        report = check_engine(subject_of("server", str(policy.path), url=server.url, model="nano"))
    assert "token_ids" in report.findings[0].cause


def test_an_engine_of_ones_own_is_a_function(policy, tmp_path, monkeypatch):
    (tmp_path / "my_engine.py").write_text(
        "from peira.agents.engines.local import LocalEngine\n"
        "def made(policy):\n"
        "    return LocalEngine(policy.model(), vocab=policy.vocab, slots=8)\n"
        "made.lacks = ('score',)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    report = check_engine(subject_of("my_engine:made", str(policy.path)))
    assert report.findings == ()
    assert report.skipped == {"score": "score"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("locall", "Did you mean 'local'?"),
        ("peira.nowhere:made", "cannot be found"),
        ("peira:__all__", "no function"),
    ],
)
def test_what_cannot_be_checked_says_why(policy, name, said):
    with pytest.raises(UsageError, match=said):
        subject_of(name, str(policy.path))


def test_a_server_needs_its_address(policy):
    with pytest.raises(UsageError, match="--server and --model"):
        check_engine(subject_of("server", str(policy.path)))

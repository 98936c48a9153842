"""Many threads, a proxy that breaks things in every way, a server behind it: no label differs and none is lost."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from raypoly.core.errors import JudgeUnavailable
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.strategies.judge.openai import OpenAIJudge
from tests.raypoly.strategies.judge.openai_groups import TWO, group, ids, judge, program
from tests.support.certificates import Certificates
from tests.support.faulty_proxy import Proxy
from tests.support.faulty_server import Server, running
from tests.support.judge_faults import PASSING, Storm

Group = tuple[Problem, list[Rollout], list[Verdict]]
KEY = "sk-behind-the-proxy-4711"
WAVES, GROUPS_A_WAVE = 10, 30


def test_a_storm_of_every_fault_loses_no_group_and_changes_no_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates.make(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.trusted))
    monkeypatch.setenv("TEST_JUDGE_KEY", KEY)
    storm = Storm(seed=3, share=0.55)
    options = {"timeout": 1.0, "api_key_env": "TEST_JUDGE_KEY"}
    with (
        running(Server(key=KEY)) as server,
        running(Proxy(to=server.url, certificates=certificates, storm=storm)) as proxy,
        running(Server()) as calm_server,
        judge(calm_server, tmp_path / "calm") as calm,
        judge(proxy.url, tmp_path / "storm", **options) as asked,
        ThreadPoolExecutor(8) as threads,
    ):
        for wave in range(WAVES):
            groups = _groups(wave)
            found = list(threads.map(lambda each: _patiently(asked, each), groups))
            assert found == [ids(calm.label(*each)) for each in groups]
            if set(PASSING) <= proxy.struck.keys():
                break
        assert asked.stats().unjudged == 0
    assert set(PASSING) <= proxy.struck.keys()


def test_a_proxy_without_a_server_is_an_outage_and_the_server_is_found_when_it_is_back(tmp_path: Path) -> None:
    with running(Server()) as server, running(Proxy(to=server.url)) as proxy, judge(proxy.url, tmp_path) as asked:
        server.close()
        with pytest.raises(JudgeUnavailable, match="HTTP 502"):
            asked.label(*TWO)
        server.open()
        assert _patiently(asked, TWO) == [1, 2, 1]


def _groups(wave: int) -> list[Group]:
    names = range(GROUPS_A_WAVE * wave, GROUPS_A_WAVE * (wave + 1))
    return [group(program(i % 3, f"a{i}"), program(2, f"b{i}"), program(i % 2 + 1, f"c{i}")) for i in names]


def _patiently(asked: OpenAIJudge, each: Group) -> list[int]:
    while True:
        try:
            return ids(asked.label(*each))
        except JudgeUnavailable:
            time.sleep(0.05)
            with suppress(JudgeUnavailable):
                asked.probe()

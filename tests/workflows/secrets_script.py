"""A driver whose judge needs a key. It judges, fails, kills its judge, and saves the dashboard's pages.

    JUDGE_TEST_KEY=... python -m tests.workflows.secrets_script URL FOLDER

It ends with its Ray still up, and waits for its standard input to end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

import ray

from actors.judge import JudgeClient
from raypoly.core.config import Config
from raypoly.core.errors import JudgeUnavailable
from tests.actors.test_shared_judge import group
from workflows.startup.ray_cluster import actor_options, connect_ray, dashboard_url

PAGES = (
    "/logical/actors", "/nodes?view=summary", "/events", "/api/cluster_status", "/api/jobs/",
    "/api/v0/actors?detail=1", "/api/v0/jobs?detail=1", "/api/v0/workers?detail=1", "/api/v0/tasks?detail=1",
    "/api/component_activities", "/api/v0/objects?detail=1", "/api/v0/runtime_envs?detail=1",
    "/api/v0/cluster_events?detail=1", "/api/v0/tasks/summarize", "/api/v0/actors/summarize",
    "/api/v0/tasks/timeline", "/api/v0/cluster_metadata",
)  # fmt: skip


def fetched(page: str) -> str:
    """What the dashboard answers, whatever it is."""
    request = urllib.request.Request(f"{dashboard_url()}{page}")
    token = Path("~/.ray/auth_token").expanduser()
    if token.exists():
        request.add_header("Authorization", f"Bearer {token.read_text().strip()}")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return f"{response.status} {response.read().decode(errors='replace')}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode(errors='replace')}"


async def judged(config: Config) -> list[str]:
    """Labels, then an outage in which the server repeats the key; the words of what went wrong."""
    judge = JudgeClient(config.judge, actor_options())
    await judge.start()
    assert (await judge.label(*group(0))).ids.tolist() == [1, 2, 1]
    said = []
    for number in range(1, 3):
        try:
            await judge.label(*group(number))
        except JudgeUnavailable as error:
            said.append(str(error))
    return said


def main() -> None:
    url, folder = sys.argv[1], Path(sys.argv[2])
    judge = {"name": "openai", "base_url": url, "model": "marker", "api_key_env": "JUDGE_TEST_KEY"}
    config = Config.model_validate(
        {"judge": {**judge, "cache_dir": str(folder / "cache"), "timeout": 20.0}, "ray": {"dashboard": True}}
    )
    with connect_ray(config, "secrets"):
        said = asyncio.run(judged(config))
        pages = {page: fetched(page) for page in PAGES}
        (folder / "pages.json").write_text(json.dumps(pages))
        session = ray.worker.global_worker.node.get_session_dir_path()
        print(json.dumps({"said": said, "session": session, "pid": os.getpid()}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()

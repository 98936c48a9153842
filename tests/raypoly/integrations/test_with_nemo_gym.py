"""The resources server's own routes, in one process; where nemo-gym 0.7.0 (Python 3.13) is installed."""

import json
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, RIGHT

pytest.importorskip("nemo_gym", reason="needs nemo-gym (uv pip install nemo-gym==0.7.0)")


def test_verify_gives_a_reward_or_an_error_of_http() -> None:
    from fastapi.testclient import TestClient
    from nemo_gym.base_resources_server import BaseResourcesServerConfig
    from nemo_gym.server_utils import ServerClient

    from raypoly.integrations.with_nemo_gym import NeMoGymServer

    config = BaseResourcesServerConfig(host="127.0.0.1", port=8080, entrypoint="app.py", name="raypoly")
    server = NeMoGymServer(config=config, server_client=MagicMock(spec=ServerClient))

    def row(problem: Any, text: str) -> dict[str, Any]:
        content = [{"annotations": [], "text": text, "type": "output_text"}]
        message = {"id": "m", "role": "assistant", "status": "completed", "type": "message", "content": content}
        response = {"id": "r", "created_at": 0.0, "model": "m", "object": "response", "output": [message]}
        response |= {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
        return {"responses_create_params": {"input": "Double n."}, "response": response, "problem": problem}

    with TestClient(server.setup_webserver()) as client:
        rewards = [client.post("/verify", json=row(DOUBLE, text)).json()["reward"] for text in (RIGHT, "no")]
        refused = client.post("/verify", json=row(json.dumps(BROKEN), RIGHT))
    assert rewards == [1.0, 0.0]
    assert refused.status_code == 503
    assert list(refused.json()) == ["detail"]

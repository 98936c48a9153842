"""NeMo Gym 0.7: a resources server, for an `app.py` of two lines.

    from raypoly.integrations.with_nemo_gym import NeMoGymServer
    NeMoGymServer.run_webserver()

A row has `responses_create_params` and `problem`, a problem's row or id (`one_response.py`). An unknown verdict is
HTTP's 503, so the agent's `/run` fails: with `route_failures_to_sidecar=true` collection goes on without the rollout,
else it ends. Gym's `mask_sample` needs a number beside it.
"""

from fastapi import HTTPException
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from pydantic import JsonValue

from raypoly.integrations.one_response import rewards_async


class NeMoGymRequest(BaseVerifyRequest):  # type: ignore[misc]
    problem: str | dict[str, JsonValue]


class NeMoGymServer(SimpleResourcesServer):  # type: ignore[misc]
    async def verify(self, body: NeMoGymRequest) -> BaseVerifyResponse:
        """1.0 or 0.0 of the response's text; 503 where that is unknown."""
        (reward,) = await rewards_async([(body.problem, body.response.output_text)])
        if reward is None:
            raise HTTPException(503, "No verdict: a sandbox failed, or the problem's tests can't be run.")
        return BaseVerifyResponse(**body.model_dump(), reward=reward)

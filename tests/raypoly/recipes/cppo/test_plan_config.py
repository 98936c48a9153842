"""The servers that `raypoly make-plans` asks."""

import pytest

from raypoly.core.errors import UsageError
from raypoly.core.settings import load_of
from raypoly.recipes.cppo.plan_config import PlanMakingConfig


@pytest.mark.parametrize("role", ["teacher", "judge"])
def test_a_login_in_a_server_s_address_is_refused_and_not_shown(role: str) -> None:
    servers = [f"plans.{name}.{key}" for name in ("teacher", "judge") for key in ("name=m", "url=http://a/v1")]
    config = load_of(PlanMakingConfig, None, [*servers, f"plans.{role}.url=http://me:pw@a/v1"], "plans")
    with pytest.raises(UsageError, match=rf"^plans\.{role}\.url has .* by plans\.{role}\.api_key_env\.$") as told:
        config.check_servers()
    assert "me:pw" not in str(told.value)

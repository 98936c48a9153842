"""Programs: how rollouts are asked for."""

"""`raypoly-verifiers` as a taskset's id: verifiers looks for a top-level module of that name."""

from raypoly.integrations.with_verifiers import VerifiersTaskset

__all__ = ["VerifiersTaskset"]

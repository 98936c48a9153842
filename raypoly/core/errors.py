"""Errors by kind. Each message is one sentence: what is wrong, where, and what to do.

`UsageError` ends a command with exit code 2, every other kind with 1, `PausedTooLong` with 75 (try again later).
"""

from typing import Self

OF_EXTRAS = """
    ray torch vllm transformers datasets huggingface_hub safetensors tokenizers pyarrow obstore openai matplotlib jinja2
    markupsafe scipy statsmodels packaging pandas
"""
_TRAIN = "pip install 'raypoly[train,cpu]', or [train,cuda] for GPUs"


class RaypolyError(Exception):
    """Reported without a traceback."""

    exit_code = 1


class UsageError(RaypolyError):
    """The command line, the config or an input file is wrong. Nothing was started."""

    exit_code = 2


class MissingPackage(UsageError):
    """A package of an extra is not installed."""

    @classmethod
    def of(cls, error: ModuleNotFoundError, install: str = _TRAIN) -> Self | None:
        """None where the module is of no extra of raypoly's."""
        name = (error.name or "").partition(".")[0]
        if name not in OF_EXTRAS.split():
            return None
        return cls(f"This needs {name}, which is not installed: {install}.")


class MissingHere(UsageError):
    """Something that a run needs is not on this machine; another one may have it."""


class MissingKey(MissingHere):
    """No key for a server where the config says."""


class LeaseHeld(UsageError):
    """Another live driver owns the run directory."""


class StaleEpoch(RaypolyError):
    """Another driver has taken over the run: this one must not write."""


class StorageError(RaypolyError):
    """The run directory can't be written or read; nothing committed is lost."""


class CorruptData(RaypolyError):
    """A file does not match its checksum."""


class Away(RaypolyError):
    """A stage's server can't be reached or refuses to serve now: the run pauses and asks again."""


class Unknown(RaypolyError):
    """A stage was answered, but has no result for this group and never will. Never a number."""


class Infra(RaypolyError):
    """A stage can't work on this group, through no fault of the policy: the update leaves it out."""


class SandboxError(Infra):
    """The sandbox failed, not the candidate."""


class IsolationMissing(SandboxError, UsageError):
    """This machine can't confine programs, and scorer.isolation requires it."""


class BrokenTests(Infra, UsageError):
    """A problem's tests can't be run with any program. Never a verdict."""


class JudgeUnavailable(Away):
    """The judge can't be reached or refuses to serve now; never a label."""


class JudgeRefused(Unknown):
    """The judge can't label this group: it is `unjudged`."""


class OtherSchema(UsageError):
    """Another version of raypoly wrote a file in a form that this one can't read. Not damage."""


class WeightsMismatch(RaypolyError):
    """The engine's weights are not the learner's after an update."""


class WeightsMidway(RaypolyError):
    """Between the updates of a step: the weights have no version."""


class TransferBroken(RaypolyError):
    """The other side of a weight transfer is gone; it is replaced, and the weights are sent again."""


class OutOfRetries(RaypolyError):
    """Actors, nodes or the network failed more often than `run.retries` allows."""


class BrokenEnvironment(OutOfRetries):
    """A node lacks a module that the driver has, or has another raypoly. No retry mends it."""


class Stalled(RaypolyError):
    """No progress for `run.stall_seconds`, and a restart did not help."""


class HubUnreachable(RaypolyError):
    """The Hugging Face hub can't be reached, and its cache lacks what is asked for."""


class RayGone(RaypolyError):
    """The driver's Ray cluster has died."""


class TooManySetAside(RaypolyError):
    """More groups were skipped than `run.max_set_aside` allows."""


class RunStopped(RaypolyError):
    """The run was asked to stop and stopped in order."""

    exit_code = 0


class PausedTooLong(RaypolyError):
    """A server was away longer than `judge.max_pause`; the run is committed and can be resumed."""

    exit_code = 75

"""Errors by kind. Each message is one sentence: what is wrong, where, and what to do.

`UsageError` ends a command with exit code 2, every other kind with 1, `PausedTooLong` with 75 (try again later).
"""


class RaypolyError(Exception):
    """The base of all errors that are reported without a traceback."""

    exit_code = 1


class UsageError(RaypolyError):
    """The command line, the config or an input file is wrong. Nothing was started."""

    exit_code = 2


class MissingKey(UsageError):
    """This machine has no key for a server where the config says."""


class LeaseHeld(UsageError):
    """Another live driver owns the run directory."""


class StaleEpoch(RaypolyError):
    """Another driver has taken over the run. This one must not write any more."""


class StorageError(RaypolyError):
    """The run directory can't be written or read. Nothing committed is lost."""


class CorruptData(RaypolyError):
    """A file's content does not match its checksum."""


class Away(RaypolyError):
    """A stage's server can't be reached or refuses to serve now. The run pauses and asks again."""


class Unknown(RaypolyError):
    """A stage was answered, but has no result for this group and never will. Never a number."""


class Infra(RaypolyError):
    """A stage can't work on this group, through no fault of the policy. The update leaves the group out."""


class SandboxError(Infra):
    """The sandbox failed, not the candidate."""


class IsolationMissing(SandboxError, UsageError):
    """This machine can't confine untrusted programs, and scorer.isolation requires it."""


class BrokenTests(Infra, UsageError):
    """A problem's tests can't be run with any program. Never a verdict."""


class JudgeUnavailable(Away):
    """The judge can't be reached or refuses to serve now. Wait and ask again; never a label."""


class JudgeRefused(Unknown):
    """The judge answered but can't label this group: it is `unjudged`."""


class OtherSchema(UsageError):
    """A later version of raypoly wrote a file in a form that this one can't read. Not damage."""


class WeightsMismatch(RaypolyError):
    """The engine's weights are not the learner's after an update."""


class WeightsMidway(RaypolyError):
    """The learner is between the updates of a step: its weights have no version."""


class TransferBroken(RaypolyError):
    """The other side of a weight transfer is gone. It is replaced, and the weights are sent again."""


class OutOfRetries(RaypolyError):
    """Actors, nodes or the network failed more often than `run.retries` allows."""


class Stalled(RaypolyError):
    """A stage made no progress for `run.stall_seconds`, and a restart did not help."""


class HubUnreachable(RaypolyError):
    """The Hugging Face hub can't be reached, and its cache here lacks what is asked for."""


class RayGone(RaypolyError):
    """The driver's Ray cluster has died."""


class TooManySetAside(RaypolyError):
    """More groups than `run.max_set_aside` allows were skipped: a stage could not work on them."""


class RunStopped(RaypolyError):
    """The run was asked to stop and stopped in order."""

    exit_code = 0


class PausedTooLong(RaypolyError):
    """A stage's server was away longer than `judge.max_pause`. The run is committed and can be resumed."""

    exit_code = 75

"""Errors by kind. Each message is one sentence that says what is wrong, where, and what to do.

`UsageError` ends a command with exit code 2, every other kind with 1, `PausedTooLong` with 75 (try again later).
"""


class RaypolyError(Exception):
    """The root: something went wrong that a user can read about."""

    exit_code = 1


class UsageError(RaypolyError):
    """The command line, the config or an input file is wrong; nothing was started."""

    exit_code = 2


class MissingKey(UsageError):
    """A server's key is not where the config says that it is, on this machine."""


class LeaseHeld(UsageError):
    """Another live driver owns the run directory."""


class StaleEpoch(RaypolyError):
    """Another driver took the run over; this one may write nothing more."""


class StorageError(RaypolyError):
    """The run directory could not be written or read; nothing committed is lost."""


class CorruptData(RaypolyError):
    """A file's content is not what its checksum promises."""


class Away(RaypolyError):
    """What a stage asks can't be reached or refuses to serve now: the run pauses, and the stage asks again."""


class Unknown(RaypolyError):
    """A stage was answered, and can't find out what it was asked of this group, for good. Never a number."""


class Infra(RaypolyError):
    """A stage can't work on this group, through no fault of the policy: the group is left out of the update."""


class SandboxError(Infra):
    """The sandbox itself failed (never the candidate)."""


class IsolationMissing(SandboxError, UsageError):
    """This machine cannot confine untrusted programs and nobody asked to go without."""


class BrokenTests(Infra, UsageError):
    """The tests of a problem can't be run, whatever the program: the problem's fault, never a verdict."""


class JudgeUnavailable(Away):
    """The judge can't be reached or refuses to serve now: wait and ask again. Never a label."""


class JudgeRefused(Unknown):
    """The judge answered and could not label this group, for good: the group is `unjudged`."""


class NewerSchema(UsageError):
    """A file was written by a later raypoly in a form that this one can't read. Never taken for damage."""


class WeightsMismatch(RaypolyError):
    """The engine's weights are not the learner's after an update."""


class TransferBroken(RaypolyError):
    """The other side of a weight transfer is gone; it is replaced, and the weights are sent again."""


class OutOfRetries(RaypolyError):
    """Actors, nodes or the network failed more often than `run.retries` allows."""


class Stalled(RaypolyError):
    """A stage made no progress for `run.stall_seconds`, and a restart did not help."""


class RayGone(RaypolyError):
    """The Ray that this driver belongs to has died."""


class TooManySetAside(RaypolyError):
    """More groups than `run.max_set_aside` had problems whose tests can't be run."""


class RunStopped(RaypolyError):
    """Somebody asked the run to stop; it did, in good order."""

    exit_code = 0


class PausedTooLong(RaypolyError):
    """The judge stayed away beyond `judge.max_pause`; the run is committed and can be resumed."""

    exit_code = 75

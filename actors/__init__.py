"""Ray actors, each a thin owner of one resource: generator, scorer, judge, learner.

Where the driver has another version of raypoly than this process, no actor can be imported: the numbers of two versions
don't mix.
"""

import os

from raypoly.core import __version__

DRIVER_VERSION = "RAYPOLY_DRIVER_VERSION"
"""The variable that tells the processes of a cluster which version the driver has."""

if os.environ.get(DRIVER_VERSION, __version__) != __version__:
    raise ImportError(f"raypoly {__version__} is installed, and the driver has {os.environ[DRIVER_VERSION]}")

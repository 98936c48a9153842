"""Is this machine ready for a config, and each node of its cluster? No run is started, and nothing is left behind.

findings = examine_machine(load("configs/tiny.yaml", []))
[finding.detail for finding in findings if not finding.ok]
"""

from __future__ import annotations

import os
from functools import partial

from raypoly.core.config import Config
from raypoly.run.run_identity import RunDirectory, resolve_run
from workflows.doctor.machine_findings import MachineFinding, attempt_all
from workflows.doctor.node_report import NodeReport, gpu_findings, read_pins, report_node, version_finding
from workflows.doctor.service_checks import ask_judge, free_lease, impatient, try_storage

_SECONDS = 25.0
"""How long storage and judge may take, in each of two rounds."""
_ALONE = "none: RAY_ADDRESS is not set, and a start brings up a Ray of this machine's own"


def examine_machine(config: Config) -> list[MachineFinding]:
    """The findings on this machine, and on the cluster of `RAY_ADDRESS`. Raises `UsageError` if there are no pins."""
    config, pins = impatient(config), read_pins(config.generator.engine)
    names, cuda = tuple(pins), config.generator.placement != "cpu"
    here = report_node(config.scorer, names, cuda)
    directories: list[RunDirectory] = []
    others: list[NodeReport] = []

    def resolve() -> str:
        directories.append(resolve_run(config))
        return directories[0].uri

    found = [version_finding(here, here, pins), here.sandbox]
    found += attempt_all({"judge": partial(ask_judge, config), "run.dir": resolve}, _SECONDS)
    for directory in directories:
        storage, lease = partial(try_storage, directory), partial(free_lease, directory)
        found += attempt_all({"storage": storage, "lease": lease}, _SECONDS)
    if os.environ.get("RAY_ADDRESS"):
        from workflows.doctor.cluster_checks import examine_cluster  # imports Ray, which takes a second

        cluster, others = examine_cluster(config, names, cuda)
        found += cluster
    else:
        found.append(MachineFinding("cluster", True, _ALONE))
    for other in others:
        found += [version_finding(other, here, pins), other.sandbox]
    return found + gpu_findings(config, [here, *others])

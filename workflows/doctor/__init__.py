"""The doctor: is a run whole, and where would it resume? It only reads, and needs no lease and no Ray.

    report = examine("s3://bucket/runs/mine")        # works beside a live driver
    report.damaged; report.resume.step

It reads every object once and compares it with its checksum (`checks`), works out where a start would resume
(`resume`), asks the Ray of a live run what it does now (`live_run`), and prints a report (`show`).

Without a run, `machine` says whether this machine and its cluster are ready for a config: `node_report` (versions,
GPUs, sandbox), `service_checks` (storage, lease, judge) and `cluster_checks` (Ray, its ports, its nodes).
"""

from workflows.doctor.examination import examine

__all__ = ["examine"]

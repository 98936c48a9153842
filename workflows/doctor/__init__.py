"""The doctor: is a run whole, and where would it go on? Reads, changes nothing, needs no lease and no Ray.

    report = examine("s3://bucket/runs/mine")        # works beside a live driver
    report.damaged; report.resume.step

Every object is read once and compared with its checksum (`checks`), then what a start would do of it is worked out
(`resume`) and shown (`show`).
"""

from workflows.doctor.examination import examine

__all__ = ["examine"]

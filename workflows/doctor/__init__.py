"""The doctor: is a run whole, and where would it resume (`run_check`)? Is this machine ready (`machine`)?

It only reads, and needs no lease. `python -c "from workflows.doctor import examine; print(examine('RUN').resume)"`
"""

from workflows.doctor.run_check import examine

__all__ = ["examine"]

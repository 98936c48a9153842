"""A run's files: the store, the lease of who may write them, and the records kept there.

store = open_store("/runs/tiny-poly_epo-s0-1a2b3c4d")
lease = acquire_lease(store, "raypoly train")
store.commit("journal/step-000001/00000.arrow", data)  # durable when it returns, immutable from then on
"""

from raypoly.run.store.lease import Lease
from raypoly.run.store.open_store import acquire_lease, open_store
from raypoly.run.store.step_records import Applied, Drafted, Generated, Record, StageFinding
from raypoly.run.store.store import Store

__all__ = [
    "Applied",
    "Drafted",
    "Generated",
    "Lease",
    "Record",
    "StageFinding",
    "Store",
    "acquire_lease",
    "open_store",
]

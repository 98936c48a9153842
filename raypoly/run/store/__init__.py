"""A run's files: the store, and the lease of who may write them. What is kept there lies in `step_records`,
`rollout_files` and others, which bring pyarrow.

store = open_store("/runs/tiny-poly_epo-s0-1a2b3c4d")
lease = acquire_lease(store, "raypoly train")
store.commit("journal/step-000001/00000.arrow", data)  # durable when it returns, immutable from then on
"""

from raypoly.run.store.lease import Lease
from raypoly.run.store.open_store import acquire_lease, open_store
from raypoly.run.store.store import Store

__all__ = ["Lease", "Store", "acquire_lease", "open_store"]

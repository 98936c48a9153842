"""A run's rollouts held against the verifier and the judge of today, without Ray: what has changed since?

rescore("~/raypoly-runs/mine", "diff.jsonl", None, [], workers=4)         # raypoly score --run
relabel("~/raypoly-runs/mine", "labels.jsonl", None, ["judge.votes=3"])   # raypoly judge label --run
"""

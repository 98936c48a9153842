"""Compares a run's rollouts with the verifier and the judge of today, without Ray.

rescore("~/raypoly-runs/mine", "diff.jsonl", None, [], workers=4)         # raypoly score --run
relabel("~/raypoly-runs/mine", "labels.jsonl", None, ["judge.votes=3"])   # raypoly judge label --run
"""

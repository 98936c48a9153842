"""`raypoly experiment`: arms over seeds, each run a training in a process of its own, compared by one page.

    experiment = load("configs/experiments/objectives.yaml")
    runs = planned(experiment, Path("~/experiment").expanduser(), [])
    for comparison in comparisons(experiment, results(runs)): print(table(comparison))

Nothing here imports Ray: what trains is `python -m raypoly.train`.
"""

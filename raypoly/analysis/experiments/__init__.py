"""`raypoly experiment`: arms over seeds, each run a training in a process of its own, compared by one page.

    experiment = load_experiment("configs/experiments/objectives.yaml")
    runs = plan_runs(experiment, Path("~/experiment").expanduser(), [])
    for comparison in compare_arms([run.result for run in runs]): print(comparison_text(comparison))

Nothing here imports Ray: what trains is `python -m raypoly.train`.
"""

"""What is shown of runs, experiments and preparations.

`tables`, `figures` and `pages` are the kit that all reports are made with. `run_*`, `step_times`, `judge_tables` and
`rollout_samples` show one run, `experiment_*` compare arms over seeds, `data_card_page` shows a preparation, and
`configuration_page` and `objectives_page` write pages of docs/.
"""

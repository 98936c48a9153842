"""Reports on runs, experiments and preparations.

`tables`, `figures` and `pages` are the kit of all reports. `run_*`, `step_times` and `judge_tables` show one run,
`experiment_*` compare arms over seeds, `data_card_page` shows a preparation, and `configuration_page`,
`objectives_page` and `metrics_table` write in docs/.
"""

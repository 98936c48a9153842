"""Reports on runs, experiments and preparations.

`tables`, `figures`, `pages` and `visible_text` are the kit of all reports. `run_*`, `step_times` and `judge_tables`
show one run, `rollout_*` its rollouts, `comparison_*` several runs, `experiment_*` arms over seeds. `data_card_page`
shows a preparation; `configuration_page`, `objectives_page` and `metrics_table` write in docs/.
"""

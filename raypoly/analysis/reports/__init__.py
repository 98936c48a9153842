"""Reports on runs (`run_*`), their rollouts (`rollout_*`), several runs (`comparison_*`), experiments and preparations.

`figures` and `pages` are the kit of all of them; `templates/` holds the pages.
"""

"""Reports on a run (`run_*`), on several (`comparison_*`), on experiments and preparations, with their rollouts.

`figures` and `pages` are the kit of all of them, `charts` their panels; `templates/` holds the pages.
"""

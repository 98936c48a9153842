"""Before a start: checks of a config (`preflight`), memory by part, placement, the plan of `--dry-run`, cost.

    device = choose_device("h200", free_memory)
    shape, layout = shape_of(config.model.path), layout_of(config, device)
    check_memory(config, shape, device, layout)     # `UsageError`: the part that is too much, and what to turn

It is arithmetic on the model's own numbers: nothing is loaded. What can't be known is None.
"""

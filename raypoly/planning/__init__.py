"""What a config needs before anything starts: memory by part, time by stage, cost. `raypoly train --dry-run`.

    device = choose_device("h200", free_memory)
    shape, layout = shape_of(config.model.path), layout_of(config, device)
    check_memory(config, shape, device, layout)     # `UsageError` that names the part which is too much, and what to do
    step_seconds(config, shape, device, layout, response=2048)

All of it is arithmetic on the model's own numbers; nothing is loaded or started. What can't be known is None.
"""

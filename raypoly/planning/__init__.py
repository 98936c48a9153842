"""What a config needs before anything starts: memory by part, time by stage, cost. `raypoly train --dry-run`.

    device = chosen("h200", here)
    need = memory(config, shape_of(config.model.path), device, layout_of(config, device))
    need.check(device)                   # `UsageError` that names the part which is too much, and what to turn

All of it is arithmetic on the model's own numbers; nothing is loaded and nothing runs. What can't be known is None.
"""

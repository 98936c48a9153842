"""From a config to a run that is ready: Ray, actors, model, rehearsal."""

"""One step of training: rollouts, stages of a group, dynamic sampling, the learner, weight sync, metrics."""

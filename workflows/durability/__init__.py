"""What lasts: the journal, the history of completed steps, checkpoints."""

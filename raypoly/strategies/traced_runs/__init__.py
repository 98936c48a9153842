"""Which constructs do the work, by running the program once with counters put in."""

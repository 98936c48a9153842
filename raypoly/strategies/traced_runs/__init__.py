"""Which constructs do the work, told by running the program with counters put in."""

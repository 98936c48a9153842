"""`raypoly score`: score programs, check a data set by its own solutions, find duplicate problems."""

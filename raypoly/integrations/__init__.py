"""raypoly inside other programs: a notebook, another trainer, a server."""

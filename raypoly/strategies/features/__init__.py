"""Algorithmic features of a program, read from its live code.

`algorithm_features.py` asks each reader: a file with `features(scene) -> Iterator[str]`, which may yield a name more
than once. `scene.py` holds the facts of one program that readers share: loops around a node, what is done to each
container, who calls whom.
"""

"""The algorithmic features of a program, read from its live code.

`algorithm_features.py` finds the live part, and asks each of its readers. A reader is one file with
`features(scene) -> Iterator[str]`, which yields names; a name may be yielded more than once. `scene.py` holds the
facts of one program that all readers share: loops around a node, what is done to each container, who calls whom.
"""

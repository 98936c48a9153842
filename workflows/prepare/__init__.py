"""A preparation, from files of problems to a data set:

    load the sources                    set unusable rows aside with reasons
    run known solutions                 leave out problems that fail their own tests      scorers, journal
    leave out duplicates, and problems of an evaluation set
    count prompts in tokens
    sample the base model               and keep problems that it solves sometimes        engines, scorers, journal
    split, write, draw the data card

Each stage commits its decisions, the expensive ones every verdict. The same command goes on from there, and ends with
the same files, byte for byte.
"""

from workflows.prepare.preparation import prepare

__all__ = ["prepare"]

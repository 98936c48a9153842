"""A preparation from top to bottom: from files of problems to a data set for training.

    load the sources                    rows that can't be used are set aside with reasons
    run known solutions                 what does not pass its own tests is left out      scorers, journal
    leave out what is there twice, or in an evaluation set
    count prompts in tokens
    sample the base model               and keep what it solves sometimes                 engines, scorers, journal
    split, write, draw the data card

Every stage's decisions are committed when it is done, and within the dear stages every verdict: the same command goes
on from there, and ends with the same files, byte for byte.
"""

from workflows.prepare.preparation import prepare

__all__ = ["prepare"]

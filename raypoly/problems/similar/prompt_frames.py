r"""The words that data sets and loaders lay around a statement to make a prompt of it; they say nothing of the problem.

unframed("You are an expert Python programmer. ### Question:\nAdd two numbers.")        # "\nAdd two numbers."
"""

from __future__ import annotations

import re

from raypoly.problems.formats.row_fields import ANSWER, READ_AND_PRINT

_FRAMES = (
    ANSWER,
    READ_AND_PRINT,
    "Complete this code:",
    "Your code should pass these tests:",
    # LeetCodeDataset
    "Please complete the following python code precisely:",
    "You are an expert Python programmer.",
    "You will be given a question (problem specification) and will generate a correct Python program that matches the"
    " specification and passes all tests.",
    "### Format: You will use the following starter code to write the solution to the problem and enclose your code"
    " within delimiters.",
    "### Question:",
    "### Answer: (use the provided format with backticks)",
    "English description is not available for the problem. Please switch to Chinese.",
    # DeepCoder, and prompts in the manner of LiveCodeBench
    "### Format: Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on"
    " the sample inputs). Enclose your code within delimiters as follows. Ensure that when the python program runs, it"
    " reads the inputs, runs the algorithm and writes output to STDOUT.",
    # PrimeIntellect
    "Solve the following coding problem using the programming language python:",
    "The input will be stdin and you should print your solution to stdout",
    "Now solve the problem and return the code.",
    # evalplus and MBPP
    "You are an expert Python programmer, and here is your task:",
    "Please provide a self-contained Python script that solves the following problem in a markdown code block:",
)
_ANY = re.compile(
    "|".join(r"\s+".join(map(re.escape, frame.split())) for frame in sorted(_FRAMES, key=len, reverse=True)),
    re.IGNORECASE,
)


def unframed(text: str) -> str:
    """The text without those sentences."""
    return _ANY.sub(" ", text)

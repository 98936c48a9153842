"""Twelve problems written for the tests: a statement with examples and constraints, and the code to be completed."""

from __future__ import annotations

from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.row_fields import prompt_of

_STATEMENTS = {
    "quiet-shelves": (
        "A library has a row of shelves, and shelves[i] is the number of books on the i-th of them. Two shelves that "
        "stand side by side are quiet if their numbers differ by at most gap.\nReturn the length of the longest "
        "stretch of shelves in which every two neighbours are quiet. A single shelf is a stretch of length 1.",
        "shelves = [3,4,9,8,8], gap = 1", "3", "def longestQuiet(self, shelves: List[int], gap: int) -> int:",
    ),
    "ferry-crossings": (
        "A ferry carries cars over a river. It can hold cars with a total weight of at most capacity, and cars board "
        "in the order in which they wait; weights[i] is the weight of the i-th car.\nThe ferry leaves when the next "
        "car does not fit any more, and comes back empty. Return the number of crossings until no car waits.",
        "weights = [5,5,4,2], capacity = 9", "2", "def crossings(self, weights: List[int], capacity: int) -> int:",
    ),
    "lantern-code": (
        "Two lighthouses talk by flashes: a long flash is written as '-', a short one as '.'. You are given a string "
        "message of flashes and a dictionary code from letters to strings of flashes.\nReturn how many texts the "
        "message may stand for, if nobody marks where a letter ends. It can be large: return it modulo 10^9 + 7.",
        'message = "-.", code = {"T": "-", "E": ".", "N": "-."}', "2",
        "def readings(self, message: str, code: Dict[str, str]) -> int:",
    ),
    "orchard-paths": (
        "An orchard is a grid of trees, where grid[r][c] is the number of apples on the tree in row r and column c. "
        "A picker starts in the upper left corner, goes one step down or to the right at a time, and ends in the "
        "lower right corner.\nReturn the largest number of apples that two pickers can bring home together, if an "
        "apple can be picked only once.",
        "grid = [[1,2],[3,4]]", "10", "def mostApples(self, grid: List[List[int]]) -> int:",
    ),
    "tide-table": (
        "The height of the sea is measured every hour, and heights holds the measurements in order. An hour is a "
        "flood if it is higher than both the hour before and the hour after it.\nReturn the indices of all floods in "
        "order of their heights, the highest first; of equal heights the earlier comes first.",
        "heights = [1,5,2,7,3]", "[3,1]", "def floods(self, heights: List[int]) -> List[int]:",
    ),
    "choir-rows": (
        "The singers of a choir stand in rows. You are given the sizes of n singers in an array sizes and a number "
        "rows. Split the singers, in the order in which they stand, into exactly rows groups that are not "
        "empty.\nThe noise of a group is the difference between its tallest and its shortest singer. Return the "
        "smallest possible sum of the noises of all groups.",
        "sizes = [1,9,2,2], rows = 2", "7", "def leastNoise(self, sizes: List[int], rows: int) -> int:",
    ),
    "word-mill": (
        "A mill grinds a word: it takes away every letter that stands beside an equal letter, all of them at once, "
        "and begins again with what is left until nothing changes.\nGiven a string grain, return what the mill "
        "leaves of it, or an empty string where nothing is left.",
        'grain = "abbba"', '""', "def ground(self, grain: str) -> str:",
    ),
    "island-bridges": (
        "There are n islands, numbered from 0, and bridges[i] = [u, v, w] says that a bridge of length w joins "
        "islands u and v. A cyclist can ride at most range kilometres before a rest, and rests on islands "
        "alone.\nReturn the smallest number of rests on a way from start to goal, or -1 if there is no way.",
        "n = 3, bridges = [[0,1,5],[1,2,5]], start = 0, goal = 2, range = 5", "1",
        "def rests(self, n: int, bridges: List[List[int]], start: int, goal: int, range: int) -> int:",
    ),
    "clock-hands": (
        "A tower clock has an hour hand and a minute hand, and both move smoothly. Given two times of the same day, "
        "each as a number of seconds after midnight, count how often the hands point in the same direction from the "
        "first moment to the second, both included.",
        "begin = 0, finish = 43200", "12", "def meetings(self, begin: int, finish: int) -> int:",
    ),
    "bee-garden": (
        "Flowers stand along a path, and nectar[i] is what the i-th of them gives. A bee visits some flowers from "
        "left to right; between two visits it has to pass by at least rest flowers.\nReturn the largest amount of "
        "nectar that it can collect. It need not begin with the first flower.",
        "nectar = [4,1,1,9], rest = 1", "13", "def sweetest(self, nectar: List[int], rest: int) -> int:",
    ),
    "mirror-numbers": (
        "A number is a mirror if it reads the same from both ends in base b as well as in base ten. Given b and a "
        "limit, return the sum of all mirrors that are not negative and smaller than limit.",
        "b = 2, limit = 10", "25", "def mirrors(self, b: int, limit: int) -> int:",
    ),
    "parcel-stack": (
        "Parcels arrive one by one at a counter and are put on top of a stack. parcels[i] is the weight of the i-th. "
        "Whenever the top parcel is heavier than the one below it, the two are tied together and count as one parcel "
        "with the sum of their weights.\nReturn the weights in the stack from bottom to top when all have arrived.",
        "parcels = [3,2,4]", "[3,6]", "def stacked(self, parcels: List[int]) -> List[int]:",
    ),
}  # fmt: skip


def prompt(name: str) -> str:
    text, given, expected, signature = _STATEMENTS[name]
    example = f"Example 1:\n\nInput: {given}\nOutput: {expected}\nExplanation: This is what comes out of it."
    bounds = "Constraints:\n\n1 <= the number of things <= 10^5\nAll numbers fit into 32 bits.\n"
    return prompt_of(f"{text}\n \n{example}\n\n \n{bounds}", f"class Solution:\n    {signature}")


def problem(id: str, text: str, solution: str = "", tests: str = "[]", **metadata: str) -> Problem:
    return Problem(id, text, "f", TestSuite("calls", tests), solution=solution, metadata=metadata)


PROBLEMS = [problem(name, prompt(name)) for name in _STATEMENTS]

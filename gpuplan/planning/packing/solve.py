"""The best packing that can be found, and how far from the best there can be it is at most."""

from gpuplan.planning.packing.bounds import MANY, Bounds, root_bound
from gpuplan.planning.packing.exact import MOST_NODES, Search
from gpuplan.planning.packing.greedy import drafted, resumed, shake
from gpuplan.planning.packing.room import Room
from gpuplan.planning.packing.values import Home, Packing, Problem

EXACT_CARDS = 128
EXACT_COPIES = 40
"""Larger problems are searched no further than improving what was found."""


def solve(problem: Problem, most_nodes: int = MOST_NODES) -> Packing:
    """Most priority placed, then fewest cards, least memory, fewest starts.

    Proved the best where the search of all states came to its end within `most_nodes`, or where a bound says so;
    else `bound` says how much better another could be.
    """
    bounds = Bounds(problem)
    goal = root_bound(problem, Bounds(problem, MANY), Room(problem))
    draft = drafted(problem, bounds, goal)
    cost, homes = draft.cost, draft.all_homes
    nodes = 0
    if cost > goal and _small(problem):
        search = Search(problem, bounds, cost, homes, most_nodes)
        search.run()
        cost, homes, nodes = search.best, search.homes, search.nodes
        if search.complete:
            goal = cost
    if cost > goal:
        draft = resumed(problem, bounds, homes)
        shake(draft, goal)
        cost, homes = draft.cost, draft.all_homes
    return Packing(
        homes=_ordered(problem, homes),
        left_out=tuple(item.name for item in problem.items if not any(h.item == item.name for h in homes)),
        cost=cost,
        bound=min(goal, cost),
        nodes=nodes,
    )


def _small(problem: Problem) -> bool:
    return len(problem.cards) <= EXACT_CARDS and sum(item.copies for item in problem.items) <= EXACT_COPIES


def _ordered(problem: Problem, homes: tuple[Home, ...]) -> tuple[Home, ...]:
    order = {item.name: number for number, item in enumerate(problem.items)}
    return tuple(sorted(homes, key=lambda home: (order[home.item], home.cards)))

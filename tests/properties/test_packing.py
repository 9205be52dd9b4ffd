"""Several models at once: the packing is the optimum of brute force, and the moves to it are safe at every step."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from gpuplan.planning.packing.blocking import blocked
from gpuplan.planning.packing.bounds import MANY, Bounds, root_bound
from gpuplan.planning.packing.moves import Action, Reason, Running, Step, course, deployment_of
from gpuplan.planning.packing.room import Room
from gpuplan.planning.packing.solve import solve
from gpuplan.planning.packing.values import Card, Cost, Item, Layout, Packing, Part, Problem, Stay
from tests.properties.packing_problems import BruteForce, problem_of

SMALL = range(60)
ISSUE_SIZES = 6, 12
"""Models and GPUs of the largest instances that are looked at whole."""


def check(problem: Problem, packing: Packing) -> None:
    """What every packing keeps: memory, number and RAM on each card and host, pins, copies apart, all copies or none."""
    room = Room(problem)
    by_name = {item.name: item for item in problem.items}
    for home in packing.homes:
        item = by_name[home.item]
        assert room.fits(home)
        room.take(home)
        if home.layout is not None:
            assert all(item.may_use(place) for place, _ in home.cards)
            layout = item.layouts[home.layout]
            assert Counter(taken for _, taken in home.cards) == Counter(
                part.bytes for part in layout.parts for _ in range(part.count)
            )
    counts = Counter(home.item for home in packing.homes)
    assert all(counts[item.name] in (0, item.copies) for item in problem.items)
    assert {item.name for item in problem.items if not counts[item.name]} == set(packing.left_out)


@pytest.mark.parametrize("seed", SMALL)
def test_small_packings_are_optimal(seed: int) -> None:
    problem = problem_of(Random(seed), most_items=4, most_cards=7)
    packing = solve(problem)
    check(problem, packing)
    assert packing.optimal
    assert packing.cost == BruteForce(problem).optimum()


@pytest.mark.parametrize("seed", [1, 2, 3, 5, 6])
def test_six_models_on_twelve_gpus_are_optimal(seed: int) -> None:
    models, gpus = ISSUE_SIZES
    problem = problem_of(Random(1000 + seed), most_items=models, most_cards=gpus)
    packing = solve(problem)
    check(problem, packing)
    assert packing.optimal
    assert packing.cost == BruteForce(problem).optimum()


@pytest.mark.parametrize("seed", range(60, 100))
def test_no_packing_beats_the_bound(seed: int) -> None:
    problem = problem_of(Random(seed), most_items=4, most_cards=6)
    room = Room(problem)
    assert root_bound(problem, Bounds(problem, MANY), room) <= BruteForce(problem).optimum()
    hurried = solve(problem, most_nodes=3)
    check(problem, hurried)
    assert hurried.bound <= BruteForce(problem).optimum() <= hurried.cost


def test_an_item_confined_to_few_cards_raises_the_bound() -> None:
    """Counting on all cards alone would see room for everything."""
    cards = tuple(card("h1", index) for index in range(4))
    pins = frozenset({("h1", 0)})
    items = tuple(Item(name=name, layouts=(layout(60),), cards=pins) for name in ("a", "b"))
    problem = Problem(cards=cards, items=items)
    assert root_bound(problem, Bounds(problem, MANY), Room(problem))[0] == 1


def card(host: str, index: int = 0, room: int = 80) -> Card:
    return Card(host=host, index=index, kind="large", room_bytes=room, total_bytes=80)


def layout(taken: int, count: int = 1) -> Layout:
    return Layout(hosts=((Part(kind="large", count=count, bytes=taken),),))


@pytest.mark.parametrize("seed", range(100, 160))
def test_moves_are_safe_at_every_step(seed: int) -> None:
    """Whatever runs somewhere, at random, is brought to the packing; nobody is down but where it is said."""
    random = Random(seed)
    problem = problem_of(random, most_items=5, most_cards=9)
    problem = replace(problem, items=tuple(replace(item, stays=()) for item in problem.items))
    before = solve(replace(problem, items=tuple(random.sample(problem.items, len(problem.items)))))
    running = [
        Running(
            item=home.item, deployment=f"{home.item}-{9 + number}", cards=home.cards, ram_bytes=home.ram_bytes
        )
        for number, home in enumerate(before.homes)
    ]
    shuffled = replace(
        problem,
        items=tuple(
            replace(
                item,
                priority=random.choice((1, 3, 9)),
                stays=tuple(
                    Stay(
                        deployment=one.deployment,
                        cards=one.cards,
                        ram_bytes=one.ram_bytes,
                        fit=random.random() < 0.5,
                    )
                    for one in running
                    if one.item == item.name
                ),
            )
            for item in problem.items
        ),
    )
    after = solve(shuffled)
    walked(shuffled, after, running, course(shuffled, after, running).steps)


def walked(problem: Problem, packing: Packing, running: list[Running], steps: tuple[Step, ...]) -> None:
    """Do the steps one by one."""
    left = {one.place: one.room_bytes for one in problem.cards}
    slots = {one.place: one.slots for one in problem.cards}
    up = {one.deployment: one.cards for one in running}
    model = {one.deployment: one.item for one in running}
    for one in running:
        for place, taken in one.cards:
            left[place], slots[place] = left[place] - taken, slots[place] - 1
    placed = {home.item for home in packing.homes}
    served = {one.item for one in running} & placed
    for step in steps:
        if step.action is Action.START:
            assert step.deployment not in up
            up[step.deployment], model[step.deployment] = step.cards, step.item
        elif step.action is Action.STOP:
            assert up.pop(step.deployment) == step.cards
        sign = {Action.START: -1, Action.STOP: 1, Action.KEEP: 0}[step.action]
        for place, taken in step.cards:
            left[place], slots[place] = left[place] + sign * taken, slots[place] + sign
        assert min(left.values()) >= 0
        assert min(slots.values()) >= 0
        down = served - {model[name] for name in up}
        announced = {one.item for one in steps if one.reason is Reason.DOWNTIME}
        assert down <= announced
    homes = Counter((home.item, home.cards) for home in packing.homes)
    left_running = {one.deployment for one in steps if one.reason is Reason.LEFT}
    assert Counter((model[name], cards) for name, cards in up.items() if name not in left_running) == homes


def swap(*, spare: bool, copies: int = 1) -> tuple[Problem, Packing, list[Running]]:
    """Two models on two cards, each pinned to where the other runs."""
    cards = (card("h1"), card("h2"), *((card("h3"),) if spare else ()))
    running = [
        Running(item="a", deployment="a", cards=((("h1", 0), 60),)),
        Running(item="b", deployment="b", cards=((("h2", 0), 60),)),
    ]
    places = {"a": "h2", "b": "h1"}
    items = tuple(
        Item(
            name=name,
            layouts=(layout(60),),
            copies=copies,
            priority=2 if name == "a" else 1,
            cards=frozenset({(places[name], 0)} | ({("h3", 0)} if spare else set())),
        )
        for name in ("a", "b")
    )
    exact = tuple(replace(item, cards=frozenset({(places[item.name], 0)})) for item in items)
    packing = solve(Problem(cards=cards, items=exact))
    return Problem(cards=cards, items=items), packing, running


def test_a_circle_is_broken_over_a_free_place() -> None:
    problem, packing, running = swap(spare=True)
    steps = course(problem, packing, running).steps
    assert Reason.DETOUR in [step.reason for step in steps]
    assert Reason.DOWNTIME not in [step.reason for step in steps]
    walked(problem, packing, running, steps)


def test_a_circle_without_a_free_place_names_the_one_that_is_down() -> None:
    problem, packing, running = swap(spare=False)
    steps = course(problem, packing, running).steps
    down = [step for step in steps if step.reason is Reason.DOWNTIME]
    assert [step.item for step in down] == ["b"], "the one worth less"
    walked(problem, packing, running, steps)


def test_a_replica_that_others_stand_in_for_makes_way_without_downtime() -> None:
    cards = (card("h1"), card("h2"), card("h3"))
    items = (
        Item(name="a", layouts=(layout(60),), cards=frozenset({("h2", 0)})),
        Item(
            name="b",
            layouts=(layout(60),),
            copies=2,
            stays=(Stay(deployment="b-2", cards=((("h3", 0), 60),)),),
        ),
    )
    running = [
        Running(item="a", deployment="a", cards=((("h1", 0), 60),)),
        Running(item="b", deployment="b", cards=((("h2", 0), 60),)),
        Running(item="b", deployment="b-2", cards=((("h3", 0), 60),)),
    ]
    problem = Problem(cards=cards, items=items)
    packing = solve(problem)
    steps = course(problem, packing, running).steps
    assert [step.reason for step in steps if step.action is Action.STOP and step.item == "b"] == [
        Reason.OTHERS_SERVE
    ]
    walked(problem, packing, running, steps)


def test_what_runs_and_has_no_place_runs_on_where_nobody_needs_its_gpus() -> None:
    problem = Problem(
        cards=(card("h1"), card("h2")), items=(Item(name="a", layouts=(layout(60),), copies=3),)
    )
    running = [Running(item="a", deployment="a", cards=((("h1", 0), 60),))]
    packing = solve(problem)
    assert packing.left_out == ("a",)
    (step,) = course(problem, packing, running).steps
    assert (step.action, step.reason) == (Action.KEEP, Reason.LEFT)


@pytest.mark.parametrize("seed", range(160, 200))
def test_every_way_in_lets_the_model_in(seed: int) -> None:
    """Of each model left out: without the blocker, with the GPUs more, with fewer copies there is a packing with it."""
    problem = problem_of(Random(seed), most_items=5, most_cards=6)
    packing = solve(problem)
    for reason in blocked(problem, packing, {}):
        item = next(one for one in problem.items if one.name == reason.item)
        for names in (*((name,) for name in reason.without), reason.without_all):
            if names:
                others = tuple(one for one in problem.items if one.name not in names)
                assert possible(problem, others, item), names
        if reason.copies:
            fewer = tuple(replace(one, copies=reason.copies) if one is item else one for one in problem.items)
            assert possible(problem, fewer, item)


def possible(problem: Problem, items: tuple[Item, ...], wanted: Item) -> bool:
    """Whether these can be packed so that the wanted one and all that were in stay in: as much is placed as there is."""
    dear = tuple(replace(one, priority=1000) if one.name == wanted.name else one for one in items)
    cost: Cost = BruteForce(replace(problem, items=dear)).optimum()
    return cost[0] < 1000


def test_stays_of_one_deployment_carry_its_name() -> None:
    assert deployment_of("chat#1") == "chat"

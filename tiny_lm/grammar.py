"""A grammar of little stories, as probabilities of whole sentences, and its entropy. In nats.

A story is seven to ten sentences about a thing that changes hands, colour and place. Its last
sentence is a test of memory: who has the thing now, its colour, the place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate, chain
from math import inf, log
from random import Random
from typing import NamedTuple

GIRLS, BOYS = ("Anna", "Emma", "Lily", "Mia"), ("Ben", "Max", "Sam", "Tom")
NAMES = GIRLS + BOYS
THINGS = ("ball", "boat", "box", "cup", "drum", "hat", "kite", "lamp")
COLOURS = ("black", "blue", "green", "red", "white", "yellow")
PLACES = ("barn", "bridge", "lake", "market", "park", "school")
END = "\n"  # the last word of every story
FEWEST_EVENTS, MOST_EVENTS = 2, 5


class Scene(NamedTuple):
    """What has to be remembered while a story is told; empty between two stories."""

    hero: str = ""
    friend: str = ""
    thing: str = ""
    colour: str = ""
    place: str = ""
    holder: str = ""  # who has the thing now
    events: int = 0


class Sentence(NamedTuple):
    """One way to go on: how likely, in which words, and what is true after it."""

    probability: float
    words: tuple[str, ...]
    scene: Scene


def sentences(scene: Scene) -> list[Sentence]:
    """Every sentence that may come next. This function is the grammar.

    No sentence is the beginning of another, so every text was made in one way only.
    """
    if not scene.hero:
        return _openings()
    if not scene.friend:
        return _meetings(scene)
    if scene.events < FEWEST_EVENTS:
        return list(_events(scene, 1.0))
    words = ("Now", scene.holder, "has", "the", scene.colour, scene.thing)
    words += ("at", "the", scene.place, ".", END)
    if scene.events == MOST_EVENTS:
        return [Sentence(1.0, words, Scene())]
    return [Sentence(1 / 3, words, Scene()), *_events(scene, 2 / 3)]


@lru_cache
def _openings() -> list[Sentence]:
    p = 1 / (len(NAMES) * len(COLOURS) * len(THINGS))
    return [
        Sentence(
            p,
            (hero, "has", "a", colour, thing, "."),
            Scene(hero=hero, holder=hero, colour=colour, thing=thing),
        )
        for hero in NAMES
        for colour in COLOURS
        for thing in THINGS
    ]


def _meetings(scene: Scene) -> list[Sentence]:
    she = "She" if scene.hero in GIRLS else "He"
    friends = [name for name in NAMES if name != scene.hero]
    return [
        Sentence(
            1 / (len(friends) * len(PLACES)),
            (she, "meets", friend, "at", "the", place, "."),
            scene._replace(friend=friend, place=place),
        )
        for friend in friends
        for place in PLACES
    ]


def _events(scene: Scene, share: float) -> Iterator[Sentence]:
    """The four kinds of event, which share a probability equally."""
    each, next_scene = share / 4, scene._replace(events=scene.events + 1)
    holder, thing = scene.holder, scene.thing
    other = scene.friend if holder == scene.hero else scene.hero
    given = (holder, "gives", "the", thing, "to", other, ".")
    yield Sentence(each, given, next_scene._replace(holder=other))
    yield Sentence(each, ("The", thing, "is", scene.colour, "."), next_scene)
    for colour in COLOURS:
        if colour != scene.colour:
            words = (holder, "paints", "the", thing, colour, ".")
            p = each / (len(COLOURS) - 1)
            yield Sentence(p, words, next_scene._replace(colour=colour))
    for place in PLACES:
        if place != scene.place:
            words = ("They", "walk", "to", "the", place, ".")
            p = each / (len(PLACES) - 1)
            yield Sentence(p, words, next_scene._replace(place=place))


def tell(random: Random) -> Iterator[str]:
    """Story after story without end, word by word."""
    scene = Scene()
    while True:
        possible = sentences(scene)
        # Of all of Random's methods random() alone gives the same numbers in every Python.
        u, reached = random.random(), accumulate(s.probability for s in possible)
        drawn = next((s for s, r in zip(possible, reached, strict=True) if u < r), possible[-1])
        yield from drawn.words
        scene = drawn.scene


def vocabulary() -> list[str]:
    """Every word of the grammar, in alphabetical order."""
    she, he = (Scene(hero=hero, holder=hero, colour="red", thing="hat") for hero in ("Anna", "Ben"))
    told = she._replace(friend="Tom", place="park", events=FEWEST_EVENTS)
    known = chain.from_iterable(map(sentences, (Scene(), she, he, told)))
    return sorted({word for sentence in known for word in sentence.words} | set(COLOURS + PLACES))


def surprise(words: Iterable[str]) -> Iterator[float]:
    """−log p of each word given those before it, from the beginning of a story: `T words -> T`.

    It is infinite for a word that no story has there, and for all after it.
    """
    possible, at = sentences(Scene()), 0
    for word in words:
        before = sum(s.probability for s in possible)
        possible = [s for s in possible if s.words[at] == word]
        if not possible:
            yield inf
            continue
        yield log(before / sum(s.probability for s in possible))
        at += 1
        if at == len(possible[0].words):
            possible, at = sentences(possible[0].scene), 0


def entropy_rate() -> float:
    """The mean surprise a word in an endless text, in nats: entropy of a story over its length."""
    nats, words = _to_the_end(Scene())
    return nats / words


def expected_surprise(length: int) -> list[float]:
    """The expected surprise at each of the first `length` places of a text, in nats."""
    mean = [0.0] * length
    starts = [Counter() for _ in range(length)]  # how likely a sentence starts here, in this scene
    starts[0][Scene()] = 1.0
    for place, scenes in enumerate(starts):
        for scene, p in scenes.items():
            for later, nats in enumerate(_within(scene)[: length - place]):
                mean[place + later] += p * nats
            for sentence in sentences(scene):
                then = place + len(sentence.words)
                if then < length:
                    starts[then][_typical(sentence.scene)] += p * sentence.probability
    return mean


@lru_cache
def _to_the_end(scene: Scene) -> tuple[float, float]:
    """Expected surprise and number of words from here to the end of the story."""
    nats = words = 0.0
    for p, told, following in sentences(scene):
        more = _to_the_end(_typical(following)) if following.hero else (0.0, 0.0)
        nats += p * (more[0] - log(p))
        words += p * (more[1] + len(told))
    return nats, words


@lru_cache
def _within(scene: Scene) -> list[float]:
    """The expected surprise at each place of the next sentence."""
    mass = Counter()  # of all sentences that begin in this way
    for p, words, _ in sentences(scene):
        for n in range(len(words) + 1):
            mass[words[:n]] += p
    mean = [0.0] * max(map(len, mass))
    for words, p in mass.items():
        if words:
            mean[len(words) - 1] += p * log(mass[words[:-1]] / p)
    return mean


def _typical(scene: Scene) -> Scene:
    """One scene for all that differ in names or in who has the thing: none of it changes odds."""
    if not scene.hero:
        return scene
    met = {"friend": NAMES[1], "place": PLACES[0]} if scene.friend else {}
    typical = Scene(hero=NAMES[0], holder=NAMES[0], thing=THINGS[0], colour=COLOURS[0])
    return typical._replace(events=scene.events, **met)

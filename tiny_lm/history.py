"""History: how a training run went."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import inf


@dataclass(frozen=True)
class Evaluation:
    """What was measured after `step` steps.

    `loss` is on validation rows, in nats a token. `update_ratio` is the length of the step just
    made over the length of the weights, matrices only. `stream_rms` is the RMS of the stream after
    the embedding and after each block.
    """

    step: int
    loss: float
    update_ratio: float
    stream_rms: list[float]


@dataclass
class History:
    """A training run step by step: loss in nats a token, and the gradient's norm before clipping.

    `stopped` is empty for a run that made all its steps, else it says why not.
    """

    loss: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0
    stopped: str = ""

    @property
    def best(self) -> float:
        """The lowest validation loss, infinite before the first."""
        return min((e.loss for e in self.evaluations), default=inf)

    @property
    def waited(self) -> int:
        """How many evaluations in a row were no better than the best before them."""
        losses = [e.loss for e in self.evaluations]
        return len(losses) - 1 - losses.index(min(losses)) if losses else 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> History:
        """The history that wrote this; every number is the same to the last bit.

        Raises ValueError, TypeError or KeyError for what is no history.
        """
        found = json.loads(text)
        found["evaluations"] = [Evaluation(**e) for e in found["evaluations"]]
        history = cls(**found)
        lists = [history.loss, history.grad_norm, history.lr]
        if len({len(numbers) for numbers in lists}) > 1:
            raise ValueError("as many losses as gradient norms and learning rates")
        lists += [[e.loss, e.update_ratio] for e in history.evaluations]
        lists += [[history.seconds], *(e.stream_rms for e in history.evaluations)]
        if not all(isinstance(numbers, list) for numbers in lists):
            raise TypeError("lists of numbers")
        if not all(isinstance(number, float) for numbers in lists for number in numbers):
            raise TypeError("numbers in all lists")
        if not all(isinstance(e.step, int) for e in history.evaluations):
            raise TypeError("whole numbers of steps")
        if not isinstance(history.stopped, str):
            raise TypeError("words for why it stopped")
        return history

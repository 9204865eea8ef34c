"""Chapter 04: pictures of RoPE and causality."""

from __future__ import annotations

from typing import Any

from matplotlib.patches import Circle, Rectangle

from tiny_lm.plots.picture import BLACK, BLUE, GREY, ORANGE, RED, SKY, Picture


class RopePicture(Picture):
    """A query and a key turned by their positions, and the score at every distance."""

    width, height = 660, 320

    def build(self, numbers: Any) -> list:
        plane, scores = self.figure.subplots(1, 2, width_ratios=[1, 1.35])
        plane.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal", title="both turned")
        plane.add_patch(Circle((0, 0), 1, fill=False, ls="--", color=GREY, lw=1))
        (self.query,) = plane.plot([], [], "-o", color=BLUE, label="query")
        (self.key,) = plane.plot([], [], "-s", color=ORANGE, label="key")
        plane.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncol=2)
        scores.set(xlim=(-21, 21), ylim=(-1.3, 1.3), title="their score (dotted: not turned)")
        scores.set(xlabel="distance, query position − key position", ylabel="q · k")
        scores.axhline(0.8, ls=":", color=GREY, lw=1.5)
        (self.curve,) = scores.plot([], [], "-", color=BLACK, lw=1)
        (self.here,) = scores.plot([], [], "o", color=RED, ms=9)
        return [self.query, self.key, self.curve, self.here]

    def update(self, numbers: Any) -> str:
        self.query.set_data([0, numbers.query[0]], [0, numbers.query[1]])
        self.key.set_data([0, numbers.key[0]], [0, numbers.key[1]])
        self.curve.set_data(numbers.distances, numbers.curve)
        distance = numbers.query_at - numbers.key_at
        self.here.set_data([distance], [numbers.score])
        return (
            f"Query at position {numbers.query_at}, key at {numbers.key_at}: distance {distance}. "
            f"The pair turns by {numbers.speed:g} a position (in radians), and the score is "
            f"{round(numbers.score, 4) + 0.0:.4f}."
        )


class HeadPicture(Picture):
    """The weights of one head as a map, and one row of it as bars."""

    width, height = 720, 360

    def build(self, numbers: Any) -> list:
        board, row = self.figure.subplots(1, 2, width_ratios=[1.15, 1])
        count = len(numbers.words)
        places, names = range(1, count + 1), numbers.words
        extent = (0.5, count + 0.5, count + 0.5, 0.5)
        self.map = board.imshow(
            numbers.weights, cmap="Blues", vmin=0, vmax=1, extent=extent, aspect="auto"
        )
        self.figure.colorbar(self.map, ax=board, label="weight")
        board.set_xticks(places, names, rotation=60)
        board.set_yticks(places, names)
        board.grid(False)
        board.set(title="who looks at whom", xlabel="key", ylabel="query")
        self.row = board.add_patch(
            Rectangle((0.5, 0.5), count, 1, fill=False, ec=RED, lw=2.5, clip_on=False)
        )
        row.set(xlim=(0.4, count + 0.6), ylim=(0, 1.02), title="the framed row", axisbelow=True)
        row.set_xticks(places, names, rotation=60)
        self.bars = row.bar(places, [0.0] * count, color=BLUE)
        return [self.map, self.row, *self.bars]

    def update(self, numbers: Any) -> str:
        at, words = numbers.query_at, numbers.words
        weights = numbers.weights[at - 1]
        self.map.set_data(numbers.weights)
        self.row.set_y(at - 0.5)
        for bar, weight in zip(self.bars, weights, strict=True):
            bar.set_height(weight)
        best = sorted(range(len(words)), key=lambda j: -round(weights[j], 6))[:3]
        parts = [f"{weights[j]:.0%} from {words[j]} ({j + 1})" for j in best if weights[j] > 0.005]
        rope = "" if numbers.rope else ", without RoPE"
        return (
            f"Head for {numbers.head}{rope}: {words[at - 1]!r}, word {at}, takes most: "
            f"{', '.join(parts)}."
        )


class CausalityPicture(Picture):
    """Which outputs move when an input position changes, and how far."""

    width, height = 660, 330

    def build(self, numbers: Any) -> list:
        board, moves = self.figure.subplots(1, 2, width_ratios=[1, 1.1])
        count = len(numbers.moves)
        places = range(1, count + 1)
        board.set(xlim=(0.5, count + 0.5), ylim=(count + 0.5, 0.5), aspect="equal")
        board.set(xticks=places, yticks=places, title="what moves when one input changes")
        board.set(xlabel="changed input position", ylabel="output position")
        board.grid(False)
        self.cells = {}
        for i in range(count):
            for j in range(count):
                cell = Rectangle((j + 0.55, i + 0.55), 0.9, 0.9, ec=GREY, lw=0.6)
                self.cells[i, j] = board.add_patch(cell)
        self.column = board.add_patch(
            Rectangle((0.5, 0.5), 1, count, fill=False, ec=BLACK, lw=2.5, clip_on=False)
        )
        moves.set(xlim=(0.4, count + 0.6), ylim=(0, 8), xticks=places)
        moves.set(title="how far each output moved", xlabel="output position", ylabel="RMS")
        self.bars = moves.bar(places, [0.0] * count)
        return [*self.cells.values(), self.column, *self.bars]

    def update(self, numbers: Any) -> str:
        j, leaks = numbers.changed - 1, set(numbers.leaks)
        for (i, k), cell in self.cells.items():
            cell.set_facecolor(RED if (i, k) in leaks else SKY if i >= k else "white")
            cell.set_hatch("//" if (i, k) in leaks else None)
        self.column.set_x(j + 0.5)
        for i, bar in enumerate(self.bars):
            bar.set_height(numbers.moves[i][j])
            bar.set_color(RED if (i, j) in leaks else BLUE)
        early = [i + 1 for i in range(j) if (i, j) in leaks]
        verdict = (
            f"Leak: the earlier outputs {', '.join(map(str, early))} moved too."
            if early
            else "No earlier output moved."
            if j
            else "No output comes before it, so this move proves nothing."
        )
        return (
            f"Fault: {numbers.fault}. Input {numbers.changed} changed. {verdict} "
            f"Leaks on the whole board (hatched): {len(leaks)}."
        )

"""Lines over sizes on two logarithmic axes, as SVG, without any library."""

import math
from dataclasses import dataclass
from html import escape

from cases import size_title

WIDTH, HEIGHT = 560, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 36, 46
LINE_HEIGHT = 17

# Distinct on white; ours come first and are drawn thick, what is dashed is no contestant.
COLORS = ["#d62728", "#1f4e9e", "#7f7f7f", "#2ca02c", "#98c379", "#17a2b8", "#8c564b", "#e377c2",
          "#bcbd22", "#9467bd", "#ff7f0e", "#222222", "#c49c94", "#5b8c85"]


@dataclass
class Line:
    title: str
    points: list  # (size, value), rising
    thick: bool = False
    dashed: bool = False


class Axis:
    """From values to places, by logarithm."""

    def __init__(self, values, start, end):
        self.low, self.high = math.log10(min(values)), math.log10(max(values))
        self.start, self.end = start, end

    def place(self, value):
        share = (math.log10(value) - self.low) / max(self.high - self.low, 1e-9)
        return round(self.start + share * (self.end - self.start), 1)

    def decades(self):
        return [10.0 ** k for k in range(math.ceil(self.low - 1e-9), math.floor(self.high) + 1)]


def text(x, y, words, anchor="middle", extra=""):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def grid(x_axis, y_axis, sizes, unit):
    top, bottom = TOP, HEIGHT - BOTTOM
    for size in sizes[::2]:
        x = x_axis.place(size)
        yield f'<path class="grid" d="M{x} {top}V{bottom}"/>'
        yield text(x, bottom + 16, size_title(size))
    for value in y_axis.decades():
        y = y_axis.place(value)
        yield f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
        yield text(LEFT - 6, y + 4, f"{value:g}", "end")
    middle = (top + bottom) / 2
    yield text(14, middle, unit, extra=f' transform="rotate(-90 14 {middle})"')
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "size of the tensor")


def panel(title, unit, lines, colors):
    values = [value for line in lines for _, value in line.points]
    sizes = sorted({size for line in lines for size, _ in line.points})
    x_axis = Axis(sizes, LEFT, WIDTH - RIGHT)
    y_axis = Axis([min(values) * 0.8, max(values) * 1.25], HEIGHT - BOTTOM, TOP)
    yield text(WIDTH / 2, 20, title, extra=' font-weight="bold"')
    yield from grid(x_axis, y_axis, sizes, unit)
    for line in reversed(lines):
        way = "L".join(f"{x_axis.place(size)} {y_axis.place(value)}" for size, value in line.points)
        style = f'stroke="{colors[line.title]}" stroke-width="{3.2 if line.thick else 1.6}"'
        dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
        yield f'<path class="line" {style}{dashes} d="M{way}"/>'


def legend(lines, colors):
    for i, line in enumerate(lines):
        y = TOP + 10 + i * LINE_HEIGHT
        dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
        yield (f'<path class="line" stroke="{colors[line.title]}" '
               f'stroke-width="{3.2 if line.thick else 1.6}"{dashes} d="M0 {y}H26"/>')
        yield text(32, y + 4, line.title, "start")


def svg(panels):
    """`panels`: (title, unit, lines) each; lines of the same title have the same colour."""
    lines = {line.title: line for _, _, found in panels for line in found}
    colors = {title: COLORS[i % len(COLORS)] for i, title in enumerate(lines)}
    width = len(panels) * WIDTH + 240
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" '
             f'width="{width}" height="{HEIGHT}" font-family="sans-serif" font-size="11.5">',
             "<style>.grid{stroke:#ddd;fill:none}.line{fill:none;stroke-linejoin:round}</style>",
             f'<rect width="{width}" height="{HEIGHT}" fill="white"/>']
    for i, (title, unit, found) in enumerate(panels):
        parts += [f'<g transform="translate({i * WIDTH} 0)">', *panel(title, unit, found, colors),
                  "</g>"]
    parts += [f'<g transform="translate({len(panels) * WIDTH + 10} 0)">',
              *legend(list(lines.values()), colors), "</g>", "</svg>"]
    return "\n".join(parts) + "\n"

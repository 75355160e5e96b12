"""What is measured: sizes of one tensor, and the gradient sets of models, in fp32."""

import math

SIZES = [4 ** k for k in range(1, 15)]  # 4 B to 256 MiB

# Those that stand in tables; the plots show all.
TABLE_SIZES = [4, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20]

# With more ranks than cores.
CROWDED_SIZES = [4, 1 << 20, 64 << 20]


def resnet50():
    """Element counts in the order of definition: convolution, then scale and shift."""
    shapes = []

    def convolution(inner, outer, kernel):
        shapes.extend([(outer, inner, kernel, kernel), (outer,), (outer,)])

    convolution(3, 64, 7)
    width = 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolution(width, planes, 1)
            convolution(planes, planes, 3)
            convolution(planes, 4 * planes, 1)
            if block == 0:
                convolution(width, 4 * planes, 1)
            width = 4 * planes
    return shapes + [(1000, width), (1000,)]


def bert_base():
    hidden, wide = 768, 3072
    square, line = [(hidden, hidden), (hidden,)], [(hidden,), (hidden,)]
    layer = 4 * square + line + [(wide, hidden), (wide,), (hidden, wide), (hidden,)] + line
    return [(30522, hidden), (512, hidden), (2, hidden)] + line + 12 * layer + square


# Name, title, and element counts in backward order.
SETS = {
    "resnet50": ("ResNet-50", [math.prod(shape) for shape in reversed(resnet50())]),
    "bert-base": ("BERT-base", [math.prod(shape) for shape in reversed(bert_base())]),
    "small": ("1,000 tensors of 1 KiB", [256] * 1000),
}


def set_title(name):
    title, counts = SETS[name]
    if name == "small":
        return title
    return f"{title}, {len(counts)} tensors, {4 * sum(counts) / 1e6:.0f} MB"


def size_title(size):
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >> shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def write_sets(folder):
    """One file a set, a count a line, as tests/bench/peers/runner.c reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, counts) in SETS.items():
        text = "".join(f"{count}\n" for count in counts)
        (folder / f"{name}.txt").write_text(text, encoding="ascii")

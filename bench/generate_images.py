#!/usr/bin/env python3
"""Writes pictures in CIFAR-10's binary format that a computer drew: five shapes in warm and in cold colours, ten
classes. Neither the shape alone nor the colour alone says the class; place, size, brightness, background and noise are
drawn at random, and say nothing. The bytes follow from the seed."""
import argparse
import pathlib
import random

SIDE = 32
SHAPES = ("disc", "square", "triangle", "cross", "ring")
COLOURS = ("warm", "cold")
CLASSES = [f"{colour} {shape}" for shape in SHAPES for colour in COLOURS]
NOISE = 16  # how far a byte may lie from its colour, up and down


def spans(shape, radius, y):
    """The parts of row y that a shape around (0, 0) covers, as pairs of first and last x."""
    chord = int(max(0, radius * radius - y * y) ** 0.5)
    if shape == "disc":
        return [(-chord, chord)]
    if shape == "square":
        return [(-radius, radius)]
    if shape == "triangle":
        half = (y + radius) // 2
        return [(-half, half)]
    if shape == "cross":
        arm = max(1, radius // 3)
        return [(-radius, radius)] if abs(y) <= arm else [(-arm, arm)]
    hole = radius * 3 // 5
    if abs(y) > hole:
        return [(-chord, chord)]
    inner = int((hole * hole - y * y) ** 0.5)
    return [(-chord, -inner - 1), (inner + 1, chord)]


def colour_of(name, rng):
    """Red, green and blue. Warm ones are red or orange, cold ones blue or cyan, at any brightness."""
    strong, middle, weak = rng.randint(150, 230), rng.randint(30, 120), rng.randint(30, 60)
    return (strong, middle, weak) if name == "warm" else (weak, middle, strong)


def noisy(level):
    """A table from a random byte to one near the level."""
    return bytes(min(255, max(0, level + byte * (2 * NOISE + 1) // 256 - NOISE)) for byte in range(256))


TABLES = [noisy(level) for level in range(256)]


def picture(label, rng):
    """A record: the class, then the planes of red, green and blue."""
    shape, colour = SHAPES[label // len(COLOURS)], COLOURS[label % len(COLOURS)]
    radius = rng.randint(7, 12)
    down, right = (rng.randint(radius, SIDE - 1 - radius) for _ in range(2))
    background = [rng.randint(20, 235) for _ in range(3)]
    record = bytearray([label])
    for level, behind in zip(colour_of(colour, rng), background):
        noise = rng.randbytes(SIDE * SIDE)
        plane, paint = bytearray(noise.translate(TABLES[behind])), noise.translate(TABLES[level])
        for y in range(-radius, radius + 1):
            for first, last in spans(shape, radius, y):
                begin, end = ((down + y) * SIDE + right + x for x in (first, last + 1))
                plane[begin:end] = paint[begin:end]
        record += plane
    return record


def pictures(count, rng):
    """Each class equally often, in random order."""
    labels = [i % len(CLASSES) for i in range(count)]
    rng.shuffle(labels)
    return b"".join(picture(label, rng) for label in labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path, help="the folder to write to, which is made")
    parser.add_argument("--train", type=int, default=5000, help="pictures of data_batch_1.bin (%(default)s)")
    parser.add_argument("--test", type=int, default=1000, help="pictures of test_batch.bin (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, count in (("data_batch_1.bin", options.train), ("test_batch.bin", options.test)):
        if count > 0:
            (options.out / name).write_bytes(pictures(count, rng))
    (options.out / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n")


if __name__ == "__main__":
    main()

"""Draws the pictures that the example ships: landscapes, gradients and shapes, the same ones each time.

python examples/thumbnails/draw.py examples/thumbnails/thumbnails/pictures
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

SIZE = (1280, 853)
Colour = tuple[int, int, int]


def blend(a: Colour, b: Colour, share: float) -> Colour:
    """`share` of the way from `a` to `b`."""
    return tuple(round(x + (y - x) * share) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def sky(top: Colour, bottom: Colour) -> Image.Image:
    """A picture that fades from `top` to `bottom`."""
    column = Image.new("RGB", (1, SIZE[1]))
    for y in range(SIZE[1]):
        column.putpixel((0, y), blend(top, bottom, y / SIZE[1]))
    return column.resize(SIZE)


def ridge(dice: random.Random, base: float, height: float, rough: float = 0.5) -> list[float]:
    """Heights of a mountain ridge, one for each x: midpoint displacement (Fournier 1982)."""
    points = [base, base]
    while len(points) < SIZE[0]:
        finer = []
        for left, right in itertools.pairwise(points):
            finer += [left, (left + right) / 2 + dice.uniform(-height, height)]
        points = [*finer, points[-1]]
        height *= rough
    return points[: SIZE[0]]


def land(image: Image.Image, heights: list[float], colour: Colour) -> None:
    """Everything below a ridge."""
    outline = [(0, SIZE[1]), *enumerate(heights), (SIZE[0], SIZE[1])]
    ImageDraw.Draw(image).polygon([(float(x), float(y)) for x, y in outline], fill=colour)


def disc(image: Image.Image, x: float, y: float, radius: float, colour: Colour, glow: float = 0) -> None:
    """A sun or a moon."""
    if glow:
        halo = Image.new("L", SIZE, 0)
        ImageDraw.Draw(halo).ellipse(
            (x - radius * 2, y - radius * 2, x + radius * 2, y + radius * 2), fill=110
        )
        image.paste(colour, (0, 0), halo.filter(ImageFilter.GaussianBlur(glow)))
    ImageDraw.Draw(image).ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def mountains(dice: random.Random, top: Colour, bottom: Colour, near: Colour, sun: Colour) -> Image.Image:
    image = sky(top, bottom)
    disc(image, dice.uniform(250, 1000), dice.uniform(150, 330), dice.uniform(45, 80), sun, glow=60)
    for layer in range(5):
        share = (layer + 1) / 5
        land(image, ridge(dice, 380 + 95 * layer, 150 - 20 * layer), blend(bottom, near, share))
    return image


def dawn(dice: random.Random) -> Image.Image:
    return mountains(dice, (38, 50, 110), (250, 176, 120), (24, 28, 52), (255, 226, 170))


def noon(dice: random.Random) -> Image.Image:
    return mountains(dice, (60, 130, 210), (205, 228, 240), (30, 74, 44), (255, 250, 225))


def dusk(dice: random.Random) -> Image.Image:
    return mountains(dice, (52, 20, 78), (232, 96, 84), (22, 10, 34), (255, 190, 110))


def night(dice: random.Random) -> Image.Image:
    image = sky((6, 10, 32), (30, 44, 88))
    draw = ImageDraw.Draw(image)
    for _ in range(420):
        x, y, light = dice.uniform(0, SIZE[0]), dice.uniform(0, 520), dice.randrange(110, 255)
        size = dice.choice((1, 1, 1, 2))
        draw.ellipse((x, y, x + size, y + size), fill=(light, light, min(255, light + 20)))
    disc(image, 930, 190, 62, (240, 238, 220), glow=50)
    for layer in range(3):
        land(image, ridge(dice, 560 + 90 * layer, 110), blend((24, 34, 66), (4, 6, 14), layer / 2))
    return image


def lake(dice: random.Random) -> Image.Image:
    image = mountains(dice, (90, 150, 205), (240, 222, 196), (58, 82, 96), (255, 240, 210))
    shore = 520
    mirrored = image.crop((0, 0, SIZE[0], shore)).transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    water = Image.blend(mirrored, Image.new("RGB", mirrored.size, (40, 82, 110)), 0.45)
    image.paste(water.filter(ImageFilter.GaussianBlur(3)), (0, shore))
    draw = ImageDraw.Draw(image)
    for _ in range(160):
        x, y = dice.uniform(0, SIZE[0]), dice.uniform(shore, SIZE[1])
        draw.line((x, y, x + dice.uniform(20, 120), y), fill=(188, 208, 214), width=1)
    return image


def sea(dice: random.Random) -> Image.Image:
    image = sky((70, 150, 200), (230, 240, 236))
    disc(image, 300, 180, 55, (255, 246, 214), glow=70)
    draw = ImageDraw.Draw(image)
    for row in range(24):
        y = 420 + row * row * 0.8
        colour = blend((88, 160, 184), (12, 52, 92), row / 24)
        wave = [
            (x, y + math.sin(x / (38 + row * 5) + row * 1.7) * (2 + row * 0.6))
            for x in range(0, SIZE[0] + 8, 8)
        ]
        draw.polygon([*wave, (SIZE[0], SIZE[1]), (0, SIZE[1])], fill=colour)
    draw.polygon([(760, 430), (980, 430), (940, 470), (800, 470)], fill=(110, 54, 40))
    draw.polygon([(862, 425), (862, 230), (980, 415)], fill=(244, 240, 228))
    draw.polygon([(852, 425), (852, 260), (760, 415)], fill=(226, 220, 206))
    return image


def dunes(dice: random.Random) -> Image.Image:
    image = sky((96, 158, 206), (250, 226, 186))
    for layer in range(6):
        phase, base = dice.uniform(0, 6), 400 + layer * 78
        heights = [base + math.sin(x / (260 - layer * 18) + phase) * (58 - layer * 3) for x in range(SIZE[0])]
        land(image, heights, blend((240, 196, 136), (150, 88, 48), layer / 5))
    return image


def forest(dice: random.Random) -> Image.Image:
    image = sky((176, 206, 200), (226, 232, 214))
    draw = ImageDraw.Draw(image)
    for layer in range(4):
        colour = blend((126, 164, 150), (14, 46, 36), layer / 3)
        for _ in range(64 - layer * 10):
            x, height = dice.uniform(-40, SIZE[0] + 40), dice.uniform(150, 250) + layer * 60
            foot = 560 + layer * 95 + dice.uniform(-20, 20)
            for step in range(4):
                wide, low = 26 + step * 14 + layer * 6, foot - height + (step + 1) * height / 4
                draw.polygon([(x, low - height / 2.4), (x - wide, low), (x + wide, low)], fill=colour)
            draw.rectangle((x - 5, foot, x + 5, foot + 30), fill=blend(colour, (50, 34, 24), 0.5))
        land(image, ridge(dice, 580 + layer * 95, 16), colour)
    return image


def city(dice: random.Random) -> Image.Image:
    image = sky((24, 22, 62), (236, 128, 96))
    draw = ImageDraw.Draw(image)
    for layer in range(3):
        colour = blend((108, 66, 98), (16, 16, 34), layer / 2)
        x = -20.0
        while x < SIZE[0]:
            wide, top = dice.uniform(44, 120), dice.uniform(250, 560) + layer * 80
            draw.rectangle((x, top, x + wide, SIZE[1]), fill=colour)
            for wx in range(int(x) + 8, int(x + wide) - 10, 16):
                for wy in range(int(top) + 10, SIZE[1], 22):
                    if dice.random() < 0.16 + layer * 0.1:
                        draw.rectangle((wx, wy, wx + 6, wy + 10), fill=(250, 214, 130))
            x += wide + dice.uniform(0, 14)
    return image


def spectrum(dice: random.Random) -> Image.Image:
    """All hues from left to right, light to dark from top to bottom."""
    hues = Image.linear_gradient("L").rotate(90).resize(SIZE)
    values = Image.linear_gradient("L").transpose(Image.Transpose.FLIP_TOP_BOTTOM).resize(SIZE)
    return Image.merge(
        "HSV", (hues, Image.new("L", SIZE, 190), values.point(lambda v: 70 + v * 0.72))
    ).convert("RGB")


def circles(dice: random.Random) -> Image.Image:
    image = Image.new("RGB", SIZE, (244, 238, 226))
    draw = ImageDraw.Draw(image)
    colours = [(214, 72, 60), (30, 96, 146), (240, 180, 60), (44, 132, 108), (40, 40, 52)]
    for row in range(4):
        for column in range(6):
            x, y = 107 + column * 213, 107 + row * 213
            for ring in range(dice.randrange(2, 5)):
                radius = 92 - ring * 24
                draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=dice.choice(colours))
    return image


def tiles(dice: random.Random) -> Image.Image:
    image = Image.new("RGB", SIZE, (30, 34, 48))
    draw = ImageDraw.Draw(image)
    colours = [(232, 212, 176), (200, 92, 72), (72, 120, 130), (222, 164, 84), (46, 60, 84)]
    for x in range(0, SIZE[0], 80):
        for y in range(0, SIZE[1], 80):
            corners = [(x, y), (x + 80, y), (x + 80, y + 80), (x, y + 80)]
            del corners[dice.randrange(4)]
            draw.polygon(corners, fill=dice.choice(colours))
    return image


PICTURES: dict[str, Callable[[random.Random], Image.Image]] = {
    "circles": circles,
    "city": city,
    "dawn": dawn,
    "dunes": dunes,
    "dusk": dusk,
    "forest": forest,
    "lake": lake,
    "night": night,
    "noon": noon,
    "sea": sea,
    "spectrum": spectrum,
    "tiles": tiles,
}


def draw_all(folder: Path) -> None:
    """Write every picture as a JPEG that says who drew it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        image = draw(random.Random(f"dockwork {name}"))
        facts = Image.Exif()
        facts[0x010E] = f"{name}, drawn by draw.py"  # ImageDescription
        facts[0x0132] = "2026:11:30 12:00:00"  # DateTime
        image.save(folder / f"{name}.jpg", quality=86, optimize=True, exif=facts)


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]))

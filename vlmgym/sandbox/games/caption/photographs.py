"""Photographs with keywords, read from the installed scikit-image package.

The documentation of `skimage.data` states their licences; most are CC0 or in the public domain.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.extra import library
from vlmgym.sandbox.datasets.images import decode, letterbox
from vlmgym.sandbox.games.caption.keywords import Keyword


@dataclass(frozen=True)
class Photograph:
    """A photograph in scikit-image.

    Attributes:
        file: File name in `skimage/data`.
        sha256: Hash of the file, the same since release 0.22.
        words: Keywords for `read_keywords`, the most obvious first.
    """

    file: str
    sha256: str
    words: str

    @cached_property
    def keywords(self) -> tuple[Keyword, ...]:
        """The keywords with their synonyms."""
        return read_keywords(self.words)


def read_keywords(text: str) -> tuple[Keyword, ...]:
    """Parse keywords separated by commas, semicolons or line breaks, with synonyms after bars: `cat|kitten, table`."""
    for mark in ";\n":
        text = text.replace(mark, ",")
    groups = (tuple(filter(None, map(str.strip, group.split("|")))) for group in text.split(","))
    return tuple(group for group in groups if group)


PHOTOGRAPHS = {
    "astronaut": Photograph(
        "astronaut.png",
        "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
        "astronaut|cosmonaut|spacewoman, woman|lady|female, "
        "spacesuit|space suit|flight suit|pressure suit|suit|jumpsuit, flag|stars and stripes, helmet, "
        "shuttle|rocket|spacecraft|spaceship, orange, smile|smiling|smiles, patch|badge",
    ),
    "brick": Photograph(
        "brick.png",
        "7966caf324f6ba843118d98f7a07746d22f6a343430add0233eca5f6eaaa8fcf",
        "brick|brickwork|paver, wall|pavement|paving|floor|walkway|path|street|surface|sidewalk|masonry, "
        "grey|gray|black and white|monochrome|greyscale|grayscale|dark, row|column|line|pattern|bond|staggered, "
        "mortar|joint|grout|gap|seam, rectangle|rectangular|oblong|block|long|elongated|narrow",
    ),
    "camera": Photograph(
        "camera.png",
        "b0793d2adda0fa6ae899c03989482bff9a42d3d5690fc7e3648f2795d730c23a",
        "man|photographer|cameraman|person|male|guy, camera|camcorder, tripod, coat|jacket|overcoat|suit, "
        "grass|lawn|field|park|meadow, building|skyline|tower|city|cityscape|skyscraper, "
        "black and white|monochrome|greyscale|grayscale, glove",
    ),
    "chelsea": Photograph(
        "chelsea.png",
        "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
        "cat|kitten|kitty|feline|tabby, eye, whisker, face|head|portrait|close up|closeup, "
        "orange|ginger|brown|tan|golden, nose|snout|muzzle, green|yellow|hazel, "
        "fur|stripe|striped|tabby|furry|coat, ear",
    ),
    "coffee": Photograph(
        "coffee.png",
        "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
        "coffee|espresso, cup|mug, saucer|plate|dish, spoon|teaspoon, table|tabletop|desk, red|orange, "
        "wood|wooden, crema|foam|froth",
    ),
    "coins": Photograph(
        "coins.png",
        "f8d773fc9cfa6f4d8e5942dc34d0a0788fcaed2a4fefbbed0aef5398d7ef4cba",
        "coin|money|currency, old|ancient|antique|greek|roman|historic|historical|worn, "
        "row|line|grid|arranged|arrangement, head|face|portrait|profile|figure|relief|engraved|engraving|bust, "
        "black and white|monochrome|grey|gray|greyscale|grayscale|dark, "
        "metal|silver|bronze|metallic|collection|round",
    ),
    "grass": Photograph(
        "grass.png",
        "b6b6022426b38936c43a4ac09635cd78af074e90f42ffa8227ac8b7452d39f89",
        "grass|lawn|turf, leaf|foliage|clover|weed|plant|vegetation, "
        "black and white|monochrome|grey|gray|greyscale|grayscale, blade|stalk|stem|straw, "
        "ground|soil|earth|field|meadow|yard|garden, texture|close up|closeup|overhead|top down|from above|dense",
    ),
    "gravel": Photograph(
        "gravel.png",
        "c48615b451bf1e606fbd72c0aa9f8cc0f068ab7111ef7d93bb9b0f2586440c12",
        "gravel|stone|pebble|rock, small|tiny|little|crushed|fine, "
        "black and white|monochrome|grey|gray|greyscale|grayscale, ground|surface|path|bed|floor|driveway, "
        "texture|close up|closeup|overhead|top down|from above|dense|pile|many, "
        "rough|angular|irregular|jagged|sharp",
    ),
    "hubble_deep_field": Photograph(
        "hubble_deep_field.jpg",
        "3a19c5dd8a927a9334bb1229a6d63711b1c0c767fb27e2286e7c84a3e2c2f5f4",
        "galaxy, space|universe|cosmos|sky, star, deep field|telescope|hubble|astronomy|astronomical, "
        "black|dark|darkness, colour|color|colourful|colorful|red|orange|blue|bright, distant|faint|far|remote",
    ),
    "ihc": Photograph(
        "ihc.png",
        "f8dd1aa387ddd1f49d8ad13b50921b237df8e9b262606d258770687b0ef93cef",
        "tissue|histology|biopsy|histological|histopathology|pathology, cell|cellular, "
        "microscope|micrograph|microscopy|microscopic|slide|magnified, brown|tan, "
        "stain|stained|staining|immunohistochemistry|dye, blue|purple|violet, "
        "gland|crypt|colon|epithelium|nucleus|nuclei",
    ),
    "moon": Photograph(
        "moon.png",
        "78739619d11f7eb9c165bb5d2efd4772cee557812ec847532dbb1d92ef71f577",
        "moon|lunar, crater, surface|landscape|terrain|ground, "
        "black and white|monochrome|grey|gray|greyscale|grayscale, small|tiny|round|bowl, "
        "dark|shadow|shadowed|shaded|black, hill|mound|mountain|rise|peak|ridge|rock|boulder",
    ),
    "motorcycle": Photograph(
        "motorcycle_left.png",
        "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179",
        "motorcycle|motorbike|bike, red, garage|workshop|shed|storage|warehouse, shelf|shelving|rack, "
        "box|carton|cardboard, parked|parking|standing|kickstand|stand, bench|chair|seat, wheel|tyre|tire",
    ),
    "page": Photograph(
        "page.png",
        "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3",
        "text|paragraph|writing|print|printed|words|document, page|paper|book|sheet|textbook, segmentation, "
        "title|heading|header|headline, code|python|programming|numpy|command, "
        "region|marker|coin|histogram|pixel, "
        "black and white|monochrome|grey|gray|greyscale|grayscale|shadow|uneven",
    ),
    "retina": Photograph(
        "retina.jpg",
        "38a07f36f27f095e818aea7b96d34202c05176d30253c66733f2e00379e9e0e6",
        "retina|retinal|eye|fundus, vessel|vein|artery|capillary, red|orange|reddish, "
        "disc|disk|optic nerve|bright spot|yellow, circle|circular|round, black|dark, "
        "macula|fovea|dark spot|centre|center, medical|ophthalmology|ophthalmic|ophthalmological|scan|exam",
    ),
    "rocket": Photograph(
        "rocket.jpg",
        "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c",
        "rocket|missile|spacecraft|falcon, launch|launchpad|pad|spaceport, tower|mast|lattice|scaffolding|pylon, "
        "light|lamp|floodlight|lit|illuminated, night|dusk|evening|dawn|twilight|sunset|dark, sky, blue, white, "
        "stands|standing|upright|vertical|tall",
    ),
    "text": Photograph(
        "text.png",
        "bd84aa3a6e3c9887850d45d606c96b2e59433fbef50338570b63c319e668e6d1",
        "handwriting|handwritten|writing|written|script|note|scribble, "
        "formula|equation|math|mathematics|mathematical|calculus|symbol|expression, "
        "paper|page|notebook|sheet, line|lined|ruled, black and white|monochrome|grey|gray|greyscale|grayscale, "
        "ink|pen|pencil|marker|dark|black, "
        "angle|perspective|tilted|slanted|oblique|close up|closeup|blurry|blurred",
    ),
}
"""Photographs by name, in the order of seeds for `order=rows`."""


@lru_cache(maxsize=len(PHOTOGRAPHS))
def load_photograph(name: str, size: int) -> NDArray[np.uint8]:
    """Load a photograph fitted into a square with a grey margin: uint8 (size, size, 3), read-only.

    Args:
        name: A key of `PHOTOGRAPHS`.
        size: Side of the square in pixels.

    Raises:
        UsageError: scikit-image is not installed, or its file differs.
    """
    library("skimage", "a caption without data=", "tasks")
    found = PHOTOGRAPHS[name]
    try:
        content = (files("skimage") / "data" / found.file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {found.file} of scikit-image: {error}") from None
    if hashlib.sha256(content).hexdigest() != found.sha256:
        raise UsageError(f"{found.file} of scikit-image is not the image that the keywords describe")
    image = letterbox(decode(content), size)
    image.flags.writeable = False
    return image

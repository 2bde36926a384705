"""Rows of small pictures as one PNG, and as the ``src`` of an image that needs no other file.

A page that shows them must allow ``img-src data:``.  Equal pictures give equal bytes.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpgt_node.types import F64

if TYPE_CHECKING:
    from PIL.Image import Image

CELL = 84
"""Pixels of a picture's longer side, at least; small ones are enlarged by a whole factor, sharp."""
PER_ROW = 16
"""Pictures of a row that are shown; the caption says when there are more."""
_GAP, _CAPTION = 4, 14
_PAPER, _INK = (255, 255, 255), (40, 40, 40)


def png_grid(rows: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A PNG with a captioned row of pictures for each entry.

    Entries: (count, height, width), grey, or (count, height, width, 3), in [0, 1]; what lies outside is clipped, NaN is
    black.  ValueError: another shape, or no entry.
    """
    from PIL import Image, ImageDraw

    if not rows:
        raise ValueError("no pictures")
    drawn = [(_caption(name, len(values)), [_image(v) for v in _checked(name, values)[:PER_ROW]]) for name, values in
             rows.items()]  # fmt: skip
    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    width = max(
        max((_GAP + sum(image.width + _GAP for image in images) for _, images in drawn)),
        max(_GAP + int(ruler.textlength(caption)) + _GAP for caption, _ in drawn),
    )
    heights = [_CAPTION + max((image.height for image in images), default=0) + _GAP for _, images in drawn]
    page = Image.new("RGB", (width, _GAP + sum(heights)), _PAPER)
    draw, top = ImageDraw.Draw(page), _GAP
    for (caption, images), height in zip(drawn, heights, strict=True):
        draw.text((_GAP, top), caption, fill=_INK)
        left = _GAP
        for image in images:
            page.paste(image, (left, top + _CAPTION))
            left += image.width + _GAP
        top += height
    out = io.BytesIO()
    page.save(out, "PNG", optimize=True)
    return out.getvalue()


def data_uri(rows: Mapping[str, npt.NDArray[Any]]) -> str:
    """The same as the ``src`` of an image, its bytes in it."""
    return f"data:image/png;base64,{base64.b64encode(png_grid(rows)).decode('ascii')}"


def _checked(name: str, values: npt.NDArray[Any]) -> F64:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] != 3) or 0 in array.shape[1:]:
        raise ValueError(f"{name}: pictures of shape {array.shape} are neither grey nor RGB")
    return array


def _caption(name: str, count: int) -> str:
    # Pillow's own font has Latin letters only, and what it lacks it may refuse.
    text = name.encode("ascii", "replace").decode("ascii")
    return f"{text} (first {PER_ROW} of {count})" if count > PER_ROW else text


def _image(values: F64) -> Image:
    from PIL import Image

    grey = np.clip(np.nan_to_num(values, nan=0.0), 0.0, 1.0)
    image = Image.fromarray(np.rint(255.0 * grey).astype(np.uint8))
    factor = max(1, CELL // max(image.size))
    return image.convert("RGB").resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)

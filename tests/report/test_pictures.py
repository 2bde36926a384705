"""Grids of pictures: what a page shows is what it was given."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from dpgt_node.report.pictures import CELL, PER_ROW, data_uri, png_grid


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_pictures_are_enlarged_and_kept() -> None:
    picture = np.arange(16).reshape(4, 4) / 15
    colour = np.stack([picture, picture.T, 1 - picture], axis=-1)
    page = pixels(png_grid({"true": picture[None], "recovered": colour[None]}))
    for wanted in (np.repeat(picture[..., None], 3, axis=-1), colour):
        large = np.rint(255 * wanted).astype(np.uint8).repeat(CELL // 4, axis=0).repeat(CELL // 4, axis=1)
        places = [
            (i, j)
            for i in range(page.shape[0] - CELL + 1)
            for j in range(page.shape[1] - CELL + 1)
            if (page[i, j] == large[0, 0]).all() and (page[i : i + CELL, j : j + CELL] == large).all()
        ]
        assert places, "not on the page"


def test_it_clips_and_survives_what_an_attack_may_return() -> None:
    rows = {"y̆ of агент": np.array([[[np.nan, -3.0], [7.0, 0.5]]]), "none": np.zeros((0, 2, 2))}
    page = pixels(png_grid(rows))
    assert {0, 255, 128} <= set(page[..., 0].ravel())
    many = pixels(png_grid({"many": np.zeros((PER_ROW + 5, 2, 2))}))
    assert many.shape[1] <= (PER_ROW + 1) * (CELL + 8)


def test_equal_pictures_give_equal_bytes_and_fit_into_a_page() -> None:
    rows = {"a": np.full((2, 8, 8), 0.3)}
    assert png_grid(rows) == png_grid(rows)
    kind, data = data_uri(rows).split(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(data) == png_grid(rows)


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8, 4), (1, 0, 8), (1, 2, 3, 4, 5)])
def test_other_shapes_are_refused(shape) -> None:
    with pytest.raises(ValueError, match="row: pictures of shape"):
        png_grid({"row": np.zeros(shape)})
    with pytest.raises(ValueError, match="no pictures"):
        png_grid({})

"""What a layout says about its padding."""

import numpy as np
import pytest

from mlsdk.pipeline.ir.image import Image
from mlsdk.pipeline.ir.layout import L1B, L2B, MAB
from mlsdk.pipeline.ir.scheme import LOCAL, Digit, Scheme, spread


@pytest.mark.parametrize("dtype", ["half", "single", "double"])
@pytest.mark.parametrize("shape", [(256,), (10,), (64, 10), (10, 64), (16, 16), (7, 33), (128, 1024)])
def test_full_images_have_an_element_in_every_place(shape, dtype):
    """Seen by packing ones: only what ends a granule may stay zero."""
    scheme = spread(shape, len(shape) - 1)
    image = Image(scheme.layout(dtype), dtype, shape)
    bits = {"half": np.uint16, "single": np.uint32, "double": np.uint64}[dtype]
    packed = image.pack(np.full(shape, np.iinfo(bits).max, bits))
    places = packed.reshape(4, image.l2bs_used, -1)[:, :, : image.addresses * image.lw_per_address]
    assert image.full == bool((places == np.iinfo(np.uint64).max).all())


@pytest.mark.parametrize(("shape", "lanes"), [((64, 10), True), ((60, 16), False), ((64, 16), True), ((64, 20), True)])
def test_only_lanes_are_padding(shape, lanes):
    rows = (Digit(8, L2B, 1), Digit(8, L1B, 1))
    blocks = (Digit(2, LOCAL, 0),) if shape[1] > 16 else ()
    assert Scheme((rows, blocks), 1).only_lanes_padded(shape, "single") == lanes


def test_places_that_no_digit_reaches_are_padding_too():
    assert not Scheme(((Digit(10, MAB, 1),), ()), 1).only_lanes_padded((10, 16), "single")
    assert Scheme(((Digit(16, MAB, 1),), ()), 1).only_lanes_padded((16, 16), "single")


def test_copies_over_unused_levels_say_nothing():
    copies = (Digit(8, L2B, 1), Digit(2, MAB, 8))
    scheme = Scheme(((Digit(8, MAB, 1),), ()), 1, copies)
    assert scheme.plain.copies == (Digit(2, MAB, 8),)
    assert scheme.plain.layout("half") == scheme.layout("half")

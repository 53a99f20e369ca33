"""Pictures of ten shapes on 16 x 16 pixels, drawn at random: the data of denoiser.py and classifier.py."""

import torch

PIXELS = 16
KINDS = 10


def shapes(count, source):
    """Pictures [count, 1, 16, 16] with values from -1 to 1, and their kinds [count]."""
    kinds = torch.randint(0, KINDS, (count,), generator=source)
    middle = PIXELS / 2 + 4 * torch.rand(2, count, 1, 1, generator=source) - 2
    radius = 3 + 3 * torch.rand(count, 1, 1, generator=source)
    at = torch.arange(PIXELS) + 0.5
    x, y = (at - middle[0]).expand(-1, PIXELS, -1), (at[:, None] - middle[1]).expand(-1, -1, PIXELS)
    round_, square, diamond = (x * x + y * y).sqrt(), torch.maximum(x.abs(), y.abs()), (x.abs() + y.abs()) / 1.4
    thin = radius / 3
    # How far inside a shape a pixel is.
    inside = torch.stack(
        [
            radius - round_,  # disc
            thin - (round_ - radius + thin).abs(),  # ring
            radius - square,  # square
            thin - (square - radius + thin).abs(),  # frame
            radius - diamond,  # diamond
            torch.minimum(radius - square, thin - torch.minimum(x.abs(), y.abs())),  # plus
            torch.minimum(radius - square, thin - torch.minimum((x - y).abs(), (x + y).abs()) / 1.4),  # cross
            torch.minimum(radius - square, torch.maximum(x, y) + thin),  # a square without a corner
            torch.minimum(radius - y.abs(), (y + radius) / 2 - x.abs()),  # triangle
            torch.minimum(radius - y.abs(), (radius - y) / 2 - x.abs()),  # triangle on its tip
        ]
    )
    drawn = torch.tanh(2 * inside[kinds, torch.arange(count)])
    return drawn.unsqueeze(1), kinds

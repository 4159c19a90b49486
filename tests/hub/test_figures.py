import sys
from dataclasses import replace

from matplotlib.image import imread

from hf_elastic.hub.figures import draw_pareto


def test_the_picture_is_a_png_with_something_on_it(manifest, tmp_path):
    draw_pareto(manifest, tmp_path / "pareto.png")
    pixels = imread(tmp_path / "pareto.png")
    height, width = pixels.shape[:2]
    assert width > 2 * height > 800
    assert 0.02 < (pixels[..., :3].min(axis=-1) < 0.9).mean() < 0.3


def test_the_same_family_gives_the_same_file(manifest, tmp_path):
    for name in ("one.png", "two.png"):
        draw_pareto(manifest, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_members_without_the_metric_are_left_out(manifest, tmp_path):
    draw_pareto(manifest, tmp_path / "all.png")
    draw_pareto(replace(manifest, members=manifest.members[:2]), tmp_path / "evaluated.png")
    assert (tmp_path / "all.png").read_bytes() == (tmp_path / "evaluated.png").read_bytes()


def test_pyplot_and_its_global_state_are_not_touched(manifest, tmp_path):
    loaded = "matplotlib.pyplot" in sys.modules
    draw_pareto(manifest, tmp_path / "pareto.png")
    assert ("matplotlib.pyplot" in sys.modules) == loaded

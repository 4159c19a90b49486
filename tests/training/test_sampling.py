import random
import subprocess
import sys
from collections import Counter

import pytest

from hf_elastic.training.sampling import SubnetSampler

SIZES = {"tiny": 1, "large": 100, "small": 10, "base": 50, "medium": 30}
LARGEST_FIRST = ["large", "base", "medium", "small", "tiny"]


def test_joint_draws_all():
    sampler = SubnetSampler(SIZES, "joint")
    assert all(sampler.draw(step) == LARGEST_FIRST for step in range(5))


@pytest.mark.parametrize("num_random", [0, 1, 2, 3, 9])
def test_sandwich_has_both_ends_and_some_between(num_random):
    sampler = SubnetSampler(SIZES, "sandwich", num_random=num_random)
    for step in range(50):
        drawn = sampler.draw(step)
        assert drawn[0] == "large" and drawn[-1] == "tiny"
        assert len(drawn) == 2 + min(num_random, 3)
        assert drawn == [name for name in LARGEST_FIRST if name in drawn]


@pytest.mark.parametrize("strategy", ["joint", "sandwich"])
@pytest.mark.parametrize("names", [["only"], ["large", "small"]])
def test_few_subnets_are_never_drawn_twice(strategy, names):
    sampler = SubnetSampler({name: -i for i, name in enumerate(names)}, strategy, num_random=2)
    assert sampler.draw(3) == names


def test_one_per_step_is_uniform():
    sampler = SubnetSampler(SIZES, "one_per_step")
    draws = [sampler.draw(step) for step in range(5000)]
    assert all(len(drawn) == 1 for drawn in draws)
    counts = Counter(drawn[0] for drawn in draws)
    assert all(abs(counts[name] - 1000) < 120 for name in SIZES)  # more than 4 standard deviations


def test_every_subnet_between_gets_its_turn():
    sampler = SubnetSampler(SIZES, "sandwich", num_random=1)
    counts = Counter(sampler.draw(step)[1] for step in range(3000))
    assert all(abs(counts[name] - 1000) < 120 for name in ("base", "medium", "small"))


@pytest.mark.parametrize("strategy", ["sandwich", "one_per_step"])
def test_a_draw_depends_on_seed_and_step_alone(strategy):
    draws = [SubnetSampler(SIZES, strategy, seed=7).draw(step) for step in range(40)]
    random.seed(123)  # neither global state nor earlier draws matter
    assert [SubnetSampler(SIZES, strategy, seed=7).draw(step) for step in reversed(range(40))] == draws[::-1]
    assert [SubnetSampler(SIZES, strategy, seed=8).draw(step) for step in range(40)] != draws


def test_another_process_draws_the_same():
    code = (
        "from hf_elastic.training.sampling import SubnetSampler\n"
        f"sampler = SubnetSampler({SIZES!r}, 'one_per_step', seed=3)\n"
        "print(*[sampler.draw(step)[0] for step in range(30)])"
    )
    drawn = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert drawn == [SubnetSampler(SIZES, "one_per_step", seed=3).draw(step)[0] for step in range(30)]


def test_sampling_leaves_the_global_random_state_alone():
    state = random.getstate()
    SubnetSampler(SIZES, "sandwich").draw(1)
    assert random.getstate() == state


def test_unknown_strategy_lists_the_choices():
    with pytest.raises(ValueError, match="'all'.*joint, sandwich, one_per_step"):
        SubnetSampler(SIZES, "all")


def test_bad_counts():
    with pytest.raises(ValueError, match="-1"):
        SubnetSampler(SIZES, num_random=-1)
    with pytest.raises(ValueError, match="no subnets"):
        SubnetSampler({})

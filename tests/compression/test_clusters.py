import pytest
import torch

from hf_elastic.compression.clusters import balanced_clusters


def test_finds_clusters_that_are_there():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randperm(40, generator=generator) % 4
    features = 10 * torch.eye(4)[labels] + 0.1 * torch.randn(40, 4, generator=generator)
    clusters = balanced_clusters(features, 4)
    assert clusters.shape == (4, 10)
    assert all(len(set(labels[cluster].tolist())) == 1 for cluster in clusters)


def test_sizes_are_equal_where_the_points_are_not():
    features = torch.cat([torch.zeros(9, 2), torch.ones(3, 2)])
    clusters = balanced_clusters(features, 3)
    assert clusters.shape == (3, 4)
    assert sorted(clusters.flatten().tolist()) == list(range(12))
    assert all(cluster.tolist() == sorted(cluster.tolist()) for cluster in clusters)
    # Nine equal points fill two clusters; the three others are in one, with the last of the nine.
    assert sorted(cluster.ge(9).sum().item() for cluster in clusters) == [0, 0, 3]


def test_equal_points():
    assert sorted(balanced_clusters(torch.ones(6, 3), 3).flatten().tolist()) == list(range(6))


def test_uneven_number_of_points():
    with pytest.raises(ValueError, match="num_clusters=4 does not divide the number of points, 6"):
        balanced_clusters(torch.ones(6, 3), 4)

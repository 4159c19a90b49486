"""Clusters of equal size."""

import torch


@torch.no_grad()
def balanced_clusters(features: torch.Tensor, num_clusters: int, max_iterations: int = 20) -> torch.Tensor:
    """Puts points into clusters of equal size by k-means.

    In each step the points with the most to lose choose first: those whose distances to the centers differ most. A
    point whose cluster is full goes to the next nearest one.

    Args:
        features (`torch.Tensor` of shape `(points, dimensions)`):
            The points, whose number is a multiple of `num_clusters`.
        num_clusters (`int`):
            Number of clusters.
        max_iterations (`int`, defaults to 20):
            Number of steps at most; it ends earlier where no point moves.

    Returns:
        `torch.Tensor` of shape `(num_clusters, points // num_clusters)`: The points of each cluster, in ascending
        order. Nothing in them is left to chance.

    Raises:
        ValueError: If `num_clusters` does not divide the number of points.
    """
    if len(features) % num_clusters:
        raise ValueError(f"num_clusters={num_clusters} does not divide the number of points, {len(features)}.")
    centers = _first_centers(features, num_clusters)
    best, least = None, float("inf")
    for _ in range(max_iterations):
        distances = torch.cdist(features, centers).square()
        clusters = _assign(distances, len(features) // num_clusters)
        cost = distances.gather(1, clusters.unsqueeze(1)).sum().item()
        if cost >= least:
            break
        best, least = clusters, cost
        centers = torch.stack([features[clusters == cluster].mean(dim=0) for cluster in range(num_clusters)])
    return best.argsort(stable=True).view(num_clusters, -1)


def _first_centers(features: torch.Tensor, count: int) -> torch.Tensor:
    """Draws points that are far from each other (k-means++, Arthur and Vassilvitskii 2007)."""
    generator = torch.Generator().manual_seed(0)
    chosen = [torch.randint(len(features), (1,), generator=generator).item()]
    while len(chosen) < count:
        distances = torch.cdist(features, features[chosen]).min(dim=1).values.square()
        # The tiny summand lets equal points be drawn where there are no others.
        chosen.append(torch.multinomial(distances.cpu() + 1e-12, 1, generator=generator).item())
    return features[chosen]


def _assign(distances: torch.Tensor, size: int) -> torch.Tensor:
    nearest = distances.sort(dim=1)
    hurry = nearest.values[:, -1] - nearest.values[:, 0]
    preferences = nearest.indices.tolist()
    places = [size] * distances.shape[1]
    clusters = [0] * len(distances)
    for point in hurry.argsort(descending=True, stable=True).tolist():
        cluster = next(cluster for cluster in preferences[point] if places[cluster])
        clusters[point] = cluster
        places[cluster] -= 1
    return torch.tensor(clusters, device=distances.device)

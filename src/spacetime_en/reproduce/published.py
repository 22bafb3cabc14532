"""The errors that the paper reports, and the lower bound that some of them violate."""

from spacetime_en.data.windows import Windows

# Test MSE as published, by table and model (Tables 1, 2, 4, 5 and the noisy one).
PUBLISHED: dict[str, dict[str, str]] = {
    "baselines": dict(
        set="1.25e-10", lstm="2.03e-08", egnn="2.05e-06", mlp="3.48e-06", linear="3.04"
    ),
    "n20": dict(set="5.72e-11", lstm="1.02e-04", egnn="5.34e-05", mlp="3.77e-06", linear="4.48"),
    "n30": dict(set="1.20e-10", lstm="1.95e-07", egnn="5.88e-05", mlp="3.99e-06", linear="5.19"),
    "noisy": dict(set="4.97e-01", lstm="4.98e-01", egnn="4.98e-01", mlp="4.97e-01", linear="3.60"),
    "ablation": {
        "set": "1.25e-10",
        "nonequivariant": "2.03e-10",
        "adjacency-flattened": "1.29e-10",
        "no-temporal": "3.57e-10",
    },
}


def centroid_variance(windows: Windows) -> float:
    """The variance of a coordinate of the inputs' centroid, whose mean is zero.

    A translation-equivariant forecast is the centroid of the first frame plus a term that does not
    depend on the centroid. On targets that are all zero its error is therefore at least this
    variance: sigma^2 / N, 0.2 for the paper's N = 5.
    """
    graph, _ = windows.without_noise()[:]
    return float(graph.x[:, 0].double().mean(1).square().mean())

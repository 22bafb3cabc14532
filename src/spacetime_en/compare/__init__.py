"""Comparisons: jobs that train and test, carried out in parallel, and a report of their results."""

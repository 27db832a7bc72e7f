"""Medians of ratios of interleaved pairs, with bootstrap intervals."""

import random
import statistics


def medians(ratios):
    generator = random.Random(1)
    return sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(4000))


def interval(ratios):
    """Median and its 95 % interval."""
    drawn = medians(ratios)
    return statistics.median(ratios), drawn[100], drawn[3899]


def median_and_bound(ratios):
    """Median, and the upper end of its one-sided 95 % interval."""
    return statistics.median(ratios), medians(ratios)[3800]

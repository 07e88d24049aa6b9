#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the curves of examples/c/gpt: losses, and each run's paired difference to BF16 of the same seed.

usage: plot_curves.py DIR [PICTURE]      DIR holds curves.csv; PICTURE is DIR/curves.png by default

Prints the differences too, as means over tenths of the steps. A run whose name has a ; is a variant of the one before it:
"none;micro=2" is drawn and printed as a difference to BF16, as recipes are. It needs matplotlib, which scripts/setup.sh demo
installs into .dev/venv: then .dev/venv/bin/python scripts/plot_curves.py DIR
"""
import csv
import pathlib
import shlex
import sys
from collections import defaultdict

try:
    import matplotlib
    import numpy as np
except ModuleNotFoundError:  # said by main(): --help needs neither
    matplotlib = None

NAMES = {"none": "BF16", "tensor": "TENSOR", "row": "ROW", "block": "BLOCK", "mx": "MX", "mx_w2d": "MX_W2D"}
COLOURS = {"none": "black", "tensor": "tab:blue", "row": "tab:orange", "block": "tab:green", "mx": "tab:purple",
           "mx_w2d": "tab:cyan", "none+outliers": "dimgray", "mx+outliers": "tab:pink", "mx+wgrad-axis": "tab:red",
           "tensor+dy-e4m3-tensor": "tab:brown", "mx+floor-outliers": "tab:olive", "tensor;fast=none": "tab:red",
           "tensor;format=e4m3": "tab:brown", "none;micro=2": "gray"}


def smooth(values, width):
    """Mean over the last `width` steps: never looks ahead, starts with what there is."""
    sums = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - width, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def read(path):
    curves = defaultdict(list)
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            curves[row["run"], int(row["seed"])].append(float(row["loss"]))
    return {key: np.array(values) for key, values in curves.items()}


def style(run):
    base, _, text = run.partition(";")  # a recipe by its text, which may hold a +: coverage=fprop+dgrad
    base, _, fault = base.partition("+")
    label = NAMES.get(base, base) + (f" {text.replace(';', ' ')}" if text else "") + (f" with {fault}" if fault else "")
    return label, COLOURS.get(run)


def baseline(run):
    """Runs with outlier channels are paired with a baseline that has them too."""
    return "none+outliers" if run.endswith("outliers") and run != "none+outliers" else "none"


def print_tenths(curves):
    """One line a run: the mean over seeds of its difference to the baseline, by tenths; of BF16's own seeds to the first."""
    print("\nGap to BF16 (of the same seed, in nats a byte) in each tenth of the steps:\n")
    print("| run | " + " | ".join(str(i + 1) for i in range(10)) + " |\n| --- |" + " ---: |" * 10)
    first = min(seed for run, seed in curves if run == "none")
    for run in dict.fromkeys(run for run, _ in curves):
        pairs = [(seed, first if run == "none" else seed, baseline(run)) for name, seed in curves if name == run]
        gaps = [curves[run, seed] - curves[base, other] for seed, other, base in pairs if (run, seed) != (base, other)]
        if run == "none":  # seeds are another text each: how far apart, not in which direction
            gaps = np.abs([[part.mean() for part in np.array_split(gap, 10)] for gap in gaps])
        else:
            gaps = np.array([[part.mean() for part in np.array_split(gap, 10)] for gap in gaps])
        if len(gaps):
            label = "BF16, other seeds, apart" if run == "none" else style(run)[0]
            print(f"| {label} | " + " | ".join(f"{gap:{'' if run == 'none' else '+'}.4f}" for gap in gaps.mean(0)) + " |")


def need_matplotlib():
    """matplotlib.pyplot, for files alone"""
    if not matplotlib:
        venv = pathlib.Path(__file__).resolve().parent.parent / ".dev/venv/bin/python"
        words = " ".join([str(venv), *map(shlex.quote, sys.argv)])
        sys.exit("plot_curves.py: this Python has no matplotlib; " + (f"the project's has: {words}" if venv.exists() else
                 "scripts/setup.sh demo installs it into .dev/venv (or: pip install matplotlib)"))
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    return plt


def main():
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        sys.exit(0)
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    plt = need_matplotlib()
    folder = pathlib.Path(sys.argv[1])
    picture = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else folder / "curves.png"
    try:
        curves = read(folder / "curves.csv")
    except OSError as error:
        sys.exit(f"plot_curves.py: {error.filename}: {error.strerror}")
    if not curves:
        sys.exit(f"{folder / 'curves.csv'} holds no curves")
    steps = max(len(values) for values in curves.values())
    width = max(1, steps // 20)

    figure, (losses, gaps) = plt.subplots(2, 1, figsize=(9, 8), height_ratios=[3, 2], sharex=True, layout="constrained")
    runs = list(dict.fromkeys(run for run, _ in curves))
    largest, beyond = 0.0, 0.0  # of the recipes' differences when settled; of all differences
    first = curves.get(("none", min(seed for run, seed in curves if run == "none")))
    for run in runs:
        label, colour = style(run)
        seeds = [seed for name, seed in curves if name == run]
        lines = [curves[run, seed] for seed in seeds]
        if len(lines) > 2:  # more lines than an eye can follow: their mean
            lines = [np.mean(lines, axis=0)]
        for i, values in enumerate(lines):
            x = np.arange(1, len(values) + 1)
            losses.plot(x, smooth(values, width), color=colour, linewidth=1.6 if run == "none" else 1.0,
                        linestyle="-" if i == 0 else ":", label=label if i == 0 else f"{label}, seed {seeds[i]}")
        if run in ("none", "none+outliers"):
            continue
        paired = [curves[run, seed] - curves[baseline(run), seed] for seed in seeds]
        if paired:
            difference = smooth(np.mean(paired, axis=0), width)
            if "+" not in run.partition(";")[0]:
                largest = max(largest, np.abs(difference[max(1, steps // 8):]).max(initial=0.0))
            beyond = max(beyond, np.abs(difference).max(initial=0.0))
            gaps.plot(np.arange(1, len(difference) + 1), difference, color=colour)
    others = [values - first for (run, _), values in curves.items() if run == "none" and values is not first]
    if others:
        spread = smooth(np.mean(np.abs([smooth(values, width) for values in others]), axis=0), width)
        x = np.arange(1, len(spread) + 1)
        gaps.fill_between(x, -spread, spread, color="black", alpha=0.12, linewidth=0,
                          label="BF16, other seeds; lines as above")
    gaps.axhline(0.0, color="black", linewidth=0.8)
    if 0.0 < 5.0 * largest < beyond:  # a planted fault or the first steps would flatten what matters
        gaps.set_yscale("symlog", linthresh=largest, linscale=2.0)
    elif others and 0.0 < 4.0 * largest < spread.max():  # seeds may leave the picture
        gaps.set_ylim(-2.0 * largest, 2.0 * largest)
    # The first steps fall from 5.5 and would flatten the rest; a fault may leave the picture, recipes must not.
    settled = [smooth(v, width)[max(1, steps // 8):] for (run, _), v in curves.items() if np.all(np.isfinite(v))]
    if settled and all(len(v) for v in settled):
        low, high = min(v.min() for v in settled), max(v.max() for v in settled)
        losses.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        if any(not run.startswith("none") for run in runs) and largest < 0.02 * (high - low):
            losses.text(0.99, 0.02, "the recipes' curves coincide at this scale: their differences are below",
                        transform=losses.transAxes, ha="right", fontsize="small")
    losses.set_ylabel("training loss (nats a byte)")
    seeds = len({seed for _, seed in curves})
    means = [f"{width} steps"] * (width > 1) + [f"{seeds} seeds"] * (seeds > 2)
    losses.set_title("byte-level GPT, BF16 and FP8 recipes" + (f" (means over {' and '.join(means)})" if means else ""))
    losses.legend(fontsize="small", ncols=2)
    gaps.set_ylabel("difference to BF16, same seed")
    gaps.set_xlabel("optimizer step")
    gaps.set_xlim(1, steps)
    if others:
        gaps.legend(fontsize="small", loc="lower left")
    for axes in (losses, gaps):
        axes.grid(alpha=0.3)
    figure.savefig(picture, dpi=110)
    if steps >= 10:
        print_tenths(curves)
    print(f"picture in {picture}")


if __name__ == "__main__":
    main()

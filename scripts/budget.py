#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints where the time of scripts/test.sh went: each stage, and each ctest label of the main build.

usage: budget.py BUILD_DIR STAGES_TSV
"""
import collections
import json
import subprocess
import sys
import xml.etree.ElementTree as ET

LIMIT = 40 * 60  # seconds that the whole of scripts/test.sh may take on two cores


def test_times(build):
    """name -> seconds, from the JUnit file that ctest wrote into the build folder"""
    root = ET.parse(f"{build}/ctest.xml").getroot()
    return {case.get("name"): float(case.get("time") or 0) for case in root.iter("testcase")}


def test_labels(build):
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, check=True)
    labels = {}
    for test in json.loads(listing.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        labels[test["name"]] = properties.get("LABELS") or ["(none)"]
    return labels


def main():
    build, stages = sys.argv[1:]
    times, labels = test_times(build), test_labels(build)
    per_label = collections.defaultdict(list)
    for name, seconds in times.items():
        for label in labels.get(name, ["(none)"]):
            per_label[label].append((seconds, name))
    print("\nTime per ctest label (summed over its tests; tests run side by side)")
    print(f"{'label':<12}{'tests':>6}{'seconds':>10}   slowest")
    for label, entries in sorted(per_label.items(), key=lambda item: -sum(s for s, _ in item[1])):
        slowest = max(entries)
        print(f"{label:<12}{len(entries):>6}{sum(s for s, _ in entries):>10.1f}   {slowest[1]} ({slowest[0]:.1f} s)")
    print("\nWall time per stage")
    total = 0
    with open(stages, encoding="utf-8") as lines:
        for line in lines:
            name, seconds = line.rstrip("\n").split("\t")
            total += int(seconds)
            print(f"{name:<20}{int(seconds):>8} s")
    print(f"{'all':<20}{total:>8} s of {LIMIT} s\n")
    if total > LIMIT:
        print("over the budget: make the slowest tests shorter")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Converts a .npz file of NumPy to safetensors, for "dataset": {"format": "tensors"}."""

import argparse
import sys

import numpy
from safetensors.numpy import save_file


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("npz", help="file of numpy.savez()")
    parser.add_argument("safetensors", help="file to write")
    given = parser.parse_args()
    with numpy.load(given.npz, allow_pickle=False) as file:
        arrays = {name: numpy.ascontiguousarray(file[name]) for name in file.files}
    lengths = {name: array.shape[0] if array.ndim else None for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        sys.exit(f"{given.npz}: the first dimensions must count the same samples, they are {lengths}")
    save_file(arrays, given.safetensors)


if __name__ == "__main__":
    main()

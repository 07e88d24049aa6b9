#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a text for examples/c/gpt --data, larger than the Perl manual: documentation and a dictionary of Debian, fetched
by apt-get and not installed.

usage: corpus.py TEXT [PACKAGE PATTERN]...

TEXT is written; PATTERN says which files of PACKAGE are taken (a regular expression over their whole path; .gz and .dz are
unpacked). Files are cut at ends of lines into parts of about 64 KB, and the parts are ordered by the hash of their names:
so every stretch of TEXT, its held-out end too, is of all packages. The same versions give the same bytes.
"""
import gzip
import hashlib
import io
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

PACKAGES = {  # 84 MB
    "perl-doc": r"/usr/share/perl/5[^/]*/pod/.*\.pod",
    "linux-doc-6.1": r"/usr/share/doc/linux-doc-6.1/html/_sources/(?!translations/).*\.txt",
    "python3.11-doc": r"/usr/share/doc/python3.11/html/_sources/.*\.txt",
    "git-doc": r"/usr/share/doc/git(-doc)?/.*\.txt",
    "dict-gcide": r"/usr/share/dictd/gcide\.dict\.dz",
}
PART = 1 << 16


def files_of(deb, pattern):
    """path -> bytes of the regular files that match, unpacked"""
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for member in archive:
            path = member.name.removeprefix(".")
            if member.isfile() and re.fullmatch(pattern, path):
                data = archive.extractfile(member).read()
                yield path, gzip.decompress(data) if path.endswith((".gz", ".dz")) else data


def parts_of(data):
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + PART) + 1 or len(data)
        yield data[start:end]
        start = end


def main():
    if len(sys.argv) % 2 or "--help" in sys.argv or "-h" in sys.argv:
        sys.exit(__doc__)
    out, given = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    packages = dict(zip(given[::2], given[1::2])) or PACKAGES
    if given and len(packages) != len(given) // 2:
        sys.exit("corpus.py: a package is named twice; one pattern may hold both: a|b")
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        apt = ["apt-get", "-qq", "-o", "APT::Sandbox::User=", "download"]
        if subprocess.run([*apt, *packages], cwd=folder).returncode:
            sys.exit("corpus.py: apt-get cannot download these packages")
        for package, pattern in packages.items():
            (deb,) = pathlib.Path(folder).glob(f"{package}_*.deb")
            before = sum(len(text) for _, text in parts)
            for path, data in files_of(deb, pattern):
                for i, text in enumerate(parts_of(data)):
                    parts.append((hashlib.sha256(f"{path} {i}".encode()).digest(), text))
            size = sum(len(text) for _, text in parts) - before
            print(f"{size / 1e6:6.1f} MB  {deb.name}")
            if not size:
                sys.exit(f"corpus.py: no file of {package} matches {pattern}")
    text = b"".join(text for _, text in sorted(parts))
    out.write_bytes(text)
    print(f"{len(text) / 1e6:6.1f} MB  {out.name}, SHA-256 {hashlib.sha256(text).hexdigest()}")


if __name__ == "__main__":
    main()

"""`make fuzz`: bad input at REST, gRPC and everything that reads text, generated from one seed.

    python -m tests.fuzz [--only rest|grpc|parsers|expressions] [--place NAME] [--cases N] [--seed N]

Without `--cases` it is 20,000 requests, 4,000 gRPC calls and streams, 100,000 texts, and 50,000 expressions over every function. It ends with 1
when anything was found.
"""

import argparse
import resource
import sys
import time
from contextlib import nullcontext

from tests.fuzz.running import PARTS, go
from tests.fuzz.target import Target, resident_mib

MEMORY_MAX = 8 << 30
"""What takes more is a finding, and not the end of what else runs on the machine."""
FULL = {"rest": 20_000, "grpc": 4_000, "parsers": 100_000, "expressions": 50_000}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=PARTS, help="one of the parts")
    parser.add_argument(
        "--place",
        default="",
        help="one resource, such as v1/pods/status, one parser, or where an expression is evaluated",
    )
    parser.add_argument("--cases", type=int, default=0, help="how many of each part")
    parser.add_argument("--seed", type=int, default=1, help="what all of them follow from")
    asked = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    found = []
    for part in [asked.only] if asked.only else PARTS:
        begun_s = time.monotonic()
        with Target() if part in ("rest", "grpc") else nullcontext() as target:
            before_mib = resident_mib()
            found += go(part, target, asked.cases or FULL[part], asked.seed, asked.place)
            grown_mib = resident_mib() - before_mib
        sys.stdout.write(f"{part}: {time.monotonic() - begun_s:.0f} s, memory of this process +{grown_mib:.0f} MiB\n\n")
        sys.stdout.flush()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

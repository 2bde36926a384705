"""``python -m tests.golden --record [WORD]``: write the scripts anew, all or those whose name holds WORD."""

from __future__ import annotations

import argparse

from tests.golden import record

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--record", action="store_true", required=True, help="write the scripts anew")
    parser.add_argument("word", nargs="?", default="", help="only those whose name holds it")
    for line in record.record(parser.parse_args().word):
        print(line)

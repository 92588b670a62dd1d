"""The differential test at length: tests/words/run.py --forms 100000 --seed 7 --redis-server /path/to/valkey-server.

Goes on with the next seed until so many forms were run. Exit status 1 if anything was found.
"""

import argparse
import os
import pathlib
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "words")]
sys.dont_write_bytecode = True


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--forms", type=int, default=100_000, help="how many are run at least (100000)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--redis-server", default="redis-server", help="the server's binary")
    parser.add_argument("--findings", type=int, default=20, help="a part ends with so many (20)")
    parser.add_argument("--part", choices=("names", "words", "attacks", "renamed", "sequences"), help="only this one")
    return parser.parse_args()


def parts_of_a_pass(options, seed):
    """(name, renamed command or None, function of a world)."""
    import parts

    most = options.findings
    yield "names", None, lambda world: parts.run_names(world, seed, most=most)
    yield "words", None, lambda world: parts.run_words(world, seed, step=1, most=most)
    yield "attacks", None, lambda world: parts.run_attacks(world, seed, step=1, most=most)
    for name in parts.RENAMED:
        yield "renamed", name, lambda world, name=name: parts.run_attacks(world, seed, 1, most, renamed=name)
    yield "sequences", None, lambda world: parts.run_sequences(world, seed, count=15_000, most=most)


def main():
    options = parsed()
    os.environ["HEADGATE_REDIS_SERVER"] = options.redis_server
    import parts

    count = found = 0
    seed = options.seed
    while count < options.forms and not found:
        for part, renamed, run_part in parts_of_a_pass(options, seed):
            if options.part and part != options.part:
                continue
            start = time.monotonic()
            world = parts.world_with(renamed)
            try:
                runner = run_part(world)
            finally:
                world.finish()
            count += runner.count
            found += len(runner.findings)
            name = f"{part} {renamed}" if renamed else part
            print(
                f"seed {seed}: {name}: {runner.count} run, {len(runner.findings)} findings, {time.monotonic() - start:.1f} s"
            )
            for finding in runner.findings:
                print(finding, flush=True)
        seed += 1
    print(f"{count} run, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

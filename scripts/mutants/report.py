"""Tells what came of the trials."""

from collections import Counter

from mutants.running import STAGES

OTHER_STATES = ("not noticed", "out of time", "not reached")


def tell(sites, results, tests):
    tried = [(site, results[str(site["number"])]) for site in sites if str(site["number"]) in results]
    states = Counter(result["state"] for _, result in tried)
    print(f"{len(tried)} of {len(sites)} mutants tried: {share(tried)}", *(f"{states[state]} {state}" for state in OTHER_STATES), sep=", ")
    print(f"tests that failed by chance, once only: {sum(len(result['chance']) for _, result in tried)}")
    for what in ("area", "kind"):
        for value, _ in Counter(site[what] for site, _ in tried).most_common():
            print(f"  {value:12s} {share([pair for pair in tried if pair[0][what] == value])}")
    print("\nby stage: mutants that its tests reach; that it noticed first; that no other stage reaches, or noticed when asked")
    for stage in STAGES:
        reached = [pair for pair in tried if stage in stages_of(pair[0], tests)]
        noticed = [(site, result) for site, result in reached if result["stages"].get(stage) == "noticed"]
        first = sum(tests[result["by"]]["stage"] == stage for _, result in noticed)
        alone = sum(is_alone(result, stages_of(site, tests) - {stage}) for site, result in noticed)
        if reached:
            print(f"  {stage:10s} {len(reached):4d} {first:4d} {alone:4d}")
    for state in OTHER_STATES:
        print(f"\n{state}: {states[state]}")
        for site, result in sorted(tried, key=lambda pair: (pair[0]["path"], pair[0]["line"])):
            if result["state"] == state:
                print(f"  {told(site)}  ({result['ran']} tests)")


def share(pairs):
    noticed = sum(result["state"] == "noticed" for _, result in pairs)
    return f"{noticed} of {len(pairs)} noticed ({100 * noticed / max(1, len(pairs)):.0f} %)"


def stages_of(site, tests):
    return {test["stage"] for test in tests.values() if site["number"] in test["sites"] and test["result"] == "passed"}


def is_alone(result, others):
    return all(result["stages"].get(stage) in OTHER_STATES for stage in others)


def told(site):
    return f"{site['path']}:{site['line']} {site['kind']} {site['number']}: {site['before']}  →  {site['after'] or '(left out)'}"

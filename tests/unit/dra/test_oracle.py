"""The allocator beside an oracle that tries everything in upstream's order (dra-core 3.3).

The oracle enumerates whole assignments, request by request, alternative by alternative, combination by combination,
and judges each from its first pick to its last; the allocator prunes and goes back. Both must come to the same one.
"""

from dataclasses import dataclass
from itertools import combinations
from unittest.mock import patch

from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from services.api.kinds.resourceclaim import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from services.dra.requests import AllocationError
from tests.unit.dra.objects import (
    DRIVER,
    Cluster,
    alternative,
    claim,
    device,
    distinct,
    first_of,
    match,
    offer,
    policy,
    request,
    taint,
    tolerate,
)

LIMIT = 4  # devices of a claim, so that small claims reach it
PHASES = (Phase.explicit, Phase.generate)  # to shrink takes long, and the smallest cases come first anyhow


@dataclass(frozen=True)
class Gpu:
    root: str | None
    model: str
    memory: int  # of the pool's counter; 0: takes none
    tainted: bool
    shared: bool
    bandwidth: int  # 0: has none
    has: str  # "" free, "all" allocated to a claim, "share" one unit of it


@dataclass(frozen=True)
class Ask:
    model: str | None
    count: int  # 0: all
    admin: bool
    tolerates: bool
    bandwidth: int


GPUS = st.builds(
    Gpu,
    root=st.sampled_from(["A", "B", "B", None]),
    model=st.sampled_from("xxy"),
    memory=st.sampled_from([0, 0, 1, 2]),
    tainted=st.sampled_from([False, False, False, True]),
    shared=st.booleans(),
    bandwidth=st.sampled_from([0, 2, 3]),
    has=st.sampled_from(["", "", "", "all", "share"]),
)
ASKS = st.builds(
    Ask,
    model=st.sampled_from([None, None, "x", "y"]),
    count=st.sampled_from([1, 1, 2, 2, 3, 0]),
    admin=st.sampled_from([False, False, False, True]),
    tolerates=st.booleans(),
    bandwidth=st.sampled_from([0, 0, 1, 2]),
)
REQUESTS = st.lists(st.lists(ASKS, min_size=1, max_size=2), min_size=1, max_size=2)
RULES = st.lists(
    st.tuples(st.sampled_from([match, distinct]), st.sampled_from([(), ("r0",), ("r1",), ("r0/s1",)])), max_size=2
)
CLAIMS = st.lists(st.tuples(REQUESTS, RULES), min_size=1, max_size=2)
POOLS = st.lists(st.tuples(st.lists(GPUS, min_size=1, max_size=4), st.integers(1, 4)), min_size=1, max_size=2)


def build(pools, claims):
    slices = []
    for p, (gpus, memory) in enumerate(pools):
        devices = [
            device(
                f"d{i}",
                model=gpu.model,
                consumes={"s": {"memory": str(gpu.memory)}} if gpu.memory else None,
                taints=[taint()] if gpu.tainted else (),
                shared=gpu.shared,
                capacity={"bandwidth": policy(str(gpu.bandwidth), default="1", least="1", step="1")} if gpu.bandwidth else None,
                **({"root": gpu.root} if gpu.root else {}),
            )
            for i, gpu in enumerate(gpus)
        ]  # fmt: skip
        slices += [
            offer(f"{p}a", *devices[:2], pool=f"p{p}", count=3),
            offer(f"{p}b", *devices[2:], pool=f"p{p}", count=3),
        ]
        slices.append(offer(f"{p}c", pool=f"p{p}", count=3, counters={"s": {"memory": str(memory)}}))
    cluster = Cluster(*slices)
    for p, (gpus, _) in enumerate(pools):
        for i, gpu in enumerate(gpus):
            if gpu.has:
                share = {"share_id": "s", "consumed_capacity": {"bandwidth": "1"}} if gpu.has == "share" else {}
                result = DeviceRequestAllocationResult(
                    request="r", driver=DRIVER, pool=f"p{p}", device=f"d{i}", **share
                )
                cluster.allocated.put(f"{p}/{i}", AllocationResult(devices=DeviceAllocationResult(results=(result,))))
    return cluster, [claim(f"c{c}", *(_request(f"r{r}", asks) for r, asks in enumerate(requests)),
                           constraints=[kind("root", *names) for kind, names in rules])
                     for c, (requests, rules) in enumerate(claims)]  # fmt: skip


def _request(name, asks):
    def parts(ask):
        return {
            "where": [f'device.attributes["{DRIVER}"].model == "{ask.model}"'] if ask.model else [],
            "tolerate": [tolerate()] if ask.tolerates else (),
            "capacity": {"bandwidth": str(ask.bandwidth)} if ask.bandwidth else None,
            **({"count": ask.count} if ask.count else {"mode": "All"}),
        }

    if len(asks) == 1:
        return request(name, admin=asks[0].admin, **parts(asks[0]))
    return first_of(name, *(alternative(f"s{i}", **parts(ask)) for i, ask in enumerate(asks)))


def oracle(pools, claims):
    """Return the first assignment that is right, as `(claim, request, pool, device)` in order; None if there is none."""
    gpus = {(p, i): gpu for p, (found, _) in enumerate(pools) for i, gpu in enumerate(found)}
    slots = [(c, r, asks) for c, (requests, _) in enumerate(claims) for r, asks in enumerate(requests)]
    return next((found for found in _assignments(slots, gpus) if _is_right(found, pools, claims, gpus)), None)


def _assignments(slots, gpus):
    if not slots:
        yield ()
        return
    (c, r, asks), *rest = slots
    for s, ask in enumerate(asks):
        name = f"r{r}" if len(asks) == 1 else f"r{r}/s{s}"
        fits = [key for key, gpu in gpus.items() if _means(ask, gpu)]
        for chosen in combinations(fits, ask.count or len(fits)):
            if chosen:
                for others in _assignments(rest, gpus):
                    yield (*((c, name, ask, key) for key in chosen), *others)


def _means(ask, gpu):
    if ask.bandwidth and not gpu.bandwidth:
        return False
    if ask.count == 0 and gpu.bandwidth and (ask.bandwidth or 1) + (gpu.has == "share") > gpu.bandwidth:
        return False  # All leaves out what has not as much
    return ask.model in (None, gpu.model)


def _is_right(assignment, pools, claims, gpus):
    is_alternative = {
        (c, f"r{r}"): len(asks) > 1 for c, (requests, _) in enumerate(claims) for r, asks in enumerate(requests)
    }
    taken, shares = [], {key: 1 for key, gpu in gpus.items() if gpu.has == "share"}
    used = {key: 1 for key, gpu in gpus.items() if gpu.has == "share"}
    memory = {p: total - sum(g.memory for g in found if g.has) for p, (found, total) in enumerate(pools)}
    for c, name, ask, key in assignment:
        gpu, admin = gpus[key], ask.admin and not is_alternative[c, name.partition("/")[0]]
        if gpu.tainted and not ask.tolerates:
            return False
        if (c, key) in taken if admin else gpu.has == "all" or any(key == other for _, other in taken):
            return False
        if gpu.memory and not (gpu.shared and shares.get(key)):
            memory[key[0]] -= gpu.memory
            if memory[key[0]] < 0:
                return False
        used[key] = used.get(key, 0) + (ask.bandwidth or 1)
        if gpu.bandwidth and used[key] > gpu.bandwidth:
            return False
        if gpu.shared:
            shares[key] = shares.get(key, 0) + 1
        else:
            used[key] -= ask.bandwidth or 1  # nothing is left of it anyhow, unless for admin access
            taken.append((c, key))
    for c, (_, rules) in enumerate(claims):
        if sum(1 for other, *_ in assignment if other == c) > LIMIT:
            return False
        for kind, names in rules:
            roots = [gpus[key].root for other, name, _, key in assignment
                     if other == c and (not names or name in names or name.partition("/")[0] in names)]  # fmt: skip
            if None in roots or len(set(roots)) not in ({len(roots)} if kind is distinct else {0, 1}):
                return False
    return True


@settings(max_examples=500, deadline=None, derandomize=True, phases=PHASES)
@given(POOLS, CLAIMS)
def test_the_allocator_finds_what_trying_everything_in_order_finds(pools, claims):
    cluster, asked = build(pools, claims)
    expected = oracle(pools, claims)

    failure = ""
    with patch("services.dra.allocator.DEVICES_MAX", LIMIT):
        try:
            found = cluster.allocate(*asked)
        except AllocationError as error:
            failure = str(error)

    if failure:
        event(failure.rpartition(": ")[2][:30])
        is_limit = "exceeds the claim limit" in failure
        has_all = any(ask.count == 0 for requests, _ in claims for asks in requests for ask in asks)
        assert expected is None if is_limit else has_all and "cannot add device" in failure
        return
    event("none" if expected is None else f"{len(expected)} devices")
    if expected is None:
        assert found == "cannot allocate all claims"
        return
    results = [(c, r.request, r.pool, r.device) for c, one in enumerate(found) for r in one.devices.results]
    assert results == [(c, name, f"p{p}", f"d{i}") for c, name, _, (p, i) in expected]

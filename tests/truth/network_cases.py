"""Jobs over several hosts whose late ranks and slow networks are known because they were put in.

What must be said of each: which ranks are stragglers, which hosts' network is slow, what no sentence may say.
"""
import random
import re

WARMUP = 2


def head(hosts, each, steps, seed, jitter="0.5%", extra="", progress="none"):
    return (f"ranks {hosts * each}\nnodes {hosts}\nsteps {steps + WARMUP}\nwarmup {WARMUP}\nseed {seed}\n"
            f"network alpha=50us bandwidth=500MB/s skew=20us\nprogress {progress}\njitter {jitter}\n{extra}")


# Posted, then waited for: nothing moves before the wait, and the transfers cannot be split.
POSTED = """
step
  input 1ms
  forward 15ms
  backward 24ms buckets=256KiB,256KiB,256KiB,256KiB,256KiB,256KiB,256KiB,256KiB
  waitall
  optimizer 1ms
end
"""
BLOCKING = """
step
  input 1ms
  forward 15ms
  compute 24ms name=backward
  allreduce 512KiB
  allreduce 512KiB
  optimizer 1ms
end
"""
BODIES = {"posted": POSTED, "blocking": BLOCKING}
WORK_NS = 40_000_000


# Messages of mixed sizes around the hosts in both directions, and within each host, where memory is ten times as fast. A
# collective of next to no data ends the step.
def exchange(hosts, each, sizes=("64KiB", "1MiB")):
    lines = ["step", "  forward 10ms"]
    ranks = hosts * each
    ways = [(h * each, (h + 1) % hosts * each) for h in range(hosts)] if hosts > 2 else [(0, each)]
    ways = [way for a, b in ways for way in ((a, b), (b, a))]
    if each > 1:
        ways += [(h * each, h * each + 1) for h in range(hosts)]
    for size in sizes:
        for a, b in ways:
            lines += [f"  send {size} to={b - a} as=m{a}.{b} on=1:{a}", f"  recv m{a}.{b} on=1:{b}"]
        lines.append("  compute 4ms")
    return "\n".join(lines + ["  allreduce 1KiB", "end"]) + "\n"


def messages(hosts, each, seed, extra="", steps=30, noise="30%"):
    between = "".join(f"link node={h} bandwidth=1GB/s\n" for h in range(hosts))
    return (f"ranks {hosts * each}\nnodes {hosts}\nsteps {steps + WARMUP}\nwarmup {WARMUP}\nseed {seed}\n"
            f"network alpha=30us bandwidth=10GB/s noise={noise}\njitter 1%\n{between}{extra}" + exchange(hosts, each))


class Case:
    def __init__(self, name, text, ranks=(), hosts=(), says=(), never=(), may_name=(), causes=(), one_of=(), behind=()):
        self.name, self.text = name, text
        self.ranks, self.hosts = tuple(ranks), tuple(hosts)  # To be named; of these one at least.
        self.may_name = tuple(may_name)                      # Hosts that may be named beside, or instead.
        self.one_of = tuple(one_of)                          # Hosts that may be named beside if it is said that it is one of them.
        self.behind = tuple(behind)                          # Hosts that may be named if it is said that it may be a host that sends to them.
        self.says, self.never = tuple(says), tuple(never)    # Parts of the findings' sentences.
        self.causes = tuple(causes)                          # Of the named ranks; none: whichever.


def steps_from(first, last):
    return f"steps={first + WARMUP}-{last + WARMUP}"


def slowed(mode, rank, factor, seed, hosts=4, each=2, steps=40, jitter="0.5%", when=""):
    extra = f"slow rank={rank} factor={factor} {when}\n"
    return Case(f"{mode} {hosts}x{each}, rank {rank} {factor}x {when}", head(hosts, each, steps, seed, jitter, extra) + BODIES[mode], [rank])


def slow_host(mode, node, rate, seed, hosts=4, each=2, steps=30, jitter="0.5%", extra="", ranks=()):
    link = f"link node={node} bandwidth={rate}\n"
    # Around a ring the next host gets its data through the slow one.
    return Case(f"{mode} {hosts}x{each}, network of node{node} at {rate} {extra.strip()}", head(hosts, each, steps, seed, jitter, link + extra) + BODIES[mode],
                ranks, [f"node{node}"], one_of=[f"node{(node + 1) % hosts}"], never=["take turns"])


def one_link(mode, source, to, rate, seed, steps=30):
    return Case(f"{mode}, rank {source} to {to} at {rate}", head(4, 1, steps, seed, extra=f"link rank={source} to={to} bandwidth={rate}\n") + BODIES[mode],
                (), [f"node{to}"], may_name=[f"node{source}"], says=[f"from node{source}"])


def slow_way(hosts, each, a, b, seed, rate="50MB/s", one_way=False):
    """Between two hosts: the ranks that exchange messages there."""
    ways = [(a * each, b * each)] + ([] if one_way else [(b * each, a * each)])
    extra = "".join(f"link rank={s} to={t} bandwidth={rate}\n" for s, t in ways)
    name = f"from node{a} to node{b}" if one_way else f"between node{min(a, b)} and node{max(a, b)}"
    return Case(f"messages {hosts}x{each}, {name} at {rate}", messages(hosts, each, seed, extra), (), [f"node{a}"],
                may_name=[f"node{b}"], says=[name, "(replayed)"], never=["take turns"])


def slow_in_messages(hosts, each, node, seed, rate="50MB/s"):
    return Case(f"messages {hosts}x{each}, network of node{node} at {rate}",
                messages(hosts, each, seed, f"link node={node} bandwidth={rate}\n"), (), [f"node{node}"],
                says=[f"to and from node{node}", "(replayed)"], never=["take turns"])


def healthy_messages(hosts, each, seed, noise="100%"):
    return Case(f"messages {hosts}x{each}, healthy, seed {seed}", messages(hosts, each, seed, noise=noise))


def halo(hosts, each, seed, extra="", steps=30):
    """All neighbours' messages in one Waitall: its end says of none of them when it had come."""
    return (f"ranks {hosts * each}\nnodes {hosts}\nsteps {steps + WARMUP}\nwarmup {WARMUP}\nseed {seed}\n"
            f"network alpha=30us bandwidth=1GB/s\njitter 1%\n{extra}step\n  forward 10ms\n  halo 1MiB\n  compute 4ms\n"
            f"  halo 1MiB\n  allreduce 1KiB\nend\n")


def slow_in_halo(hosts, each, node, seed, rate="50MB/s"):
    return Case(f"halo {hosts}x{each}, network of node{node} at {rate}", halo(hosts, each, seed, f"link node={node} bandwidth={rate}\n"),
                (), [f"node{node}"], says=[f"to and from node{node}", "(replayed)"])


def slow_way_in_halo(hosts, each, a, b, seed, rate="50MB/s"):
    ranks = [(a * each + each - 1, b * each), (b * each, a * each + each - 1)]
    extra = "".join(f"link rank={s} to={t} bandwidth={rate}\n" for s, t in ranks)
    return Case(f"halo {hosts}x{each}, between node{a} and node{b} at {rate}", halo(hosts, each, seed, extra), (), [f"node{a}"],
                may_name=[f"node{b}"], says=[f"between node{a} and node{b}", "(replayed)"])


def healthy_halo(hosts, each, seed):
    return Case(f"halo {hosts}x{each}, healthy, seed {seed}", halo(hosts, each, seed))


# Around the ranks in one direction: one call that sends and receives, or a wait for each half by itself.
RINGS = {"sendrecv": "", "sendrecv, handshake": "handshake", "receive awaited first": "handshake waits=recv,send",
         "send awaited first": "handshake waits=send,recv"}


def ring(form, hosts, each, seed, extra="", steps=30):
    return (f"ranks {hosts * each}\nnodes {hosts}\nsteps {steps + WARMUP}\nwarmup {WARMUP}\nseed {seed}\n"
            f"network alpha=30us bandwidth=1GB/s noise=30%\njitter 1%\n{extra}step\n  forward 10ms\n  ring 1MiB {RINGS[form]}\n"
            f"  compute 4ms\n  ring 1MiB {RINGS[form]}\n  allreduce 1KiB\nend\n")


def slow_in_ring(form, hosts, each, node, seed, rate="50MB/s"):
    # Where a call sends and receives, both ways of the host or the one from it explain the same.
    return Case(f"ring ({form}) {hosts}x{each}, network of node{node} at {rate}", ring(form, hosts, each, seed, f"link node={node} bandwidth={rate}\n"),
                (), [f"node{node}"], may_name=[f"node{(node + 1) % hosts}"], says=["(replayed)"])


def slow_way_in_ring(form, hosts, each, a, seed, rate="50MB/s"):
    b = (a + 1) % hosts
    extra = f"link rank={a * each + each - 1} to={b * each} bandwidth={rate}\n"
    return Case(f"ring ({form}) {hosts}x{each}, from node{a} to node{b} at {rate}", ring(form, hosts, each, seed, extra), (), [f"node{a}"],
                may_name=[f"node{b}"], says=[f"from node{a} to node{b}", "(replayed)"])


def healthy_ring(form, hosts, each, seed):
    return Case(f"ring ({form}) {hosts}x{each}, healthy, seed {seed}", ring(form, hosts, each, seed))


def healthy_two_hosts(seed):
    """Nothing says that the network between them is slow, so nothing is said of it."""
    return Case(f"blocking 2x2, healthy, seed {seed}", head(2, 2, 30, seed) + BLOCKING, never=["this run cannot tell"])


def two_slow_hosts(seed):
    """A slow network between two hosts, both ways: nothing to compare it with, and this is what must be said."""
    text = head(2, 2, 30, seed, extra="link node=1 bandwidth=25MB/s\n") + BLOCKING
    return Case(f"blocking 2x2, slow both ways", text, says=["whether the network between node0 and node1 is slow this run cannot tell"])


def slow_sender(mode, hosts, each, node, seed, rate="25MB/s"):
    """What a host sends is slow, and data are exchanged in pairs: it has everything first, as the root of a tree has on a healthy network."""
    text = head(hosts, each, 30, seed, extra=f"network collectives=pairs\nlink node={node} bandwidth={rate} out\n") + BODIES[mode]
    return Case(f"{mode} {hosts}x{each}, what node{node} sends at {rate}", text, may_name=[f"node{node}"],
                says=["whether the network of one of them is slow, or the algorithm serves them in turn, this run cannot tell"])


def slow_sender_in_ring(mode, hosts, each, node, seed, rate="25MB/s"):
    """What a host sends is slow: it has everything long before the next one, which waits for it in each round."""
    text = head(hosts, each, 30, seed, extra=f"link node={node} bandwidth={rate} out\n") + BODIES[mode]
    following = f"node{(node + 1) % hosts}"
    way, ends = (f"from node{node} to {following}", [f"node{node}", following]) if hosts > 4 else (f"from node{node}", [])
    return Case(f"{mode} {hosts}x{each}, around a ring, what node{node} sends at {rate}", text, may_name=ends, behind=[following],
                says=[way], never=["take turns"])


def slow_sender_in_tree(mode, hosts, each, node, seed, rate="10MB/s"):
    """Whoever gets its data from the slow host has them late, and that host itself has them as early as others."""
    text = head(hosts, each, 30, seed, extra=f"network collectives=tree\nlink node={node} bandwidth={rate} out\n") + BODIES[mode]
    below = [f"node{h}" for h in range(node + 1, hosts) if h & node == node]
    return Case(f"{mode} {hosts}x{each}, in a tree, what node{node} sends at {rate}", text, may_name=[f"node{node}"], behind=below,
                says=["or of a host that sends there"], never=["take turns"])


def slow_in_pairs(mode, hosts, each, node, seed, rate="25MB/s"):
    """Whoever exchanges data with the slow host in a late round has them as late as it has: the ends do not tell which of them it is."""
    text = head(hosts, each, 30, seed, extra=f"network collectives=pairs\nlink node={node} bandwidth={rate}\n") + BODIES[mode]
    return Case(f"{mode} {hosts}x{each}, in pairs, network of node{node} at {rate}", text, (), [f"node{node}"],
                one_of=[f"node{h}" for h in range(hosts) if h % 2 == node % 2], says=["this run cannot tell"], never=["take turns"])


def slow_in_tree(mode, hosts, each, node, seed, rate="10MB/s"):
    """Whoever gets its data from the slow host has them later than that has; its root, node0, has them before all others."""
    text = head(hosts, each, 30, seed, extra=f"network collectives=tree\nlink node={node} bandwidth={rate}\n") + BODIES[mode]
    below = [f"node{h}" for h in range(node + 1, hosts) if h & node == node]
    return Case(f"{mode} {hosts}x{each}, in a tree, network of node{node} at {rate}", text, (), [f"node{node}"], one_of=below, never=["take turns"])


def slow_root(seed, rate, told):
    """All others get the data at once, long after the root of the tree: it is slow if even all that it can have sent is too little for a network."""
    links = "".join(f"link rank=0 to={to} bandwidth={rate}\n" for to in (1, 2))
    text = head(4, 1, 30, seed, extra="network collectives=tree\n" + links) + BLOCKING
    says = ["a slow network of node0, of all hosts, or of one through which the others get them"] if told else ["this run cannot tell"]
    return Case(f"blocking 4x1, in a tree, what its root sends at {rate}", text, (), ["node0"] if told else [], says=says)


def healthy_pairs(mode, hosts, each, seed):
    text = head(hosts, each, 30, seed, extra="network collectives=pairs\n") + BODIES[mode]
    return Case(f"{mode} {hosts}x{each}, in pairs, healthy, seed {seed}", text, never=["this run cannot tell"])


def in_a_stretch(mode, rank, first, last, seed, steps=100, factor=1.3):
    case = slowed(mode, rank, factor, seed, steps=steps, when=steps_from(first, last))
    case.says = [f"steps {first + WARMUP}-{last + WARMUP}"]
    case.never = ["take turns"]
    return case


def on_hosts(mode, ranks, says, seed, hosts=4, each=2, factor=1.2):
    extra = "".join(f"slow rank={r} factor={factor}\n" for r in ranks)
    return Case(f"{mode} {hosts}x{each}, ranks {ranks} {factor}x", head(hosts, each, 40, seed, extra=extra) + BODIES[mode], ranks, says=says)


def alternating(mode, a, b, seed, steps=60):
    extra = "".join(f"slow rank={r} factor=1.3 steps={WARMUP + i}-{steps + WARMUP} every=2\n" for i, r in enumerate((a, b)))
    return Case(f"{mode}, ranks {a} and {b} in turn", head(4, 2, steps, seed, extra=extra) + BODIES[mode], [a, b])


def few_steps(mode, rank, seed, steps=3, factor=1.3):
    case = slowed(mode, rank, factor, seed, steps=steps)
    case.ranks, case.says, case.never = (), [f"probably for rank {rank}"], ["cannot tell which"]
    case.name += f", {steps} steps"
    return case


# A rank of a stage computes longer: the stages before and after wait for its messages, and pass their lateness on.
def slow_stage(rank, seed, stages=4, factor=1.3):
    extra = f"slow rank={rank} factor={factor}\n"
    body = f"step\n  pipeline stages={stages} microbatches={2 * stages} forward=3ms backward=6ms bytes=400KiB\n  barrier\nend\n"
    return Case(f"pipeline, stage {rank} {factor}x", head(1, stages, 40, seed, extra=extra) + body, [rank], causes=["compute"])


# Rank 0 receives what all others worked out, one after the other in the order of their ranks, and sends back to each.
# However long it waits for the first, the last to send decides. Single steps name no straggler.
def server(workers, seed, slow=None, factor=1.3, jitter="0.5%", own="  compute 1ms on=1:0\n", steps=30):
    others = range(1, workers + 1)
    body = "".join(f"  forward 10ms on=1:{r}\n  send 400KiB to={-r} as=up{r} on=1:{r}\n" for r in others)
    body += "".join(f"  recv up{r} on=1:0\n" for r in others) + own
    body += "".join(f"  send 400KiB to={r} as=down{r} on=1:0\n  recv down{r} on=1:{r}\n" for r in others)
    extra = f"slow rank={slow} factor={factor}\n" if slow else ""
    text = (f"ranks {workers + 1}\nsteps {steps}\nseed {seed}\nnetwork alpha=20us bandwidth=5GB/s\njitter {jitter}\n{extra}"
            f"step\n{body}end\n")
    wrong = [said.format(r) for r in others if r != slow for said in ("that rank {} has not begun", "waits for rank {} to send")]
    wrong += ["no other finding says why"]
    case = Case(f"server of {workers}, worker {slow} {factor}x, {steps} steps", text, [slow] if slow else [],
                never=wrong, causes=["compute"])
    if slow is None:  # Of those that take turns not all need be late.
        case.says, case.never = ("ranks have not sent yet",), (*case.never, "less to do")
    elif steps < 5:
        case.ranks, case.says, case.never = (), (f"rank {slow} has not sent yet",), (*case.never, "next to no shorter")
    return case


# No collective is of all ranks: a rank is late in its row, and makes its row's others late in their columns.
def slow_in_groups(rank, seed, steps=40, factor=1.3, **case):
    extra = f"slow rank={rank} factor={factor}\ncomm row block=2\ncomm col stride=2\n"
    body = "step\n" + "  compute 6ms\n  allreduce 160KiB comm=row\n" * 8 + "  allreduce 3MiB comm=col\nend\n"
    return Case(f"rows and columns, rank {rank} {factor}x, {steps} steps", head(2, 2, steps, seed, extra=extra) + body,
                [rank] if steps > 5 else [], never=["take turns", "No single rank"], causes=["compute"], **case)


def healthy(mode, seed, hosts=4, each=2, steps=40, jitter="1%"):
    return Case(f"{mode} {hosts}x{each}, healthy, {steps} steps, seed {seed}", head(hosts, each, steps, seed, jitter) + BODIES[mode], never=["robably for rank", "erhaps for rank"])


def small(seed):
    """What every build checks."""
    for mode in BODIES:
        yield slowed(mode, 3, 1.2, seed)
        yield slowed(mode, 5, 1.05, seed)
        yield slow_host(mode, 2, "25MB/s", seed)
        yield slow_host(mode, 1, "25MB/s", seed, each=1)
        yield one_link(mode, 1, 2, "25MB/s", seed)
        yield in_a_stretch(mode, 5, 40, 60, seed)
        yield on_hosts(mode, [6, 7], ["node3"], seed)
        yield on_hosts(mode, [4, 5], ["node1"], seed, each=4)
        yield alternating(mode, 1, 6, seed)
        yield few_steps(mode, 5, seed)
        yield slow_host(mode, 2, "25MB/s", seed, extra="slow rank=1 factor=1.4\n", ranks=[1])
        if mode == "blocking":  # A slow network, and a rank behind it that is slow itself.
            yield slow_host(mode, 1, "25MB/s", seed, extra="slow rank=3 factor=1.1\n", ranks=[3])
        for i in range(4):
            yield healthy(mode, 100 * seed + i)
            yield healthy(mode, 100 * seed + i, steps=3)
    for rank in (1, 2):
        yield slow_stage(rank, seed)
    for rank in (1, 2, 3):
        yield server(3, seed, rank)
    yield server(7, seed, 5, factor=1.2)
    yield server(3, seed, 3, factor=1.5, own="")
    yield server(3, seed, 2, steps=1)
    yield server(15, seed, 9, factor=1.5, steps=5)
    yield server(3, seed, jitter="5%")
    yield server(7, seed, jitter="5%")
    yield slow_in_groups(3, seed)
    yield slow_in_groups(3, seed, steps=3, says=["rank 3"])
    yield slow_way(4, 2, 1, 2, seed)
    yield slow_way(4, 1, 2, 1, seed, one_way=True)
    yield slow_in_messages(4, 2, 2, seed)
    yield slow_way(2, 2, 0, 1, seed, one_way=True)
    yield slow_in_halo(4, 1, 2, seed)
    yield slow_in_halo(6, 2, 3, seed)
    yield slow_way_in_halo(4, 1, 1, 2, seed)
    yield slow_way_in_halo(6, 2, 2, 3, seed)
    for form in RINGS:
        for hosts, each in ((4, 1), (4, 2), (6, 1)):
            yield slow_in_ring(form, hosts, each, 2, seed)
            yield slow_way_in_ring(form, hosts, each, 1, seed)
            yield healthy_ring(form, hosts, each, seed)
    for mode in BODIES:
        for hosts, each in ((4, 1), (4, 2), (8, 1)):
            yield slow_sender(mode, hosts, each, 1, seed)
            for node in (0, hosts - 2):
                yield slow_sender_in_ring(mode, hosts, each, node, seed)
            if mode == "blocking":
                yield slow_sender_in_tree(mode, hosts, each, 1, seed)
            for node in (1, 2):
                yield slow_in_pairs(mode, hosts, each, node, seed)
                if mode == "blocking":
                    yield slow_in_tree(mode, hosts, each, node, seed)
            yield healthy_pairs(mode, hosts, each, seed)
    yield slow_root(seed, "8MB/s", told=True)
    yield slow_root(seed, "25MB/s", told=False)
    yield two_slow_hosts(seed)
    yield healthy_two_hosts(seed)
    for hosts, each in ((4, 2), (2, 2), (3, 1)):
        yield healthy_messages(hosts, each, seed)
        yield healthy_halo(hosts, each, seed)


def matrix(seeds):
    """Every rank by every factor, every host, and as many healthy runs."""
    for mode in BODIES:
        for seed in range(1, seeds + 1):
            for rank in range(8):
                for factor in (1.05, 1.1, 1.3):
                    yield slowed(mode, rank, factor, 1000 * seed + rank)
            for node in range(4):
                for rate in ("25MB/s", "100MB/s"):
                    for each in (1, 2):
                        yield slow_host(mode, node, rate, 1000 * seed + node, each=each)
            chosen = random.Random(seed)
            first = chosen.randrange(10, 60)
            yield in_a_stretch(mode, chosen.randrange(8), first, first + chosen.randrange(12, 30), seed)
            for node in range(4):
                yield on_hosts(mode, [2 * node, 2 * node + 1], [f"node{node}"], seed)
            yield alternating(mode, *sorted(chosen.sample(range(8), 2)), seed)
            yield few_steps(mode, chosen.randrange(8), seed)
            for i in range(20):
                yield healthy(mode, 1000 * seed + i)


def message_matrix(seeds):
    for seed in range(1, seeds + 1):
        for hosts, each in ((4, 2), (4, 1), (3, 2), (6, 2)):
            for node in range(hosts):
                yield slow_way(hosts, each, node, (node + 1) % hosts, 1000 * seed + node)
                yield slow_way(hosts, each, node, (node + 1) % hosts, 1000 * seed + node, one_way=True)
                if hosts > 3:
                    yield slow_in_messages(hosts, each, node, 1000 * seed + node)
            for i in range(20):
                yield healthy_messages(hosts, each, 1000 * seed + i)
        for node in range(2):
            yield slow_way(2, 2, node, 1 - node, 1000 * seed + node, one_way=True)
        for hosts, each in ((4, 1), (4, 2), (6, 1), (6, 2)):
            for node in range(hosts):
                yield slow_in_halo(hosts, each, node, 1000 * seed + node)
                if node + 1 < hosts:
                    yield slow_way_in_halo(hosts, each, node, node + 1, 1000 * seed + node)
            for i in range(10):
                yield healthy_halo(hosts, each, 1000 * seed + i)
        for form in RINGS:
            for hosts, each in ((4, 1), (4, 2), (6, 1), (6, 2)):
                for node in range(hosts):
                    yield slow_in_ring(form, hosts, each, node, 1000 * seed + node)
                    yield slow_way_in_ring(form, hosts, each, node, 1000 * seed + node)
                for i in range(5):
                    yield healthy_ring(form, hosts, each, 1000 * seed + i)
        for mode in BODIES:
            for hosts, each in ((4, 1), (4, 2), (8, 1)):
                for node in range(hosts):
                    yield slow_sender(mode, hosts, each, node, 1000 * seed + node)
                    yield slow_sender_in_ring(mode, hosts, each, node, 1000 * seed + node)
                    if mode == "blocking" and 0 < node < hosts // 2 and node & (node - 1) == 0:
                        yield slow_sender_in_tree(mode, hosts, each, node, 1000 * seed + node)
                    yield slow_in_pairs(mode, hosts, each, node, 1000 * seed + node)
                    if mode == "blocking":
                        yield slow_in_tree(mode, hosts, each, node, 1000 * seed + node)
                    yield healthy_pairs(mode, hosts, each, 1000 * seed + node)
        yield two_slow_hosts(seed)
        for i in range(20):
            yield healthy_messages(2, 2, 1000 * seed + i)
            yield healthy_two_hosts(1000 * seed + i)


def names(sentence, host):
    return re.search(rf"\b{re.escape(host)}\b", sentence) is not None


def judge(case, answer):
    """(what is missing, what is wrongly said) of a case."""
    if "error" in answer:
        return ["error: " + answer["error"]], []
    named = sorted(s["rank"] for s in answer["stragglers"])
    missing = [f"rank {r} is not named: {answer['verdict']}" for r in case.ranks if r not in named]
    wrong = [f"rank {r} is named: {answer['verdict']}" for r in named if r not in case.ranks]
    wrong += [f"rank {s['rank']} is named for {s['cause']}" for s in answer["stragglers"]
              if case.causes and s["cause"] not in case.causes]
    links = [f for f in answer["findings"] if f["id"] == "link.slow"]
    told = " ".join(f["headline"] for f in links)
    hosts = [host for f in links for host in f["hosts"]]
    if case.hosts and not any(host in hosts for host in case.hosts):
        missing.append(f"the network of {' or '.join(case.hosts)} is not named: {told or answer['verdict']}")
    for finding in links:
        # Each is in the sentence; beside the right host others only if the sentence says that it is one of them.
        wrong += [f"{host} is not in the sentence: {finding['headline']}" for host in finding["hosts"] if not names(finding["headline"], host)]
        if finding["one_of_hosts"] and " or ".join(sorted(finding["hosts"])[-2:]) not in finding["headline"]:
            wrong.append(f"does not say that it is one of {finding['hosts']}: {finding['headline']}")
        may = case.hosts + case.may_name
        if finding["one_of_hosts"] and any(host in finding["hosts"] for host in case.hosts):
            may += case.one_of
        if finding["or_another_host"]:
            may += case.behind
        if "a host that sends there" in finding["headline"] and not finding["or_another_host"]:
            wrong.append(f"does not say in its fields that it may be another host: {finding['headline']}")
        wrong += [f"the network of {host} is named: {finding['headline']}" for host in finding["hosts"] if host not in may]
    sentences = " ".join([answer["verdict"]] + answer["remarks"] + [f["headline"] + " " + f["evidence"] for f in answer["findings"]])
    missing += [f"does not say '{part}': {answer['verdict']}" for part in case.says if part.lower() not in sentences.lower()]
    advice = " ".join(f["action"] for f in answer["findings"])
    wrong += [f"says '{part}': {answer['verdict']}" for part in case.never if part in sentences + " " + advice]
    return missing, wrong

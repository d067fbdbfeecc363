"""Models of out-of-order ARM cores: how many cycles a trace of aarch64 instructions takes.

An instruction waits for its operands and for a free port of its kind, the oldest first; so many enter and leave a
cycle.
Memory always answers as the first cache does, and every branch is predicted. Throughputs and latencies: measured on a
Neoverse N1 (which is an A76) and on an A72; those of the V2 are the manual's, roughly."""
import re

# Ports are numbers; each list holds those that may take an instruction. V: any vector instruction, V0 and V1: the
# restricted ones, MULTIPLY: integer vector products. queue: how many vector instructions, and others, may wait.
A76 = dict(name='an A76', width=4, window=128, load=(0, 1), store=(0, 1), quad_store=2, V=(2, 3), V0=(2,), V1=(3,),
           integer=(4, 5, 6), slow=(6,), branch=(7,), queue=(32, 60), store_takes_V=True, kind='a76')
A72 = dict(name='an A72', width=3, window=128, load=(0,), store=(1,), quad_store=2, V=(2, 3), V0=(2,), V1=(3,),
           integer=(4, 5), slow=(6,), branch=(7,), queue=(16, 40), store_takes_V=False, kind='a72')
V2 = dict(name='a Neoverse V2', width=5, window=224, load=(0, 1, 8), store=(0, 1), quad_store=1, V=(2, 3, 9, 10),
          V0=(2, 9), V1=(3, 10), integer=(4, 5, 6, 11), slow=(6,), branch=(7, 12), queue=(56, 80), store_takes_V=True,
          kind='v2')

REGISTER = re.compile(r'\b([vqdshb])(\d+)\b|\b([xw])(\d+)\b|\b(sp)\b')
QUAD = re.compile(r'\bq\d|\.16b|\.8h|\.4s|\.2d')
READ_AND_WRITTEN = set('sdot udot usdot smmla mla mls smlal smlal2 umlal umlal2 fmla fmls sadalp uadalp ins usra ssra '
                       'bsl bit bif sri sli tbx'.split())
LOADS = set('ldr ldp ldur ld1 ld1r ld2 ldrsw ldrb ldrh ldrsb ldrsh ldpsw'.split())
STORES = set('str stp stur st1 strb strh'.split())
BRANCHES = set('b ret br cbz cbnz tbz tbnz bl blr'.split())

# Vector instructions: ports, cycles on the port, latency, latency from one sum to the next; A76 and, where it differs,
# A72.
VECTOR = [
    (r'[su]dot|usdot|smmla', ('V', 1, 3, 1), None),
    (r'ml[as]|mul', ('V0', 2, 5, 2), None),
    (r'[su]mul[l]2?|[su]mlal2?', ('V0', 1, 4, 1), None),
    (r'[su]adalp|[us]sra', ('V1', 1, 4, 1), None),
    (r'[su]addlp', ('V', 1, 2, None), ('V1', 1, 3, None)),
    (r'[su]?sh[lr]{1,2}2?|[us]xtl2?|sli|sri|xtn2?', ('V1', 1, 2, None), ('V1', 1, 3, None)),
    (r'fmul', ('V', 1, 3, None), ('V', 2, 4, None)),
    (r'fml[as]|fmadd', ('V', 1, 4, 2), ('V', 2, 7, 3)),
    (r'fadd|fsub', ('V', 1, 2, None), ('V', 2, 4, None)),
    (r'fdiv|fsqrt', ('V0', 12, 10, None), ('V0', 7, 10, None)),
    (r'[su]cvtf|fcvt\w+', ('V0', 2, 4, None), ('V0', 2, 3, None)),
    (r'addv|[su]addlv|[sf]maxn?m?v', ('V1', 2, 5, None), None),
    (r'umov|smov', ('V1', 1, 3, None), None),
    (r'', ('V', 1, 2, None), ('V', 1, 3, None)),
]


def registers(operand):
    return [('v' if m.group(1) else 'x') + (m.group(2) or m.group(4)) if not m.group(5) else 'sp'
            for m in REGISTER.finditer(operand)]


def operands(text):
    """'v0.4s, {v1.16b, v2.16b}, [x0]' -> its three parts."""
    return [part.strip() for part in re.split(r',\s*(?![^\[{]*[\]}])', text)] if text else []


def decode(text):
    """Name, kind, registers read and registers written."""
    name, _, rest = text.partition(' ')
    parts = operands(rest)
    memory = next((i for i, part in enumerate(parts) if part.startswith('[')), None)
    base = registers(parts[memory])[:1] if memory is not None else []
    moves_base = memory is not None and (text.endswith('!') or memory < len(parts) - 1)
    everything = [r for part in parts for r in registers(part)]
    vector = any(re.search(r'\b[vqdshb]\d+\b', part) for part in parts)
    if name in STORES:
        return name, 'store', everything, base if moves_base else []
    if name in LOADS:
        written = [r for part in parts[:memory] for r in registers(part)]
        read = [r for part in parts[memory or 0:] for r in registers(part)]
        lane = name == 'ld1' and re.search(r'}\[\d', text)
        return name, 'load', read + (written if lane else []), written + (base if moves_base else [])
    if name.startswith('prfm'):
        return name, 'load', everything, []
    if name in ('cmp', 'cmn', 'tst', 'fcmp'):
        return name, 'vector' if vector else 'integer', everything, ['flags']
    if name in BRANCHES or name.startswith('b.'):
        return name, 'branch', everything + (['flags'] if name.startswith('b.') else []), []
    written = registers(parts[0])[:1] if parts else []
    read = [r for part in parts[1:] for r in registers(part)]
    if name in READ_AND_WRITTEN or (name == 'mov' and vector and '[' in parts[0]):
        read += written
    return (name, 'vector' if vector else 'integer', read + (['flags'] if name.startswith('cs') else []),
            written + (['flags'] if name in ('subs', 'adds', 'ands') else []))


def memory_cost(core, name, kind, text):
    target = text.split('[')[0]
    is_vector, is_quad = re.search(r'\b[qdsv]\d', target), re.search(r'\bq\d', target)
    if kind == 'store':
        count, cycles = 2 if name == 'stp' else 1, core['quad_store'] if is_quad else 1
        data = [(core['V'], 1)] * count if is_vector and core['store_takes_V'] else []
        ports = [(core['store'], cycles)] * count if len(core['store']) > 1 else [(core['store'], cycles * count)]
        return ports + data, 1, None
    count = 2 if name == 'ldp' and is_quad else 1
    ports = [(core['load'], 1)] * count if len(core['load']) > 1 else [(core['load'], count)]
    if name == 'ld1r' or re.search(r'}\[\d', text):
        return ports + [(core['V'], 1)], 8 if core['kind'] == 'a72' else 7, None
    return ports, 7 if count == 2 else 5 if is_vector else 4, None


def vector_cost(core, name, text):
    parts = operands(text.partition(' ')[2])
    from_integer = name in ('dup', 'mov', 'fmov') and parts[-1][0] in 'xw'
    if from_integer:
        return [(core['slow'], 1)], 3, None
    if name in ('mov', 'fmov') and parts[0][0] in 'xw':
        return [(core['V1'], 1)], 3, None
    if name == 'movi' and re.search(r'#0x0+\b', text) and core['kind'] != 'a72':
        return [], 0, None
    for pattern, usual, of_a72 in VECTOR:
        if not pattern or re.fullmatch(pattern, name):
            ports, cycles, latency, sums = of_a72 if of_a72 and core['kind'] == 'a72' else usual
            break
    if core['kind'] == 'a72' and name[:2] in ('fm', 'fa', 'fs') and not QUAD.search(text):
        cycles = 1
    if core['kind'] == 'v2' and ports == 'V0' and pattern.startswith('ml'):
        cycles, latency = 1, 4
    return [(core[ports], cycles)], latency, sums


def cost(core, decoded, text):
    """Ports with the cycles each is taken for, latency, and latency from one sum to the next."""
    name, kind = decoded[:2]
    if kind in ('load', 'store'):
        return memory_cost(core, name, kind, text)
    if kind == 'branch':
        return [(core['branch'], 1)], 1, None
    if kind == 'integer':
        slow = name in ('smaddl', 'madd', 'mul', 'smull', 'umull', 'msub')
        return [(core['slow' if slow else 'integer'], 1)], 2 if slow else 1, None
    return vector_cost(core, name, text)


def wire(instructions):
    """For each instruction, those it waits for; and whether as a sum waits for a sum."""
    last, waits = {}, []
    for i, (decoded, (_, _, sums)) in enumerate(instructions):
        waits.append([(last[r], sums is not None and [r] == decoded[3] and instructions[last[r]][0][0] == decoded[0])
                      for r in decoded[2] if r in last])
        for r in decoded[3]:
            last[r] = i
    return waits


def take_ports(wanted, busy, cycle, turn):
    """Takes a free port for each that is wanted, or none at all."""
    taken = {}
    for ports, cycles in wanted:
        free = [p for p in ports if taken.get(p, busy.get(p, 0)) <= cycle]
        if not free:
            return False
        taken[free[-1] if turn % 2 else free[0]] = cycle + cycles
    busy.update(taken)
    return True


def cycles(trace, core):
    """How many cycles a trace takes."""
    known = {text: (decode(text), ) for text in set(trace)}
    known = {text: (d, cost(core, d, text)) for text, (d, ) in known.items()}
    instructions = [known[text] for text in trace]
    waits, count = wire(instructions), len(trace)
    issued, done, busy, waiting, queued = [None] * count, [None] * count, {}, [], [0, 0]
    head = fetched = cycle = 0
    while head < count:
        for _ in range(8):
            if head < fetched and done[head] is not None and done[head] <= cycle:
                head += 1
        still = []
        for i in waiting:
            decoded, (ports, latency, sums) = instructions[i]
            ready = all(issued[p] is not None and issued[p] + (sums if as_sum else instructions[p][1][1]) <= cycle
                        for p, as_sum in waits[i])
            if not ready or not take_ports(ports, busy, cycle, cycle + i):
                still.append(i)
                continue
            issued[i], done[i] = cycle, cycle + max(1, latency) if ports else cycle
            queued[decoded[1] != 'vector'] -= 1
        waiting = still
        for _ in range(core['width']):
            if fetched == count or fetched - head >= core['window']:
                break
            queue = instructions[fetched][0][1] != 'vector'
            if queued[queue] >= core['queue'][queue]:
                break
            queued[queue] += 1
            waiting.append(fetched)
            fetched += 1
        cycle += 1
    return cycle

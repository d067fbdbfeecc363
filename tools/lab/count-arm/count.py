#!/usr/bin/env python3
"""count.py FOLDER ISA TYPES WIDTHS: runs FOLDER/multiply under FOLDER/plugin.so and counts; see count-arm.sh."""
import re
import shutil
import subprocess
import sys

import cores

BLOCKS = 32  # in a run of multiply: two tiles of 16
ARM64 = ('aarch64-linux-gnu-', ('qemu-aarch64', '-cpu', 'max'), ('-mtriple=aarch64', '-mattr=+dotprod,+i8mm'))
ARM32 = ('arm-linux-gnueabihf-', ('qemu-arm', '-cpu', 'max'), ('-mtriple=armv7', '-mattr=+neon,+vfp4', '-skip-unsupported-instructions=any'))
RISCV = ('riscv64-linux-gnu-', ('qemu-riscv64', '-cpu', 'rv64,v=true,vlen=128'), None)
# The model of the core or None, the core to llvm-mca, the tools.
CORES = {'neon': (cores.A72, 'cortex-a72', ARM64), 'dotprod': (cores.A76, 'neoverse-n1', ARM64),
         'i8mm': (cores.V2, 'neoverse-v2', ARM64), 'neon32': (None, 'cortex-a72', ARM32), 'rvv': (None, None, RISCV),
         'riscv': (None, None, RISCV)}
COUNTED = re.compile(r'specdec__((neon|neon32|dotprod|i8mm|rvv|line|scalar|grid)_|kernels_multiply|unpack|quant_de|'
                     r'quant_put|quant_iq)')
LEFT_OUT = re.compile(r'quantise|windows|extent')  # what prepares the columns
MCA = next((name for name in ('llvm-mca-19', 'llvm-mca-18', 'llvm-mca-17', 'llvm-mca-16', 'llvm-mca')
            if shutil.which(name)), None)


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True, **options).stdout


def disassemble(binary, prefix):
    """Ranges of addresses of the functions that count, and the text of every instruction."""
    ranges, instructions, counts = [], {}, False
    notes = ('-M', 'no-notes') if prefix.startswith('aarch64') else ()
    for line in output(prefix + 'objdump', '-d', '--no-show-raw-insn', *notes, binary).splitlines():
        function = re.match(r'([0-9a-f]+) <(.*)>:', line)
        instruction = re.match(r'\s+([0-9a-f]+):\s+(.*)', line)
        if function:
            counts = COUNTED.match(function.group(2)) and not LEFT_OUT.search(function.group(2))
            if counts:
                ranges.append([int(function.group(1), 16), 0])
        elif instruction:
            address = int(instruction.group(1), 16)
            text = re.sub(r'\s+', ' ', re.split('//|;|@', instruction.group(2))[0]).strip()
            instructions[address] = re.sub(r'[0-9a-f]+ <[^>]*>', '0', text)
            if counts:
                ranges[-1][1] = address + 4
    return ranges, instructions


def joined(ranges, most=60):
    """At most so many ranges that hold them all: the smallest gaps are closed."""
    ranges = sorted(ranges)
    while len(ranges) > most:
        i = min(range(len(ranges) - 1), key=lambda k: ranges[k + 1][0] - ranges[k][1])
        ranges[i:i + 2] = [[ranges[i][0], ranges[i + 1][1]]]
    return ranges


def trace(folder, isa, type_name, width, ranges, instructions, emulator):
    """What one run executes, in order."""
    out = folder + '/trace'
    plugin = '%s/plugin.so,out=%s,%s' % (folder, out, ','.join('range=%x-%x' % tuple(r) for r in joined(ranges)))
    output(*emulator, '-plugin', plugin, folder + '/multiply', 'scalar' if isa == 'riscv' else isa, type_name, width)
    counted = set()
    for first, end in ranges:
        counted.update(range(first, end, 2))
    with open(out) as addresses:
        return [instructions[a] for a in (int(line, 16) for line in addresses) if a in counted]


def mca_cycles(instructions, cpu, target):
    text = '\n'.join(i for i in instructions if not re.match(r'ret|bx|b[a-z]* 0|pop|ldm.*pc', i))
    report = output(MCA, *target, '-mcpu=' + cpu, '-iterations=1', '-summary-view',
                    '-resource-pressure=false', '-instruction-info=false', input=text, stderr=subprocess.DEVNULL)
    return int(re.search(r'Total Cycles:\s+(\d+)', report).group(1))


def main():
    folder, isa, types, widths = sys.argv[1:5]
    core, cpu, (prefix, emulator, target) = CORES[isa]
    ranges, instructions = disassemble(folder + '/multiply', prefix)
    print('%s: cycles a block%s%s' % (isa, ' on a model of ' + core['name'] if core else '',
                                      ', (instructions, %s for %s)' % (MCA, cpu) if MCA and cpu
                                      else ', (instructions)'))
    for type_name in types.split(','):
        row = []
        for width in widths.split(','):
            ran = trace(folder, isa, type_name, width, ranges, instructions, emulator)
            more = ', %.0f' % (mca_cycles(ran, cpu, target) / BLOCKS) if MCA and cpu else ''
            model = ' %.0f' % (cores.cycles(ran, core) / BLOCKS) if core else ''
            row.append('n=%s%s (%.0f%s)' % (width, model, len(ran) / BLOCKS, more))
        print('%-8s' % type_name + '  '.join(row), flush=True)


if __name__ == '__main__':
    main()

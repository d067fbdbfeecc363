#!/usr/bin/env node
// Writes the table of character classes (letters by case, numbers, white space, marks, punctuation, symbols) that BPE
// pre-tokenizers need.
//
//   node tools/make-unicode.js              prints the table
//   node tools/make-unicode.js specdec.h    replaces the lines between the BEGIN and END marks of that file
//   node tools/make-unicode.js --check specdec.h    exits 1 when the file's table is not what this program writes
//
// The classes are those of Unicode as this Node.js knows them. A newer Unicode version only adds characters that were
// unassigned before. The table is a row of runs, one behind the other: (length - 1) << 4 | class in one byte, or, where
// a run has 16 characters or more, 15 << 4 | class and length - 16 in two more bytes, low byte first. Where upper and
// lower case take turns, as in most of Latin Extended, one run of class 9 stands for all: upper first. A second table
// has the first code point of every 64th run and its place in the first table.

'use strict';

const fs = require('fs');

const BEGIN = '/* BEGIN unicode: written by tools/make-unicode.js, do not edit */';
const END = '/* END unicode */';
// In the order of SPECDEC__TEXT_OTHER_CASE and so on in >>text.
const CLASSES = [[1, /^(\p{Lm}|\p{Lo})$/u], [2, /^\p{N}$/u], [3, /^\p{White_Space}$/u], [4, /^\p{M}$/u],
    [5, /^(\p{Lu}|\p{Lt})$/u], [6, /^\p{Ll}$/u], [7, /^\p{P}$/u], [8, /^\p{S}$/u]];
const UPPER = 5, LOWER = 6, TURNS = 9;
const SHORTEST_TURNS = 4;
const SHORTEST_LONG = 16, LONGEST = SHORTEST_LONG + 0xffff;
const RUNS_A_MARK = 64;
const WIDTH = 120;

function classOf(code) {
    if (code >= 0xd800 && code <= 0xdfff)
        return 0;
    const found = CLASSES.find(([, pattern]) => pattern.test(String.fromCodePoint(code)));
    return found ? found[0] : 0;
}

// How many characters from a code point on are upper, lower, upper, lower ...
function turnsAt(classes, code) {
    let end = code;
    while (classes[end] === ((end - code) % 2 ? LOWER : UPPER))
        end++;
    return end - code;
}

// All characters as runs: [first code point, length, class].
function runs() {
    const classes = Array.from({length: 0x110000}, (_, code) => classOf(code));
    const out = [];
    for (let code = 0; code < classes.length;) {
        const turns = turnsAt(classes, code);
        let end = code + turns;
        if (turns < SHORTEST_TURNS)
            for (end = code + 1; classes[end] === classes[code] && turnsAt(classes, end) < SHORTEST_TURNS;)
                end++;
        for (; code < end; code = Math.min(end, code + LONGEST))
            out.push([code, Math.min(end - code, LONGEST), turns < SHORTEST_TURNS ? classes[code] : TURNS]);
    }
    return out;
}

// A list of numbers as the lines of an initialiser.
function numbers(list) {
    const lines = [];
    let line = '   ';
    for (const item of list) {
        const text = String(item);
        if (line.length + text.length + 2 > WIDTH) {
            lines.push(line);
            line = '   ';
        }
        line += ` ${text},`;
    }
    lines.push(line.replace(/,$/, '};'));
    return lines;
}

function table() {
    const bytes = [], marks = [];
    runs().forEach(([code, length, kind], i) => {
        if (i % RUNS_A_MARK === 0)
            marks.push(`{0x${code.toString(16)}, ${bytes.length}}`);
        if (length < SHORTEST_LONG)
            bytes.push((length - 1) << 4 | kind);
        else
            bytes.push(15 << 4 | kind, length - SHORTEST_LONG & 255, length - SHORTEST_LONG >> 8);
    });
    return [BEGIN, `/* Runs of characters of Unicode ${process.versions.unicode}. */`,
        'static const unsigned char specdec__text_runs[] = {', ...numbers(bytes), '',
        'static const struct {', '    uint32_t code, at;', '} specdec__text_run_index[] = {', ...numbers(marks), END].join('\n');
}

function main(args) {
    const check = args[0] === '--check';
    const path = check ? args[1] : args[0];
    if (args.includes('--help') || args.length > 2 || (check && !path)) {
        console.error('usage: node tools/make-unicode.js [[--check] FILE]');
        return args.includes('--help') ? 0 : 2;
    }
    if (!path) {
        console.log(table());
        return 0;
    }
    const text = fs.readFileSync(path, 'utf8');
    const from = text.indexOf(BEGIN), to = text.indexOf(END);
    if (from < 0 || to < from) {
        console.error(`${path}: the BEGIN and END marks are not there`);
        return 1;
    }
    const updated = text.slice(0, from) + table() + text.slice(to + END.length);
    if (check) {
        if (updated !== text)
            console.error(`${path}: this program would write another table (Unicode ${process.versions.unicode})`);
        return updated === text ? 0 : 1;
    }
    fs.writeFileSync(path, updated);
    return 0;
}

process.exitCode = main(process.argv.slice(2));

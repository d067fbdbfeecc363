#!/usr/bin/env node
// Writes the table of character classes (letters, numbers, white space) that the BPE pre-tokenizers need.
//
//   node tools/make-unicode.js              prints the table
//   node tools/make-unicode.js specdec.h    replaces the lines between the BEGIN and END marks of that file
//   node tools/make-unicode.js --check specdec.h    exits 1 when the file's table is not what this program writes
//
// The classes are \p{L}, \p{N} and \p{White_Space} as this Node.js knows them. A newer Unicode version only adds
// characters that were unassigned before. Every entry is (first code point << 2 | class) and holds up to the next one.

'use strict';

const fs = require('fs');

const BEGIN = '/* BEGIN unicode: written by tools/make-unicode.js, do not edit */';
const END = '/* END unicode */';
const CLASSES = [[1, /^\p{L}$/u], [2, /^\p{N}$/u], [3, /^\p{White_Space}$/u]];
const WIDTH = 120;

function classOf(code) {
    if (code >= 0xd800 && code <= 0xdfff)
        return 0;
    const found = CLASSES.find(([, pattern]) => pattern.test(String.fromCodePoint(code)));
    return found ? found[0] : 0;
}

function entries() {
    const out = [];
    let previous = -1;
    for (let code = 0; code <= 0x10ffff; code++) {
        const now = classOf(code);
        if (now !== previous)
            out.push(code * 4 + now);
        previous = now;
    }
    return out;
}

function table() {
    const lines = [BEGIN, `/* Unicode ${process.versions.unicode} */`,
        'static const uint32_t specdec__text_classes[] = {'];
    let line = '   ';
    for (const entry of entries()) {
        const text = ` 0x${entry.toString(16)},`;
        if (line.length + text.length > WIDTH) {
            lines.push(line);
            line = '   ';
        }
        line += text;
    }
    lines.push(line.replace(/,$/, '};'), END);
    return lines.join('\n');
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

// SPDX-License-Identifier: Apache-2.0
// What the scripts of a page share: the data of the stacks, the selection, and formats.
"use strict";
const find = (name) => document.getElementById(name);
const data = JSON.parse(find("stacks")?.textContent ?? "null");
const PEAK = data?.moments?.findIndex((one) => one.at === data.at) ?? -1;
// At most one of these is selected: a call site, a size class, a cell of the map, or a frame of the
// flame graph with the stacks through it. -1: none.
const NOTHING = { stack: -1, slot: -1, cell: -1, frame: null };
const selection = { moment: PEAK, ...NOTHING }; // moment -1: the page has none
function select(changes) {
    Object.assign(selection, changes);
    document.dispatchEvent(new Event("selection"));
}
const onSelection = (act) => document.addEventListener("selection", act);

// --- data -----------------------------------------------------------------------------------------

const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
// Bytes from the run lengths of `packed` in moments.py.
function unpacked(text) {
    const bytes = bytesOf(text), values = [];
    let at = 0;
    while (at < bytes.length) {
        const control = bytes[at++];
        if (control < 128) for (let i = 0; i <= control; i++) values.push(bytes[at++]);
        else values.push(...Array(control - 126).fill(bytes[at++]));
    }
    return values;
}
const codesOf = (text) => new Uint16Array(bytesOf(text).buffer);
const decoded = (code) => Math.round(2 ** (code / 1024) - 1);
// The quantities of each stack, in the order of data.of: at the peak exactly.
function valuesAt(moment) {
    if (moment === PEAK) return data.values;
    const codes = codesOf(data.moments[moment].codes), width = data.of.length;
    return data.values.map((row, i) => row.map((value, k) =>
        (data.of[k] === "allocations" ? value : decoded(codes[i * width + k]))));
}
// The same of the whole heap; allocations are always those of the whole recording.
const totalsAt = (moment) => (moment === PEAK ? data.totals
    : [...data.moments[moment].totals.slice(0, -1), data.totals.at(-1)]);
// Numbers of live objects by stack and size class.
function pairsAt(moment) {
    const codes = codesOf(data.moments[moment].pairs), pairs = [];
    for (let i = 0; i < codes.length; i += 3)
        pairs.push({ stack: codes[i], slot: codes[i + 1], objects: decoded(codes[i + 2]) });
    return pairs.sort((a, b) => b.objects - a.objects);
}
// The frames of a stack, the innermost first.
const framesOf = (stack) => data.stacks[stack].map((frame) => data.names[frame]).reverse();
// The same without those of a runtime, if there are others.
const runtime = new Set(data.hidden);
function callersOf(stack) {
    const callers = data.stacks[stack].filter((frame) => !runtime.has(frame));
    return callers.length ? callers.map((frame) => data.names[frame]).reverse() : framesOf(stack);
}
// The innermost of each run of recursive calls.
function distinctCallers(stack) {
    const functions = callersOf(stack).map((name) => name.replace(/:\d+\)$/, ")"));
    return callersOf(stack).filter((_, i) => functions[i] !== functions[i - 1]);
}
const isSite = (stack) =>
    stack < data.stacks.length && !framesOf(stack)[0].endsWith(" more call sites]");
// Its innermost functions, each once.
function siteName(stack) {
    if (!isSite(stack)) return "other call sites";
    const seen = new Set();
    const frames = callersOf(stack).filter((name) => {
        const [plain] = name.split(" (");
        return !seen.has(plain) && seen.add(plain);
    });
    return frames.slice(0, 3).join(" < ");
}
const momentName = () => (selection.moment === PEAK ? "at the peak"
    : `at ${data.moments[selection.moment].at}`);

// --- text -----------------------------------------------------------------------------------------

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
function size(bytes) {
    let power = 0;
    while (bytes / 1024 ** power >= 1024 && power < UNITS.length - 1) power++;
    return `${(bytes / 1024 ** power).toFixed(power ? 1 : 0)} ${UNITS[power]}`;
}
const number = (value) => value.toLocaleString("en");
const share = (part, whole) => `${((100 * part) / Math.max(whole, 1)).toFixed(1)} %`;
function button(text, press) {
    const made = document.createElement("button");
    made.className = "link";
    made.textContent = text;
    made.addEventListener("click", press);
    return made;
}
// The stacks of the selected call site or frame; null: all.
const chosenStacks = () =>
    selection.frame?.stacks ?? (selection.stack < 0 ? null : new Set([selection.stack]));
const chosenName = () => (selection.frame ? `calls through ${selection.frame.name}`
    : siteName(selection.stack));
const showStack = (stack) => select({ ...NOTHING, stack });
const showAll = () => button("show all", () => showStack(-1));

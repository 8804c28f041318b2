// SPDX-License-Identifier: Apache-2.0
// Redraws the flame graph from stacks: quantities, directions, zoom and search.
"use strict";
(() => {
    const find = (name) => document.getElementById(name);
    const svg = find("flame");
    if (!svg) return;
    const { of, at, names, hidden, stacks, values } = JSON.parse(find("stacks").textContent);
    const [quantity, view, hide, search] = ["of", "view", "hide", "search"].map(
        (name) => find(`flame-${name}`));
    const ROW = 19, LETTER = 6.8, NARROWEST = 1, UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
    const NO_OBJECT = "[of no live object]", runtime = new Set(hidden);
    const pattern = svg.querySelector("defs");
    let root, zoomed, drawn;

    const isCount = () => quantity.value === "allocations";
    function size(bytes) {
        if (isCount()) return bytes.toLocaleString("en");
        let power = 0;
        while (bytes / 1024 ** power >= 1024 && power < UNITS.length - 1) power++;
        return `${(bytes / 1024 ** power).toFixed(power ? 1 : 0)} ${UNITS[power]}`;
    }
    const share = (part, whole) => `${((100 * part) / Math.max(whole, 1)).toFixed(1)} %`;

    // --- the tree ---

    function add(frames, bytes) {
        root.bytes += bytes;
        let node = root;
        for (const name of frames) {
            if (!node.callees.has(name))
                node.callees.set(name, { name, bytes: 0, callees: new Map(), caller: node });
            node = node.callees.get(name);
            node.bytes += bytes;
        }
    }
    // The frames that are shown, from the root of the graph; at least one.
    function framesOf(stack) {
        const kept = hide.checked ? stack.filter((frame) => !runtime.has(frame)) : stack;
        const frames = (kept.length ? kept : stack.slice(-1)).map((frame) => names[frame]);
        return view.value === "inverted" ? frames.reverse() : frames;
    }
    function build() {
        const column = of.findIndex((one) => one.name === quantity.value);
        root = { name: isCount() ? quantity.value : `${quantity.value} at ${at}`, bytes: 0, callees: new Map() };
        stacks.forEach((stack, i) => {
            if (values[i][column]) add(framesOf(stack), values[i][column]);
        });
        // If the heap's limit refused a resize, the sites may add up to more than the ledger.
        if (of[column].total > root.bytes) add([NO_OBJECT], of[column].total - root.bytes);
        zoomed = root;
        draw();
    }

    // --- search ---

    function regexOf(text) {
        if (!text) return null;
        try {
            return new RegExp(text, "i");
        } catch {
            return undefined; // not a regular expression yet
        }
    }
    // The bytes of stacks with a matching frame; each stack counts once.
    function matching(node, wanted) {
        if (node !== root && wanted.test(node.name)) return node.bytes;
        let sum = 0;
        for (const callee of node.callees.values()) sum += matching(callee, wanted);
        return sum;
    }
    function searched() {
        const wanted = regexOf(search.value);
        let text = "";
        if (wanted === undefined) text = "invalid regular expression";
        if (wanted) {
            const bytes = matching(root, wanted);
            text = `matched ${share(bytes, root.bytes)} (${size(bytes)})`;
        }
        find("flame-share").textContent = text;
        return wanted;
    }

    // --- drawing ---

    function element(name, attributes, text) {
        const made = document.createElementNS(svg.namespaceURI, name);
        for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
        if (text) made.textContent = text;
        return made;
    }
    const described = (node) =>
        `${node.name}\n${size(node.bytes)}`
        + (isCount() ? ", " : ` (${node.bytes.toLocaleString("en")} bytes), `)
        + `${share(node.bytes, root.bytes)} of all`;

    // The boxes from the root to the zoomed frame at full width, and those above it in proportion.
    function place(width) {
        const boxes = [], path = [];
        for (let node = zoomed; node; node = node.caller) path.unshift(node);
        path.forEach((node, row) => boxes.push({ node, row, left: 0, width }));
        const below = (node, left, scale, row) => {
            const callees = [...node.callees.values()];
            callees.sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1));
            for (const callee of callees) {
                const wide = callee.bytes * scale;
                if (wide < NARROWEST) break;
                boxes.push({ node: callee, row, left, width: wide });
                below(callee, left, scale, row + 1);
                left += wide;
            }
        };
        below(zoomed, 0, width / Math.max(zoomed.bytes, 1), path.length);
        return boxes;
    }
    function draw() {
        const width = svg.parentElement.clientWidth || 820, wanted = searched();
        drawn = place(width);
        const rows = 1 + Math.max(...drawn.map((box) => box.row));
        svg.setAttribute("viewBox", `0 0 ${width} ${rows * ROW + 1}`);
        svg.replaceChildren(pattern, ...drawn.map((box) => group(box, rows, wanted)));
        drawn.find((box) => box.node === zoomed).group.setAttribute("tabindex", "0");
    }
    function group(box, rows, wanted) {
        const { node, row, left, width } = box;
        const y = (view.value === "flame" ? rows - 1 - row : row) * ROW;
        const shade = node.name.startsWith("[") ? "of-no-call" : `shade-${row % 2}`;
        const found = wanted && node !== root && wanted.test(node.name) ? " match" : "";
        const letters = Math.floor((width - 6) / LETTER);
        const text = node.name.length > letters
            ? `${node.name.slice(0, letters - 1)}…` : node.name;
        const g = element("g", { role: "button", tabindex: "-1", "aria-label": described(node) });
        g.append(
            element("title", {}, described(node)),
            element("rect", { x: left, y, width: Math.max(width - 0.5, 0.5), height: ROW - 1,
                class: `frame ${shade}${found}` }));
        const label = { x: left + 3, y: y + 13, class: "frame-text" };
        if (letters > 2) g.append(element("text", label, text));
        box.group = g;
        return g;
    }

    // --- input ---

    const boxOf = (target) => drawn.find((box) => box.group === target.closest?.("g"));
    function describe(event) {
        const box = boxOf(event.target);
        if (box) find("flame-box").textContent = described(box.node).replace("\n", ": ");
    }
    function zoom(node) {
        zoomed = node;
        draw();
    }
    // Arrow keys move to the callee, the caller, or the next box of a row.
    function step(box, key) {
        const outward = view.value === "flame" ? "ArrowDown" : "ArrowUp";
        const inward = view.value === "flame" ? "ArrowUp" : "ArrowDown";
        const row = drawn.filter((one) => one.row === box.row);
        const i = row.indexOf(box);
        if (key === outward) return drawn.find((one) => one.node === box.node.caller);
        if (key === inward) return drawn.find((one) => one.node.caller === box.node);
        return { ArrowLeft: row[i - 1], ArrowRight: row[i + 1] }[key];
    }
    svg.addEventListener("click", (event) => {
        const box = boxOf(event.target);
        if (box) zoom(box.node);
    });
    svg.addEventListener("keydown", (event) => {
        const box = boxOf(event.target);
        if (!box) return;
        const next = step(box, event.key);
        if (event.key === "Enter" || event.key === " ") zoom(box.node);
        else if (event.key === "Escape") zoom(root);
        else if (!next) return;
        event.preventDefault();
        (next ?? drawn.find((one) => one.node === zoomed)).group.focus();
    });
    for (const kind of ["pointerover", "focusin"]) svg.addEventListener(kind, describe);
    for (const input of [quantity, view, hide]) input.addEventListener("change", build);
    search.addEventListener("input", draw);
    document.addEventListener("search-frames", (event) => {
        search.value = event.detail;
        draw();
    });
    find("flame-reset").addEventListener("click", () => zoom(root));
    addEventListener("resize", draw);
    of.forEach((one, i) => { quantity.options[i].disabled = one.total === 0; });
    find("flame-tools").hidden = false;
    svg.setAttribute("role", "group");
    build();
})();

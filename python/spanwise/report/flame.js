// SPDX-License-Identifier: Apache-2.0
// Draws the flame graph from stacks: quantities, directions, zoom, search, and the difference of
// two recordings.
"use strict";
(() => {
    const svg = find("flame");
    if (!svg) return;
    const names = data.names, earlier = data.before;
    const [quantity, view, hide, merge, search] = ["of", "view", "hide", "merge", "search"].map(
        (name) => find(`flame-${name}`));
    const ROW = 19, NARROWEST = 1;
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = '11px system-ui, "DejaVu Sans", sans-serif'; // as .frame-text
    const NO_OBJECT = "[of no live object]";
    const pattern = svg.querySelector("defs");
    let root, zoomed, drawn, shownAt, shownStack = -1, shownFrame = null;

    const isCount = () => ["objects", "allocations"].includes(quantity.value);
    const amount = (value) => (isCount() ? number(value) : size(value));

    // --- the tree ---

    // A stack is as wide as the larger of its two values, so that one that is gone is shown too.
    function add(frames, now, before) {
        let node = root;
        for (const name of [null, ...frames]) {
            if (name !== null && !node.callees.has(name))
                node.callees.set(name, nodeOf(name, node));
            node = name === null ? root : node.callees.get(name);
            node.value += Math.max(now, before);
            node.now += now;
            node.before += before;
        }
    }
    const nodeOf = (name, caller) =>
        ({ name, caller, value: 0, now: 0, before: 0, callees: new Map() });
    const shownName = (name) => (merge.checked ? name.replace(/:\d+\)$/, ")") : name);
    // The frames that are shown, from the root of the graph; at least one.
    function shownFrames(stack) {
        const kept = hide.checked ? stack.filter((frame) => !runtime.has(frame)) : stack;
        const frames = (kept.length ? kept : stack.slice(-1)).map((frame) => shownName(names[frame]));
        return view.value === "inverted" ? frames.reverse() : frames;
    }
    // The names from the root's callee to a box.
    function pathOf(node) {
        const path = [];
        for (; node?.caller; node = node.caller) path.unshift(node.name);
        return path;
    }
    // Draws the selected quantity and moment; the zoomed box stays, or its nearest caller.
    function build() {
        const path = pathOf(zoomed);
        const column = data.of.indexOf(quantity.value), values = valuesAt(selection.moment);
        const at = data.moments?.[selection.moment].at ?? data.at;
        root = nodeOf(quantity.value === "allocations" ? quantity.value
            : `${quantity.value} at ${at}`);
        data.stacks.forEach((stack, i) => {
            const now = values[i][column], before = earlier?.values[i][column] ?? 0;
            if (now || before) add(shownFrames(stack), now, before);
        });
        // If the heap's limit refused a resize, the sites may add up to more than the ledger.
        const now = Math.max(totalsAt(selection.moment)[column] - root.now, 0);
        const before = Math.max((earlier?.totals[column] ?? 0) - root.before, 0);
        if (now || before) add([NO_OBJECT], now, before);
        zoomed = path.reduce((node, name) => node.callees.get(name) ?? node, root);
        shownAt = selection.moment;
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
    // The value of stacks with a matching frame; each stack counts once.
    function matching(node, wanted) {
        if (node !== root && wanted.test(node.name)) return node.value;
        let sum = 0;
        for (const callee of node.callees.values()) sum += matching(callee, wanted);
        return sum;
    }
    function searched() {
        const wanted = regexOf(search.value);
        let text = "";
        if (wanted === undefined) text = "invalid regular expression";
        if (wanted) {
            const value = matching(root, wanted);
            text = `matched ${share(value, root.value)} (${amount(value)})`;
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
    function described(node) {
        const exact = isCount() ? "" : ` (${number(node.now)} bytes)`;
        if (!earlier)
            return `${node.name}\n${amount(node.now)}${exact}, ${share(node.now, root.value)} of all`;
        const change = node.now - node.before;
        return `${node.name}\n${amount(node.before)} before, ${amount(node.now)}${exact} now:`
            + ` ${change < 0 ? "-" : "+"}${amount(Math.abs(change))}`
            + (node.before ? ` (${share(change, node.before)})` : "");
    }
    // Red grows, blue shrinks, in four steps of the share of its width that a box gained or lost.
    function shadeOf(node, row) {
        if (node.name.startsWith("[")) return "of-no-call";
        if (!earlier) return `shade-${row % 2}`;
        const change = (node.now - node.before) / Math.max(node.value, 1);
        return `${change < 0 ? "less" : "more"}-${Math.ceil(4 * Math.abs(change) - 0.02)}`;
    }

    // The boxes from the root to the zoomed frame at full width, and those above it in proportion.
    function place(width) {
        const boxes = [], path = [];
        for (let node = zoomed; node; node = node.caller) path.unshift(node);
        path.forEach((node, row) => boxes.push({ node, row, left: 0, width }));
        const below = (node, left, scale, row) => {
            const callees = [...node.callees.values()];
            callees.sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1));
            for (const callee of callees) {
                const wide = callee.value * scale;
                if (wide < NARROWEST) break;
                boxes.push({ node: callee, row, left, width: wide });
                below(callee, left, scale, row + 1);
                left += wide;
            }
        };
        below(zoomed, 0, width / Math.max(zoomed.value, 1), path.length);
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
    // The start of a text that is as wide as the room; "" if that is less than a letter.
    function cut(text, room) {
        if (pen.measureText(text).width <= room) return text;
        let least = 0, most = text.length;
        while (least < most) {
            const letters = Math.ceil((least + most) / 2);
            if (pen.measureText(`${text.slice(0, letters)}…`).width <= room) least = letters;
            else most = letters - 1;
        }
        return least ? `${text.slice(0, least)}…` : "";
    }
    function group(box, rows, wanted) {
        const { node, row, left, width } = box;
        const y = (view.value === "flame" ? rows - 1 - row : row) * ROW;
        const shade = shadeOf(node, row);
        const found = wanted && node !== root && wanted.test(node.name) ? " match" : "";
        const mark = { l: "▼ ", m: "▲ " }[/^(less|more)-[1-4]/.exec(shade)?.[0][0]] ?? "";
        const text = cut(mark + node.name, width - 6);
        const g = element("g", { role: "button", tabindex: "-1", "aria-label": described(node) });
        g.append(
            element("title", {}, described(node)),
            element("rect", { x: left, y, width: Math.max(width - 0.5, 0.5), height: ROW - 1,
                class: `frame ${shade}${found}` }));
        const at = { x: left + 3, y: y + 13, class: "frame-text" };
        if (text) g.append(element("text", at, text));
        box.group = g;
        return g;
    }

    // --- input ---

    const boxOf = (target) => drawn.find((box) => box.group === target.closest?.("g"));
    function describe(event) {
        const box = boxOf(event.target);
        if (box) find("flame-box").textContent = described(box.node).replace("\n", ": ");
    }
    // Selects the stacks through a box too, or none for the root.
    function zoom(node) {
        zoomed = node;
        draw();
        const path = pathOf(node), stacks = path.length ? stacksThrough(path) : [];
        const frame = stacks.length ? { name: node.name, stacks: new Set(stacks) } : null;
        if (!frame && !shownFrame) return;
        shownFrame = frame;
        select({ ...NOTHING, frame });
    }
    const stacksThrough = (path) => [...data.stacks.keys()].filter((stack) => {
        const frames = shownFrames(data.stacks[stack]);
        return path.every((name, i) => frames[i] === name);
    });
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
    // Searches the innermost frame of the selected site.
    function searchSite() {
        const frame = shownStack < 0 ? "" : shownName(framesOf(shownStack)[0]);
        search.value = frame && `^${frame.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`;
    }
    merge.addEventListener("change", () => {
        if (shownStack >= 0) searchSite();
    });
    quantity.addEventListener("change", build);
    for (const input of [view, hide, merge]) {
        input.addEventListener("change", () => {
            zoomed = root;
            build();
            if (shownFrame) select(NOTHING);
        });
    }
    search.addEventListener("input", draw);
    onSelection(() => {
        if (shownStack !== selection.stack) {
            shownStack = selection.stack;
            searchSite();
            if (shownAt === selection.moment) draw();
        }
        if (shownFrame !== selection.frame) {
            shownFrame = selection.frame;
            zoom(root);
        }
        if (shownAt !== selection.moment) build();
    });
    find("flame-reset").addEventListener("click", () => zoom(root));
    addEventListener("resize", draw);
    const totals = [data, ...(data.moments ?? []), ...(earlier ? [earlier] : [])];
    [...quantity.options].forEach((option, i) => {
        option.disabled = totals.every((one) => one.totals[i] === 0);
    });
    find("flame-tools").hidden = false;
    svg.setAttribute("role", "group");
    build();
})();

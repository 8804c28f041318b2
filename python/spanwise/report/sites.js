// SPDX-License-Identifier: Apache-2.0
// The call sites and their sizes at the selected moment, and the time line that selects it.
"use strict";
(() => {
    if (!data?.moments) return;
    const SHOWN = 15, SMALL = 1000; // a site with less than that part of all bytes has no row

    // --- call sites ---

    const body = document.querySelector("#call-sites tbody");
    const COLUMNS = ["waste", "pinned", "requested", "objects"].map((of) => data.of.indexOf(of));
    const rows = new Map([...(body?.rows ?? [])].map((row, stack) => [stack, row]));
    const table = body?.parentElement;
    let shownAt = PEAK, pairs = pairsAt(PEAK);

    function links(row, stack, isOnMap) {
        const tools = row.lastElementChild.appendChild(document.createElement("div"));
        if (isOnMap)
            tools.append(button("show on the map", () => {
                select({ moment: PEAK });
                showStack(stack === selection.stack ? -1 : stack);
                find("heap-map").scrollIntoView();
            }));
        tools.append(button("its sizes", () => {
            showStack(stack);
            find("sizes").scrollIntoView();
        }));
    }
    // Rows of the peak are in the page; the others are made of them.
    function rowOf(stack) {
        if (!rows.has(stack)) {
            const row = rows.get(0).cloneNode(true);
            const [first, ...others] = framesOf(stack).slice(0, 4).map(shortName);
            const through = data.through[stack] ? ` through ${data.through[stack]}` : "";
            row.lastElementChild.textContent = [first + through, ...others].join("\n");
            links(row, stack, false);
            rows.set(stack, row);
        }
        return rows.get(stack);
    }
    function fillTable() {
        const values = valuesAt(selection.moment), [waste, , requested, objects] = COLUMNS;
        const found = values.map((row, stack) =>
            ({ row, stack, bytes: row[waste] + row[requested] }));
        const least = found.reduce((sum, { bytes }) => sum + bytes, 0) / SMALL;
        const sites = found.filter(({ row, stack, bytes }) =>
            row[objects] > 0 && bytes >= least && isSite(stack));
        sites.sort((a, b) => b.row[waste] - a.row[waste] || a.stack - b.stack);
        const shown = sites.slice(0, SHOWN);
        writeOthers(values, shown);
        body.replaceChildren(...shown.map(({ row: counts, stack }) => {
            const row = rowOf(stack);
            row.hidden = false;
            COLUMNS.forEach((k, i) => {
                row.cells[i].textContent = (i < 3 ? size : number)(counts[k]);
            });
            return row;
        }));
        for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
        table.parentElement.previousElementSibling.querySelector("input")
            ?.dispatchEvent(new Event("input"));
    }
    // The bytes of call sites without a row, so that all of them are accounted for.
    function writeOthers(values, shown) {
        const [waste, , requested, objects] = COLUMNS;
        const seen = new Set(shown.map((one) => one.stack));
        const others = values.filter((row, stack) => row[objects] > 0 && !seen.has(stack));
        const sum = (k) => others.reduce((total, row) => total + row[k], 0);
        find("more-sites").textContent = others.length === 0 ? "" : `Other call sites: `
            + `${size(sum(waste))} of waste, ${size(sum(requested))} requested.`;
    }
    function isSelected(stack) {
        if (selection.slot >= 0)
            return pairs.some((pair) => pair.slot === selection.slot && pair.stack === stack);
        return selection.cell >= 0 ? holds(stack, selection.cell) : stack === selection.stack;
    }
    if (body) rows.forEach((row, stack) => links(row, stack, PEAK >= 0));
    if (body && PEAK >= 0) fillTable();

    // --- sizes ---

    // One for wide screens and one for narrow ones, with the same heights.
    const sizeCharts = [...document.querySelectorAll(".size-chart")];
    const shownSizes = find("sizes-of");
    const slotOf = (box) => data.slots.indexOf(Number(box.dataset.slot));
    const boxesOf = (chart) =>
        [...chart.querySelectorAll(".live")].filter((box) => slotOf(box) >= 0);
    const boxes = sizeCharts.flatMap(boxesOf);
    const className = (slot) => (data.slots[slot] ? `slots of ${number(data.slots[slot])} B`
        : "large objects");

    function drawSizes() {
        const only = selection.stack, counts = data.slots.map(() => 0);
        for (const pair of pairs)
            if (only < 0 || pair.stack === only) counts[pair.slot] += pair.objects;
        const { bottom, height, most } = sizeCharts[0].dataset;
        for (const box of boxes) {
            const slot = slotOf(box), count = counts[slot];
            const high = count > 0 ? height * Math.log(count * 2) / Math.log(most * 2) : 0;
            box.setAttribute("y", bottom - high);
            box.setAttribute("height", high);
            box.classList.toggle("selected", slot === selection.slot);
            box.firstChild.textContent
                = `${number(count)} live in ${className(slot)} ${momentName()}`;
        }
        writeSizes();
    }
    function writeSizes() {
        const { stack, slot } = selection;
        if (stack < 0 && slot < 0) {
            shownSizes.textContent = "Click on a class to see the call sites of its objects.";
            return;
        }
        const chosen = pairs.filter((pair) => (slot < 0 ? pair.stack === stack : pair.slot === slot));
        const parts = chosen.slice(0, SHOWN).map((pair) => {
            const part = document.createElement("div");
            part.textContent = `${number(pair.objects)} ${slot < 0 ? "in " : "of "}`;
            const text = slot < 0 ? className(pair.slot) : siteName(pair.stack);
            const press = slot < 0 ? () => select({ slot: pair.slot, stack: -1, cell: -1 })
                : () => showStack(pair.stack);
            part.append(slot < 0 || isSite(pair.stack) ? button(text, press) : text);
            return part;
        });
        const what = slot < 0 ? siteName(stack) : className(slot);
        shownSizes.replaceChildren(`Live objects ${momentName()}, ${what}: `,
            ...(parts.length ? parts : ["none. "]), showAll());
    }
    const selectSlot = (slot) => select({ slot, stack: -1, cell: -1 });
    // The x coordinate of an event in a picture.
    function placeIn(picture, event) {
        const box = picture.getBoundingClientRect(), { width } = picture.viewBox.baseVal;
        return Math.min(Math.max(((event.clientX - box.left) / box.width) * width, 0), width);
    }
    for (const chart of sizeCharts) {
        const slotsOnChart = boxesOf(chart).map(slotOf);
        chart.addEventListener("click", (event) => {
            const x = placeIn(chart, event);
            const found = boxesOf(chart).find((one) => {
                const { value: left } = one.x.baseVal, { value: width } = one.width.baseVal;
                return left <= x && x < left + width;
            });
            if (found) selectSlot(slotOf(found));
        });
        chart.addEventListener("keydown", (event) => {
            const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
            const next = slotsOnChart[slotsOnChart.indexOf(selection.slot) + step];
            if (next === undefined) return;
            event.preventDefault();
            selectSlot(next);
        });
        chart.setAttribute("tabindex", "0");
    }

    // --- the time line ---

    // Frames have their places in the first picture; the second, for narrow screens, scales them.
    const frames = cells.frames, timelines = [...document.querySelectorAll(".timeline")];
    const axes = timelines.map(({ dataset }) => [Number(dataset.left), Number(dataset.right)]);
    const scaled = (x, [left, right], [first, last]) =>
        first + ((x - left) * (last - first)) / (right - left);
    const brushes = timelines.map((timeline) => {
        const brush = document.createElementNS(timeline.namespaceURI, "rect");
        brush.setAttribute("class", "brush");
        brush.setAttribute("height", timeline.viewBox.baseVal.height);
        return timeline.appendChild(brush);
    });
    let start = null;

    // The moment of an interval with most resident bytes, or the nearest to its middle.
    function momentIn(from, to) {
        const [low, high] = [Math.min(from, to), Math.max(from, to)], middle = (low + high) / 2;
        const all = frames.map((frame, i) => ({ ...frame, i }));
        const inside = all.filter((frame) => low <= frame.x && frame.x <= high);
        inside.sort((a, b) => b.resident - a.resident);
        all.sort((a, b) => Math.abs(a.x - middle) - Math.abs(b.x - middle));
        return (inside[0] ?? all[0]).i;
    }
    const paint = (from, to) => brushes.forEach((brush, i) => {
        const [a, b] = [from, to].map((x) => scaled(x, axes[0], axes[i]));
        brush.setAttribute("x", Math.min(a, b));
        brush.setAttribute("width", Math.abs(b - a));
    });
    timelines.forEach((timeline, i) => {
        const place = (event) => scaled(placeIn(timeline, event), axes[i], axes[0]);
        timeline.addEventListener("pointerdown", (event) => {
            start = place(event);
            timeline.setPointerCapture(event.pointerId);
            paint(start, start);
        });
        timeline.addEventListener("pointermove", (event) => {
            if (start !== null) paint(start, place(event));
        });
        timeline.addEventListener("pointerup", (event) => {
            if (start !== null) select({ moment: momentIn(start, place(event)) });
            start = null;
        });
        timeline.addEventListener("pointercancel", () => { start = null; });
    });
    find("when").addEventListener("input", () => paint(0, 0));

    function drawTime() {
        const { x } = frames[selection.moment];
        timelines.forEach((timeline, i) => {
            const line = timeline.querySelector(".now"), at = scaled(x, axes[0], axes[i]);
            line.setAttribute("x1", at);
            line.setAttribute("x2", at);
            line.setAttribute("visibility", "visible");
        });
        for (const one of document.querySelectorAll(".when")) one.textContent = momentName();
        find("shown").replaceChildren(`The sections below show the heap ${momentName()}. `);
        if (selection.moment !== PEAK)
            find("shown").append(button("back to the peak", () => {
                paint(0, 0);
                select({ moment: PEAK });
            }));
    }

    function draw() {
        const isNew = shownAt !== selection.moment;
        shownAt = selection.moment;
        if (isNew) pairs = pairsAt(shownAt);
        drawTime();
        if (sizeCharts.length) drawSizes();
        if (!body) return;
        if (isNew) fillTable();
        rows.forEach((row, stack) => row.classList.toggle("selected", isSelected(stack)));
    }
    onSelection(draw);
    draw();
})();

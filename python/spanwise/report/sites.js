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
            row.lastElementChild.textContent
                = framesOf(stack).slice(0, 4).map(shortName).join("\n");
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
        body.replaceChildren(...sites.slice(0, SHOWN).map(({ row: counts, stack }) => {
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
    function isSelected(stack) {
        if (selection.slot >= 0)
            return pairs.some((pair) => pair.slot === selection.slot && pair.stack === stack);
        return selection.cell >= 0 ? holds(stack, selection.cell) : stack === selection.stack;
    }
    if (body) rows.forEach((row, stack) => links(row, stack, PEAK >= 0));
    if (body && PEAK >= 0) fillTable();

    // --- sizes ---

    const chart = find("size-chart"), shownSizes = find("sizes-of");
    const boxes = [...(chart?.querySelectorAll(".live") ?? [])]
        .filter((box) => data.slots.includes(Number(box.dataset.slot)));
    const className = (slot) => (data.slots[slot] ? `slots of ${number(data.slots[slot])} B`
        : "large objects");

    function drawSizes() {
        const only = selection.stack, counts = data.slots.map(() => 0);
        for (const pair of pairs)
            if (only < 0 || pair.stack === only) counts[pair.slot] += pair.objects;
        const { bottom, height, most } = chart.dataset;
        for (const box of boxes) {
            const slot = data.slots.indexOf(Number(box.dataset.slot)), count = counts[slot];
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
    const slotsOnChart = boxes.map((box) => data.slots.indexOf(Number(box.dataset.slot)));
    chart?.addEventListener("click", (event) => {
        const box = chart.getBoundingClientRect();
        const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
        const found = boxes.findIndex((one) => {
            const { value: left } = one.x.baseVal, { value: width } = one.width.baseVal;
            return left <= x && x < left + width;
        });
        if (found >= 0) selectSlot(slotsOnChart[found]);
    });
    chart?.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        const next = slotsOnChart[slotsOnChart.indexOf(selection.slot) + step];
        if (next === undefined) return;
        event.preventDefault();
        selectSlot(next);
    });
    chart?.setAttribute("tabindex", "0");

    // --- the time line ---

    const timeline = find("timeline"), line = find("now"), frames = cells.frames;
    const brush = document.createElementNS(timeline.namespaceURI, "rect");
    const { width, height } = timeline.viewBox.baseVal;
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
    const place = (event) => {
        const box = timeline.getBoundingClientRect();
        return Math.min(Math.max(((event.clientX - box.left) / box.width) * width, 0), width);
    };
    const paint = (from, to) => {
        brush.setAttribute("x", Math.min(from, to));
        brush.setAttribute("width", Math.abs(to - from));
    };
    brush.setAttribute("class", "brush");
    brush.setAttribute("height", height);
    timeline.append(brush);
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
    find("when").addEventListener("input", () => paint(0, 0));

    function drawTime() {
        const { x } = frames[selection.moment];
        line.setAttribute("x1", x);
        line.setAttribute("x2", x);
        line.setAttribute("visibility", "visible");
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
        if (chart) drawSizes();
        if (!body) return;
        if (isNew) fillTable();
        rows.forEach((row, stack) => row.classList.toggle("selected", isSelected(stack)));
    }
    onSelection(draw);
    draw();
})();

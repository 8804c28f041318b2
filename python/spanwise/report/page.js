// SPDX-License-Identifier: Apache-2.0
// The tables, heap map, call sites, sizes and time line of a report.
"use strict";

// Tables: a click on the head of a column sorts, and long tables have a filter.
(() => {
    const FILTERED_MIN = 8;
    const SCALES = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

    // The number of a cell such as "1.5 MiB", "12.0 %" or "3,476"; NaN if there is none.
    function numberOf(text) {
        const [number, unit] = text.trim().split(" ");
        return parseFloat(number.replaceAll(",", "")) * (SCALES[unit] ?? 1);
    }
    // What comes first: cells without a number are last in either direction.
    function compare(a, b, isNumber, sign) {
        if (!isNumber) return sign * a.localeCompare(b);
        const one = numberOf(a), other = numberOf(b);
        if (isNaN(one) || isNaN(other)) return isNaN(one) - isNaN(other);
        return sign * (one - other);
    }
    function sortable(table) {
        const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
        heads.forEach((head, column) => {
            const button = document.createElement("button");
            button.textContent = head.textContent;
            head.replaceChildren(button);
            button.addEventListener("click", () => {
                const isNumber = head.classList.contains("number");
                const before = head.getAttribute("aria-sort") ?? (isNumber ? "ascending" : "");
                const now = before === "ascending" ? "descending" : "ascending";
                const sign = now === "ascending" ? 1 : -1;
                const text = (row) => row.cells[column].firstChild?.textContent ?? "";
                const rows = [...body.rows];
                rows.sort((a, b) => compare(text(a), text(b), isNumber, sign));
                body.append(...rows);
                heads.forEach((one) => one.removeAttribute("aria-sort"));
                head.setAttribute("aria-sort", now);
            });
        });
    }
    function filterable(table) {
        if (table.tBodies[0].rows.length < FILTERED_MIN) return;
        const tools = document.createElement("p"), input = document.createElement("input");
        const count = document.createElement("output");
        tools.className = "tools";
        input.type = "search";
        input.placeholder = "filter rows";
        input.setAttribute("aria-label", "filter rows");
        tools.append(input, count);
        table.parentElement.before(tools);
        input.addEventListener("input", () => {
            const wanted = input.value.toLowerCase(), rows = [...table.tBodies[0].rows];
            for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
            const shown = rows.filter((row) => !row.hidden).length;
            count.textContent = wanted ? `${shown} of ${rows.length} rows` : "";
        });
    }
    for (const table of document.querySelectorAll("main table")) {
        sortable(table);
        filterable(table);
    }
})();

// Draws the heap map of the selected moment: one byte a cell, as docs/design/report.md says.
const cells = JSON.parse(find("frames")?.textContent ?? "null");
const hasHolders = cells?.frames[0]?.counts !== undefined;
// Objects in each cell by moment and call site: its sites with most waste, then all others. A row
// is the difference, modulo 256, from the row of the same site at an earlier moment.
let counted = null;
function objectsAt(moment) {
    counted ??= (() => {
        const rows = new Map();
        return cells.frames.map(({ stacks, counts }) => counts.map((text, i) => {
            const stack = stacks[i] ?? -1, before = rows.get(stack);
            const row = Uint8Array.from(unpacked(text), (more, at) => more + (before?.[at] ?? 0));
            rows.set(stack, row);
            return row;
        }));
    })();
    return counted[moment];
}
// Whether a site has objects in the spans of a cell, if it is one of the moment's.
function holds(stack, cell) {
    const { moment } = selection, place = cells.frames[moment].stacks.indexOf(stack);
    return place >= 0 && objectsAt(moment)[place][cell] > 0;
}
(() => {
    const canvas = find("map"), slider = find("when");
    if (!canvas || cells.frames.length === 0) return;
    const SIDE = 4, LARGE = 101, FREE = 102, NOT_HELD = 255, COUNT_MAX = 255;
    const frames = cells.frames.map((frame) => unpacked(frame.cells));
    const columns = innerWidth <= 600 ? Math.min(cells.width, 64) : cells.width;
    canvas.width = columns * SIDE;
    canvas.height = Math.ceil(frames[0].length / columns) * SIDE;
    find("grain").textContent
        = `One cell is ${size(cells.cell_bytes)}, one row ${size(columns * cells.cell_bytes)}.`;

    // --- drawing ---

    // The colours of the style, as red, green and blue.
    function colour(name) {
        const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
        return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
    }
    function mixed(from, to, part) {
        return from.map((value, i) => Math.round(value + (to[i] - value) * part));
    }
    function palette() {
        const low = colour("--low"), high = colour("--high"), middle = [124, 123, 120];
        const colours = [];
        for (let i = 0; i <= 100; i++)
            colours[i] = i < 50 ? mixed(low, middle, i / 50) : mixed(middle, high, (i - 50) / 50);
        colours[LARGE] = colour("--large");
        colours[FREE] = colour("--free");
        colours[NOT_HELD] = colour("--none");
        return colours;
    }
    // Large objects are striped and free pages dotted, so that they differ in grayscale.
    function pixel(code, x, y, colours) {
        if (code === LARGE && (x + y) % SIDE === 0) return [90, 40, 70];
        if (code === FREE && x % SIDE === 1 && y % SIDE === 1) return [70, 70, 70];
        return colours[code];
    }
    function draw() {
        const { moment, cell } = selection, shown = frames[moment];
        const colours = palette(), context = canvas.getContext("2d");
        const image = context.createImageData(canvas.width, canvas.height);
        const only = hasHolders && chosenRows();
        for (let y = 0; y < canvas.height; y++) {
            for (let x = 0; x < canvas.width; x++) {
                const at = Math.floor(y / SIDE) * columns + Math.floor(x / SIDE);
                const code = at < shown.length ? shown[at] : NOT_HELD;
                let colour = pixel(code, x, y, colours);
                if (only && !only.some((row) => row[at]))
                    colour = mixed(colour, colours[NOT_HELD], 0.85);
                image.data.set([...colour, 255], 4 * (y * canvas.width + x));
            }
        }
        context.putImageData(image, 0, 0);
        if (cell >= 0) {
            context.strokeStyle = "#d55e00";
            context.lineWidth = 2;
            const x = (cell % columns) * SIDE, y = Math.floor(cell / columns) * SIDE;
            context.strokeRect(x - 1, y - 1, SIDE + 2, SIDE + 2);
        }
        const text = (moment === PEAK ? "Peak: " : "") + cells.frames[moment].text;
        find("moment").textContent = text;
        slider.value = String(moment);
        slider.setAttribute("aria-valuetext", text);
        canvas.setAttribute("aria-label", "heap map, " + text);
        if (hasHolders) write();
        document.documentElement.dataset.drawn = String(moment);
    }

    // --- who holds what ---

    // The rows of the selected sites that the map can show; null: of none.
    function chosenRows() {
        const chosen = chosenStacks(), { stacks } = cells.frames[selection.moment];
        const rows = chosen ? objectsAt(selection.moment).filter((_, i) => chosen.has(stacks[i])) : [];
        return rows.length ? rows : null;
    }
    function write() {
        const { moment, cell } = selection, output = find("holders"), chosen = chosenStacks();
        output.textContent = "Click on a cell to see which call sites keep its spans.";
        if (cell >= 0) writeCell(cell, output);
        if (!chosen) return;
        const { stacks } = cells.frames[moment], rows = chosenRows();
        if (rows) {
            const all = frames[moment].length;
            const held = [...Array(all).keys()].filter((at) => rows.some((row) => row[at])).length;
            output.textContent = `${number(held)} of ${number(all)} cells are of spans with objects`
                + ` of ${chosenName()} ${momentName()}; the others are pale. `;
        } else {
            output.textContent = `${chosenName()}: not among the ${stacks.length} call sites`
                + ` with the most waste ${momentName()}, which the map can show. `;
        }
        output.append(showAll());
    }
    // The sites with objects in a cell, the one with most of them first.
    function writeCell(cell, output) {
        const { moment } = selection, { stacks } = cells.frames[moment];
        const sites = objectsAt(moment)
            .map((row, i) => ({ stack: stacks[i] ?? -1, count: row[cell] }))
            .filter(({ count }) => count > 0).sort((a, b) => b.count - a.count);
        const parts = sites.map(({ stack, count }) => {
            const part = document.createElement("div");
            part.textContent = `${count === COUNT_MAX ? "at least " : ""}${count} of `;
            part.append(stack < 0 ? "other sites" : button(siteName(stack), () => showStack(stack)));
            return part;
        });
        const where = `Objects in the spans of the cell at ${size(cell * cells.cell_bytes)},`
            + ` ${momentName()}:`;
        output.replaceChildren(where, ...(parts.length ? parts : [" none"]));
    }
    function selectCell(cell) {
        if (cell >= 0 && cell < frames[0].length) select({ ...NOTHING, cell });
    }
    function cellAt(event) {
        const box = canvas.getBoundingClientRect(), edge = canvas.clientLeft;
        const lines = canvas.height / SIDE;
        const x = Math.floor(((event.clientX - box.left - edge) / canvas.clientWidth) * columns);
        const y = Math.floor(((event.clientY - box.top - edge) / canvas.clientHeight) * lines);
        return x < 0 || x >= columns ? -1 : y * columns + x;
    }
    canvas.addEventListener("pointermove", (event) => {
        const at = cellAt(event), code = frames[selection.moment][at];
        const kinds = { [LARGE]: "large object", [FREE]: "free pages", [NOT_HELD]: "not held" };
        canvas.title = code === undefined ? ""
            : `${size(at * cells.cell_bytes)}: ${kinds[code] ?? `${code} % of slots in use`}`;
    });
    if (hasHolders) {
        const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
        canvas.tabIndex = 0;
        canvas.addEventListener("click", (event) => selectCell(cellAt(event)));
        canvas.addEventListener("keydown", (event) => {
            if (!(event.key in STEPS)) return;
            event.preventDefault();
            selectCell(selection.cell < 0 ? 0 : selection.cell + STEPS[event.key]);
        });
    }
    slider.addEventListener("input", () => select({ moment: Number(slider.value) }));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    addEventListener("beforeprint", draw);
    onSelection(draw);
    draw();
})();

// The call sites and their sizes at the selected moment, and the time line that selects it.
(() => {
    if (!data?.moments) return;
    const SHOWN = 15, SMALL = 1000; // a site with less than that part of all bytes has no row

    // --- call sites ---

    const body = document.querySelector("#call-sites tbody");
    const COLUMNS = ["waste", "pinned", "requested", "objects"].map((of) => data.of.indexOf(of));
    const rows = new Map([...(body?.rows ?? [])].map((row, stack) => [stack, row]));
    const table = body?.parentElement;
    let shownAt = PEAK, shownFrame = null, pairs = pairsAt(PEAK);

    // A click on a row selects its site, or none; the links also scroll to what shows it.
    function links(row, stack) {
        const tools = row.lastElementChild.appendChild(document.createElement("div"));
        const link = (text, place) => tools.append(button(text, () => {
            showStack(stack);
            find(place).scrollIntoView();
        }));
        if (hasHolders) link("show on the map", "heap-map");
        link("its sizes", "sizes");
        row.addEventListener("click", (event) => {
            if (event.target.closest("button, details") || String(getSelection())) return;
            showStack(stack === selection.stack ? -1 : stack);
        });
    }
    // Rows of the peak are in the page; the others are made of them.
    function rowOf(stack) {
        if (!rows.has(stack)) {
            const row = rows.get(0).cloneNode(true);
            const [first, ...others] = distinctCallers(stack).slice(0, 4);
            const through = data.through[stack] ? ` through ${data.through[stack]}` : "";
            row.lastElementChild.textContent = [first + through, ...others].join("\n");
            links(row, stack);
            rows.set(stack, row);
        }
        return rows.get(stack);
    }
    function fillTable() {
        const { moment, frame } = selection, [waste, , requested, objects] = COLUMNS;
        const found = valuesAt(moment)
            .map((row, stack) => ({ row, stack, bytes: row[waste] + row[requested] }))
            .filter(({ stack }) => !frame || frame.stacks.has(stack));
        const least = found.reduce((sum, { bytes }) => sum + bytes, 0) / SMALL;
        const sites = found.filter(({ row, stack, bytes }) =>
            row[objects] > 0 && bytes >= least && isSite(stack));
        sites.sort((a, b) => b.row[waste] - a.row[waste] || a.stack - b.stack);
        const shown = sites.slice(0, SHOWN);
        writeOthers(found, shown);
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
    function writeOthers(found, shown) {
        const [waste, , requested, objects] = COLUMNS, output = find("more-sites");
        const others = found.filter((one) => one.row[objects] > 0 && !shown.includes(one));
        const sum = (k) => others.reduce((total, { row }) => total + row[k], 0);
        output.textContent = others.length === 0 ? "" : `Other call sites: `
            + `${size(sum(waste))} of waste, ${size(sum(requested))} requested.`;
        if (selection.frame) output.prepend(`Only ${chosenName()}. `, showAll(), " ");
    }
    function isSelected(stack) {
        if (selection.slot >= 0)
            return pairs.some((pair) => pair.slot === selection.slot && pair.stack === stack);
        return selection.cell >= 0 ? holds(stack, selection.cell) : stack === selection.stack;
    }
    if (body) rows.forEach((row, stack) => links(row, stack));
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
        const only = chosenStacks(), counts = data.slots.map(() => 0);
        for (const pair of pairs)
            if (!only || only.has(pair.stack)) counts[pair.slot] += pair.objects;
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
        const { slot } = selection, only = chosenStacks();
        if (!only && slot < 0) {
            shownSizes.textContent = "Click on a class to see the call sites of its objects.";
            return;
        }
        const parts = (slot < 0 ? slotsOf(only) : pairs.filter((pair) => pair.slot === slot))
            .slice(0, SHOWN).map((pair) => {
                const part = document.createElement("div");
                part.textContent = `${number(pair.objects)} ${slot < 0 ? "in " : "of "}`;
                const text = slot < 0 ? className(pair.slot) : siteName(pair.stack);
                const press = slot < 0 ? () => selectSlot(pair.slot) : () => showStack(pair.stack);
                part.append(slot < 0 || isSite(pair.stack) ? button(text, press) : text);
                return part;
            });
        const what = slot < 0 ? chosenName() : className(slot);
        shownSizes.replaceChildren(`Live objects ${momentName()}, ${what}: `,
            ...(parts.length ? parts : ["none. "]), showAll());
    }
    // Objects of some stacks by class, those of the largest number first.
    function slotsOf(stacks) {
        const sums = new Map();
        for (const { stack, slot, objects } of pairs)
            if (stacks.has(stack)) sums.set(slot, (sums.get(slot) ?? 0) + objects);
        return [...sums].map(([slot, objects]) => ({ slot, objects }))
            .sort((a, b) => b.objects - a.objects);
    }
    const selectSlot = (slot) => select({ ...NOTHING, slot });
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
        brush.setAttribute("y", timeline.dataset.top);
        brush.setAttribute("height", timeline.dataset.bottom - timeline.dataset.top);
        return timeline.appendChild(brush);
    });
    let start = null;

    // The moment of an interval with most resident bytes, or the last one before its end.
    function momentIn(from, to) {
        const [low, high] = [Math.min(from, to), Math.max(from, to)];
        const all = frames.map((frame, i) => ({ ...frame, i }));
        const inside = all.filter((frame) => low <= frame.x && frame.x <= high);
        inside.sort((a, b) => b.resident - a.resident);
        return (inside[0] ?? all.findLast((frame) => frame.x <= high) ?? all[0]).i;
    }
    const paint = (from, to) => brushes.forEach((brush, i) => {
        const [a, b] = [from, to].map((x) => scaled(x, axes[0], axes[i]));
        brush.setAttribute("x", Math.min(a, b));
        brush.setAttribute("width", Math.abs(b - a));
    });
    // The values where the pointer is, or at the shown moment: the last ones before it.
    const values = JSON.parse(find("values").textContent), pointed = find("pointed");
    function describe(x) {
        const at = Math.max(values.x.findLastIndex((one) => one <= x), 0);
        const parts = values.of.map(([name, bytes]) => [name, bytes[at]])
            .filter(([, bytes]) => bytes).map(([name, bytes]) => `${name} ${size(bytes)}`);
        pointed.textContent = `${values.when[at]}: ${parts.join(", ")}`;
    }
    timelines.forEach((timeline, i) => {
        const place = (event) => scaled(placeIn(timeline, event), axes[i], axes[0]);
        timeline.addEventListener("pointerdown", (event) => {
            start = place(event);
            timeline.setPointerCapture(event.pointerId);
            paint(start, start);
        });
        timeline.addEventListener("pointermove", (event) => {
            if (start !== null) paint(start, place(event));
            describe(place(event));
        });
        timeline.addEventListener("keydown", (event) => {
            const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
            if (!frames[selection.moment + step]) return;
            event.preventDefault();
            paint(0, 0);
            select({ moment: selection.moment + step });
        });
        timeline.setAttribute("tabindex", "0");
        timeline.addEventListener("pointerup", (event) => {
            if (start !== null) select({ moment: momentIn(start, place(event)) });
            start = null;
        });
        timeline.addEventListener("pointerleave", () => describe(frames[selection.moment].x));
        timeline.addEventListener("pointercancel", () => { start = null; });
    });
    find("when").addEventListener("input", () => paint(0, 0));

    function drawTime() {
        const { x } = frames[selection.moment];
        describe(x);
        timelines.forEach((timeline, i) => {
            const line = timeline.querySelector(".now"), at = scaled(x, axes[0], axes[i]);
            line.setAttribute("x1", at);
            line.setAttribute("x2", at);
            line.setAttribute("visibility", "visible");
        });
        for (const one of document.querySelectorAll(".when")) one.textContent = momentName();
        find("shown").replaceChildren(
            `Sizes, heap map, call sites and flame graph show the heap ${momentName()}. `);
        if (selection.moment !== PEAK)
            find("shown").append(button("back to the peak", () => {
                paint(0, 0);
                select({ moment: PEAK });
            }));
    }

    // What a click in the flame graph has selected, where it was.
    function writeFrame() {
        const link = (text, place) => button(text, () => find(place).scrollIntoView());
        find("through")?.replaceChildren(...(selection.frame ? [
            `Selected: ${chosenName()}. `, link("call sites", "call-sites"), " ",
            ...(hasHolders ? [link("heap map", "heap-map"), " "] : []), link("sizes", "sizes"), " ",
            showAll()] : []));
    }
    function draw() {
        const isNew = shownAt !== selection.moment;
        const isFiltered = shownFrame !== selection.frame;
        [shownAt, shownFrame] = [selection.moment, selection.frame];
        if (isNew) pairs = pairsAt(shownAt);
        drawTime();
        if (sizeCharts.length) drawSizes();
        if (isFiltered) writeFrame();
        if (!body) return;
        if (isNew || isFiltered) fillTable();
        rows.forEach((row, stack) => row.classList.toggle("selected", isSelected(stack)));
    }
    onSelection(draw);
    draw();
})();

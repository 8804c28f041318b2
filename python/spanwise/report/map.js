// SPDX-License-Identifier: Apache-2.0
// Draws the heap map of the selected moment: one byte a cell, as docs/design/report.md says.
"use strict";
const cells = JSON.parse(find("frames")?.textContent ?? "null");
const holders = (cells?.holders ?? []).map(bytesOf);
// Whether a row of the peak's call sites has objects in the spans of a cell.
const holds = (stack, cell) => stack < holders.length - 1 && holders[stack][cell] > 0;
(() => {
    const canvas = find("map"), slider = find("when");
    if (!canvas || cells.frames.length === 0) return;
    const SIDE = 4, LARGE = 101, FREE = 102, NOT_HELD = 255, COUNT_MAX = 255;
    const frames = cells.frames.map((frame) => bytesOf(frame.cells));
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
        const { moment, cell, stack } = selection, shown = frames[moment];
        const colours = palette(), context = canvas.getContext("2d");
        const image = context.createImageData(canvas.width, canvas.height);
        const only = moment === PEAK && stack >= 0 ? holders[stack] : undefined;
        for (let y = 0; y < canvas.height; y++) {
            for (let x = 0; x < canvas.width; x++) {
                const at = Math.floor(y / SIDE) * columns + Math.floor(x / SIDE);
                const code = at < shown.length ? shown[at] : NOT_HELD;
                let colour = pixel(code, x, y, colours);
                if (only && !only[at]) colour = mixed(colour, colours[NOT_HELD], 0.85);
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
        if (holders.length) write();
        document.documentElement.dataset.drawn = String(moment);
    }

    // --- who holds what, at the peak ---

    function write() {
        const { stack, cell } = selection, output = find("holders");
        output.textContent = "Click on a cell to see which call sites hold its spans.";
        if (cell >= 0) writeCell(cell, output);
        if (stack < 0) return;
        if (stack >= holders.length - 1) {
            output.textContent = "The page has the spans of the peak's first call sites only. ";
        } else {
            const held = holders[stack].filter((count) => count > 0).length;
            output.textContent = `${number(held)} of ${number(holders[stack].length)} cells are`
                + ` of spans with objects of ${siteName(stack)} at the peak; the others are pale`
                + " there. ";
        }
        output.append(showAll());
    }
    function writeCell(cell, output) {
        const found = holders.map((row, i) => [row[cell], i]).filter(([count]) => count > 0);
        found.sort((a, b) => b[0] - a[0]);
        const parts = found.map(([count, i]) => {
            const part = document.createElement("div");
            part.textContent = `${count === COUNT_MAX ? "at least " : ""}${count} of `;
            part.append(i === holders.length - 1 ? "other sites"
                : button(siteName(i), () => showStack(i)));
            return part;
        });
        const where = `Objects in the spans of the cell at ${size(cell * cells.cell_bytes)},`
            + " at the peak:";
        output.replaceChildren(where, ...(parts.length ? parts : [" none"]));
    }
    function selectCell(cell) {
        if (cell >= 0 && cell < frames[0].length)
            select({ cell, stack: -1, slot: -1, moment: PEAK });
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
    if (holders.length) {
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

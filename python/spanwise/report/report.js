// SPDX-License-Identifier: Apache-2.0
// Draws the heap map of the moment that the slider shows: one byte a cell, as docs/design/report.md
// says. Links the map, the time line, the call sites and the flame graph.
"use strict";
(() => {
    const find = (name) => document.getElementById(name);
    const map = JSON.parse(find("frames").textContent);
    const canvas = find("map"), slider = find("when"), holders = map.holders;
    if (!canvas || map.frames.length === 0) return;
    const SIDE = 4, LARGE = 101, FREE = 102, NOT_HELD = 255, COUNT_MAX = 255;
    const decoded = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const cells = map.frames.map((frame) => decoded(frame.cells));
    const counts = holders ? holders.counts.map(decoded) : [];
    const peak = map.frames.findIndex((frame) => frame.at === "peak-resident");
    const rows = [...document.querySelectorAll("#call-sites tbody tr")];
    const line = find("now"), timeline = find("timeline");
    const columns = innerWidth <= 600 ? Math.max(map.width / 4, 1) : map.width;
    let site = -1, cell = -1; // what is selected; -1: nothing
    canvas.width = columns * SIDE;
    canvas.height = Math.ceil(cells[0].length / columns) * SIDE;
    find("grain").textContent
        = `One cell is ${size(map.cell_bytes)}, one row ${size(columns * map.cell_bytes)}.`;

    // --- the map ---

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
        const number = Number(slider.value), frame = map.frames[number];
        const colours = palette(), context = canvas.getContext("2d");
        const image = context.createImageData(canvas.width, canvas.height);
        const only = number === peak ? counts[site] : undefined;
        for (let y = 0; y < canvas.height; y++) {
            for (let x = 0; x < canvas.width; x++) {
                const at = Math.floor(y / SIDE) * columns + Math.floor(x / SIDE);
                const code = at < cells[number].length ? cells[number][at] : NOT_HELD;
                let shown = pixel(code, x, y, colours);
                if (only && !only[at]) shown = mixed(shown, colours[NOT_HELD], 0.85);
                image.data.set([...shown, 255], 4 * (y * canvas.width + x));
            }
        }
        context.putImageData(image, 0, 0);
        if (cell >= 0) {
            context.strokeStyle = "#d55e00";
            context.lineWidth = 2;
            const x = (cell % columns) * SIDE, y = Math.floor(cell / columns) * SIDE;
            context.strokeRect(x - 1, y - 1, SIDE + 2, SIDE + 2);
        }
        const text = (number === peak ? "Peak: " : "") + frame.text;
        find("moment").textContent = text;
        slider.setAttribute("aria-valuetext", text);
        canvas.setAttribute("aria-label", "heap map, " + text);
        if (line) {
            line.setAttribute("x1", frame.x);
            line.setAttribute("x2", frame.x);
            line.setAttribute("visibility", "visible");
        }
        document.documentElement.dataset.drawn = String(number);
    }
    function show(number) {
        slider.value = String(number);
        draw();
    }

    // --- the map and the call sites ---

    function size(bytes) {
        const power = bytes < 1 << 10 ? 0 : bytes < 1 << 20 ? 1 : bytes < 1 << 30 ? 2 : 3;
        const text = (bytes / 1024 ** power).toFixed(power ? 1 : 0);
        return `${text} ${["B", "KiB", "MiB", "GiB"][power]}`;
    }
    function button(text, press) {
        const made = document.createElement("button");
        made.className = "link";
        made.textContent = text;
        made.addEventListener("click", press);
        return made;
    }
    function mark(selected) {
        rows.forEach((row, i) => row.classList.toggle("selected", selected(i)));
    }
    // Shows the cells of a site at the peak, and its frame in the flame graph.
    function selectSite(number) {
        [site, cell] = [number === site ? -1 : number, -1];
        mark((i) => i === site);
        const frame = site < 0 ? "" : holders.frames[site].replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
        document.dispatchEvent(new CustomEvent("search-frames", { detail: frame && `^${frame}$` }));
        if (site < 0) find("holders").textContent = USE;
        else {
            const held = counts[site].filter((count) => count > 0).length;
            find("holders").textContent = `${held.toLocaleString("en")} of `
                + `${counts[site].length.toLocaleString("en")} cells are of spans with `
                + `objects of ${holders.names[site]} at the peak; the others are pale. `;
            find("holders").append(button("show all", () => selectSite(site)));
        }
        show(peak);
    }
    // Shows which sites hold the spans of a cell at the peak.
    function selectCell(number) {
        if (number < 0 || number >= counts[0].length) return;
        [site, cell] = [-1, number];
        const found = counts.map((count, i) => [count[cell], i]).filter(([count]) => count > 0);
        found.sort((a, b) => b[0] - a[0]);
        mark((i) => i < holders.names.length && counts[i][cell] > 0);
        const parts = found.map(([count, i]) => {
            const part = document.createElement("div"), name = holders.names[i];
            part.textContent = `${count === COUNT_MAX ? "at least " : ""}${count} of `;
            part.append(name === undefined ? "other sites" : button(name, () => selectSite(i)));
            return part;
        });
        const place = size(cell * map.cell_bytes);
        const where = `Objects in the spans of the cell at ${place}, at the peak:`;
        find("holders").replaceChildren(where, ...(parts.length ? parts : [" none"]));
        show(peak);
    }
    function cellAt(event) {
        const box = canvas.getBoundingClientRect(), edge = canvas.clientLeft;
        const lines = canvas.height / SIDE;
        const x = Math.floor(((event.clientX - box.left - edge) / canvas.clientWidth) * columns);
        const y = Math.floor(((event.clientY - box.top - edge) / canvas.clientHeight) * lines);
        return x < 0 || x >= columns ? -1 : y * columns + x;
    }
    canvas.addEventListener("pointermove", (event) => {
        const at = cellAt(event), code = cells[Number(slider.value)][at];
        const kinds = { [LARGE]: "large object", [FREE]: "free pages", [NOT_HELD]: "not held" };
        canvas.title = code === undefined ? ""
            : `${size(at * map.cell_bytes)}: ${kinds[code] ?? `${code} % of slots in use`}`;
    });
    const USE = "Click on a cell to see which call sites hold its spans.";
    if (holders && peak >= 0) {
        const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
        find("holders").textContent = USE;
        canvas.tabIndex = 0;
        canvas.addEventListener("click", (event) => selectCell(cellAt(event)));
        canvas.addEventListener("keydown", (event) => {
            if (!(event.key in STEPS)) return;
            event.preventDefault();
            selectCell(cell < 0 ? 0 : cell + STEPS[event.key]);
        });
        rows.forEach((row, i) => row.lastElementChild.append(button("show on the map", () => {
            if (site !== i) selectSite(i);
            find("heap-map").scrollIntoView();
        })));
    }

    // --- the map and the time line ---

    // Selects the moment of an interval with most resident bytes, or the nearest to its middle.
    function selectTime(from, to) {
        const [low, high] = [Math.min(from, to), Math.max(from, to)], middle = (low + high) / 2;
        const all = map.frames.map((frame, i) => ({ ...frame, i }));
        const inside = all.filter((frame) => low <= frame.x && frame.x <= high);
        inside.sort((a, b) => b.resident - a.resident);
        all.sort((a, b) => Math.abs(a.x - middle) - Math.abs(b.x - middle));
        show((inside[0] ?? all[0]).i);
    }
    if (timeline) {
        const brush = document.createElementNS(timeline.namespaceURI, "rect");
        const { width, height } = timeline.viewBox.baseVal;
        let start = null;
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
            if (start !== null) selectTime(start, place(event));
            start = null;
        });
        timeline.addEventListener("pointercancel", () => { start = null; });
    }
    slider.addEventListener("input", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    addEventListener("beforeprint", draw);
    draw();
})();

// SPDX-License-Identifier: Apache-2.0
// Draws the heap map of the moment that the slider shows: one byte a cell, as docs/design/report.md says.
"use strict";
(() => {
    const map = JSON.parse(document.getElementById("frames").textContent);
    const canvas = document.getElementById("map");
    const slider = document.getElementById("when");
    if (!canvas || map.frames.length === 0) return;
    const SIDE = 4, LARGE = 101, FREE = 102, NOT_HELD = 255;
    const cells = map.frames.map((frame) =>
        Uint8Array.from(atob(frame.cells), (letter) => letter.charCodeAt(0)));
    const moment = document.getElementById("moment");
    const line = document.getElementById("now");
    canvas.width = map.width * SIDE;
    canvas.height = map.height * SIDE;
    document.getElementById("grain").textContent = `One cell is ${map.cell}, one row ${map.row}.`;

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
        for (let y = 0; y < canvas.height; y++) {
            for (let x = 0; x < canvas.width; x++) {
                const cell = Math.floor(y / SIDE) * map.width + Math.floor(x / SIDE);
                const code = cell < cells[number].length ? cells[number][cell] : NOT_HELD;
                image.data.set([...pixel(code, x, y, colours), 255], 4 * (y * canvas.width + x));
            }
        }
        context.putImageData(image, 0, 0);
        const text = (frame.at === "peak-resident" ? "Peak: " : "") + frame.text;
        moment.textContent = text;
        slider.setAttribute("aria-valuetext", text);
        canvas.setAttribute("aria-label", "heap map, " + text);
        if (line) {
            line.setAttribute("x1", frame.x);
            line.setAttribute("x2", frame.x);
            line.setAttribute("visibility", "visible");
        }
        document.documentElement.dataset.drawn = String(number);
    }
    slider.addEventListener("input", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    addEventListener("beforeprint", draw);
    draw();
})();

// SPDX-License-Identifier: Apache-2.0
// Heap maps over time in a notebook, one byte per cell; see docs/design/inspect.md.
const SIDE = 4, LARGE = 101, FREE = 102, NO_VALUE = 103, NOT_HELD = 255;
const WIDE = 768, MOST_ZOOM = 64, PLAY_MS = 300;

function bytes(view) {
    return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

function add(parent, kind, style) {
    const made = parent.appendChild(document.createElement(kind));
    Object.assign(made.style, style);
    return made;
}

function size(count) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (count >= 1024 && unit + 1 < units.length) [count, unit] = [count / 1024, unit + 1];
    return (unit ? count.toFixed(1) : count) + " " + units[unit];
}

// Paint all cells of a moment, SIDE pixels wide; stripes and dots distinguish kinds in greyscale.
function paint(picture, map, cells, palette) {
    const context = picture.getContext("2d");
    const image = context.createImageData(picture.width, picture.height);
    for (let y = 0, at = 0; y < picture.height; y++) {
        for (let x = 0; x < picture.width; x++, at += 4) {
            const cell = Math.floor(y / SIDE) * map.width + Math.floor(x / SIDE);
            const code = cell < map.count ? cells[cell] : NOT_HELD;
            let colour = [palette[3 * code], palette[3 * code + 1], palette[3 * code + 2]];
            if (code === LARGE && (x + y) % SIDE === 0) colour = [90, 40, 70];
            if (code === FREE && x % SIDE === 1 && y % SIDE === 1) colour = [110, 110, 110];
            [image.data[at], image.data[at + 1], image.data[at + 2], image.data[at + 3]] = [...colour, 255];
        }
    }
    context.putImageData(image, 0, 0);
}

function words(map, code, cell) {
    const place = size(cell * map.cell_bytes);
    if (code === LARGE) return `${place}: a large object`;
    if (code === FREE) return `${place}: free pages, held`;
    if (code === NOT_HELD) return `${place}: not held`;
    if (code === NO_VALUE) return `${place}: no live object`;
    return `${place}: ${code} %`;
}

// The colour of a code as CSS.
function css(palette, code) {
    return `rgb(${palette[3 * code]}, ${palette[3 * code + 1]}, ${palette[3 * code + 2]})`;
}

// A row that says what the colours mean.
function addKey(el, palette) {
    const row = add(el, "p", { font: "13px sans-serif", margin: "4px 0" });
    const swatch = (background, width, text) => {
        const entry = add(row, "span", { display: "inline-block", marginRight: "12px" });
        add(entry, "span", { display: "inline-block", width, height: "12px", marginRight: "4px", background, border: "1px solid #888" });
        entry.append(text);
    };
    const scale = [0, 25, 50, 75, 100].map((code) => css(palette, code)).join(", ");
    swatch(`linear-gradient(to right, ${scale})`, "96px", "0 to 100 %");
    swatch(`repeating-linear-gradient(135deg, ${css(palette, LARGE)} 0 3px, #5a2846 3px 4px)`, "20px", "large object");
    swatch(`radial-gradient(#6e6e6e 1px, ${css(palette, FREE)} 1px) 0 0 / 4px 4px`, "20px", "free pages, held");
    swatch(css(palette, NOT_HELD), "20px", "not held");
}

function render({ model, el }) {
    const maps = model.get("maps"), palette = bytes(model.get("palette")), all = bytes(model.get("cells"));
    const picture = document.createElement("canvas");
    const head = add(el, "div", { font: "600 14px sans-serif" });
    const canvas = add(el, "canvas", { display: "block", maxWidth: "100%", boxSizing: "border-box", border: "1px solid #888" });
    canvas.tabIndex = 0;
    addKey(el, palette);
    const play = add(el, "button", { marginRight: "8px" });
    const slider = add(el, "input", { width: "70%", maxWidth: WIDE - 152 + "px", verticalAlign: "middle" });
    const choice = maps.length > 1 ? add(el, "select", { marginLeft: "8px" }) : null;
    for (const one of choice ? maps : []) add(choice, "option", {}).textContent = one.name;
    choice?.setAttribute("aria-label", "table");
    slider.setAttribute("aria-label", "moment");
    const moment = add(el, "div", { font: "13px sans-serif" });
    const under = add(el, "div", { font: "13px sans-serif", minHeight: "1.3em" });
    const view = { zoom: 1, x: 0, y: 0 }; // x and y: the corner, as fractions of the picture
    let map, timer = 0;

    function useTable() {
        map = maps[model.get("table")];
        [picture.width, picture.height] = [map.width * SIDE, map.height * SIDE];
        [canvas.width, canvas.height] = [WIDE, Math.max(96, Math.min(WIDE, Math.round((WIDE * map.height) / map.width)))];
        head.textContent = `${map.title}: ${map.measure}`;
        Object.assign(slider, { type: "range", min: 0, max: map.moments.length - 1, step: 1 });
        under.textContent = `${map.grain}; the wheel zooms, dragging moves, a double click shows all`;
        if (choice) choice.selectedIndex = model.get("table");
    }
    function go(frame) {
        model.set("frame", frame);
        model.save_changes();
    }
    // Start from the first moment after the last one; stop at the last one.
    function setPlaying(on) {
        clearInterval(timer);
        const last = map.moments.length - 1;
        play.textContent = on ? "❚❚ pause" : "▶ play";
        if (!on) return;
        if (model.get("frame") >= last) go(0);
        timer = setInterval(() => {
            go(model.get("frame") + 1);
            if (model.get("frame") >= last) setPlaying(false);
        }, PLAY_MS);
    }
    function cells() {
        const at = map.start + model.get("frame") * map.count;
        return all.subarray(at, at + map.count);
    }
    function draw() {
        const part = 1 / view.zoom, context = canvas.getContext("2d");
        view.x = Math.min(Math.max(view.x, 0), 1 - part);
        view.y = Math.min(Math.max(view.y, 0), 1 - part);
        context.imageSmoothingEnabled = picture.width * part > canvas.width;
        context.drawImage(picture, view.x * picture.width, view.y * picture.height,
            part * picture.width, part * picture.height, 0, 0, canvas.width, canvas.height);
        canvas.dataset.view = [view.zoom, view.x, view.y].map((value) => value.toFixed(4)).join(" ");
    }
    function show() {
        paint(picture, map, cells(), palette);
        const text = map.moments[model.get("frame")];
        [slider.value, moment.textContent] = [model.get("frame"), text];
        slider.setAttribute("aria-valuetext", text);
        canvas.setAttribute("aria-label", `heap map, ${text}`);
        draw();
    }
    // Return the position of an event, as fractions of the canvas.
    function place(event) {
        const box = canvas.getBoundingClientRect();
        return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    }
    function zoom(factor, [x, y]) {
        const [before, after] = [view.zoom, Math.min(Math.max(view.zoom * factor, 1), MOST_ZOOM)];
        view.x += x / before - x / after;
        view.y += y / before - y / after;
        view.zoom = after;
        draw();
    }
    function move(x, y) {
        [view.x, view.y] = [view.x + x / view.zoom, view.y + y / view.zoom];
        draw();
    }
    function key(event) {
        const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
        if (step) move(...step);
        else if (event.key === "+") zoom(1.25, [0.5, 0.5]);
        else if (event.key === "-") zoom(0.8, [0.5, 0.5]);
        else return;
        event.preventDefault();
    }
    function point(event) {
        const [x, y] = place(event);
        if (event.buttons) move(-event.movementX / canvas.clientWidth, -event.movementY / canvas.clientHeight);
        const column = Math.floor((view.x + x / view.zoom) * map.width);
        const cell = Math.floor((view.y + y / view.zoom) * map.height) * map.width + column;
        under.textContent = cell < map.count ? words(map, cells()[cell], cell) : "";
    }
    canvas.addEventListener("wheel", (event) => {
        event.preventDefault();
        zoom(event.deltaY < 0 ? 1.25 : 0.8, place(event));
    });
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("keydown", key);
    canvas.addEventListener("dblclick", () => {
        [view.zoom, view.x, view.y] = [1, 0, 0];
        draw();
    });
    slider.addEventListener("input", () => {
        setPlaying(false);
        go(Number(slider.value));
    });
    play.addEventListener("click", () => setPlaying(play.textContent.endsWith("play")));
    choice?.addEventListener("change", () => {
        model.set("table", choice.selectedIndex);
        model.save_changes();
    });
    function changeTable() {
        useTable();
        setPlaying(false);
        if (model.get("frame") >= map.moments.length) go(map.moments.length - 1);
        show();
    }
    model.on("change:frame", show);
    model.on("change:table", changeTable);
    useTable();
    setPlaying(false);
    show();
    return () => {
        clearInterval(timer);
        model.off("change:frame", show);
        model.off("change:table", changeTable);
    };
}

export default { render };

// SPDX-License-Identifier: Apache-2.0
// Sliders and the picture of the chosen values; the kernel draws. See docs/design/inspect.md.
function add(parent, kind, style) {
    const made = parent.appendChild(document.createElement(kind));
    Object.assign(made.style, style);
    return made;
}

function render({ model, el }) {
    const rows = model.get("labels").map(([name, values], at) => {
        const row = add(el, "label", { display: "flex", gap: "1em", font: "13px sans-serif" });
        const slider = add(row, "input", { width: "20em" }), text = add(row, "span", {});
        Object.assign(slider, { type: "range", min: 0, max: values.length - 1, step: 1 });
        slider.addEventListener("input", () => {
            model.set("chosen", model.get("chosen").map((old, i) => (i === at ? Number(slider.value) : old)));
            model.save_changes();
        });
        return { name, values, slider, text };
    });
    const image = add(el, "img", { maxWidth: "100%" });

    function label() {
        rows.forEach(({ name, values, slider, text }, at) => {
            slider.value = model.get("chosen")[at];
            text.textContent = `${name.replaceAll("_", " ")}: ${values[slider.value]}`;
            slider.setAttribute("aria-valuetext", text.textContent);
        });
        image.alt = rows.map(({ text }) => text.textContent).join(", ");
    }
    // As a data URL, because the content policy of VS Code's notebooks has no images from blobs.
    function show() {
        const { buffer, byteOffset, byteLength } = model.get("picture");
        const letters = Array.from(new Uint8Array(buffer, byteOffset, byteLength), (byte) => String.fromCharCode(byte));
        image.src = "data:image/png;base64," + btoa(letters.join(""));
    }
    model.on("change:chosen", label);
    model.on("change:picture", show);
    label();
    show();
    return () => {
        model.off("change:chosen", label);
        model.off("change:picture", show);
    };
}

export default { render };

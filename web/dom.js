// Elements without markup: whatever comes from the service goes in as text, so that no name of a job becomes HTML.

const PROPERTIES = new Set(["checked", "disabled", "hidden", "selected", "value"]);

function built(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (value === undefined || value === null) continue;
        if (name.startsWith("on")) {
            element.addEventListener(name.slice(2), value);
        } else if (PROPERTIES.has(name) && name in element) {
            element[name] = value;
        } else if (value !== false) {
            element.setAttribute(name, value === true ? "" : String(value));
        }
    }
    element.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
    return element;
}

/** An HTML element. Attributes that begin with "on" are listeners; children are nodes or texts. */
export function h(name, attributes = {}, ...children) {
    return built(document.createElement(name), attributes, children);
}

/** The same in SVG. */
export function svg(name, attributes = {}, ...children) {
    return built(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

/** Sets a text only where it differs: screen readers and selections are left alone otherwise. */
export function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
}

export function setHidden(element, hidden) {
    if (element.hidden !== hidden) element.hidden = hidden;
}

/** Sets an attribute, or takes it away (null), where that changes something. */
export function setAttribute(element, name, value) {
    if (value === null) {
        element.removeAttribute(name);
    } else if (element.getAttribute(name) !== String(value)) {
        element.setAttribute(name, String(value));
    }
}

/**
 * Children of `parent`, one for each item, kept by key from one call to the next, so that the focus stays where it is.
 * `make(item)` gives {element, update(item)}.
 */
export function makeList(parent, keyOf, make) {
    let known = new Map();
    return function show(items) {
        const next = new Map();
        let place = parent.firstElementChild;
        for (const item of items) {
            const key = keyOf(item);
            const row = known.get(key) ?? make(item);
            next.set(key, row);
            row.update(item);
            if (row.element === place) {
                place = place.nextElementSibling;
            } else {
                parent.insertBefore(row.element, place);
            }
        }
        for (const [key, row] of known) {
            if (!next.has(key)) row.element.remove();
        }
        known = next;
    };
}

/** A table: columns are {title, number?, tight?: kept in one line}. Gives {element, show(rows of texts or nodes)}. */
export function makeTable(label, columns) {
    const body = h("tbody");
    const classOf = (column) => (column.number ? "number" : column.tight ? "tight" : null);
    const head = columns.map((one) => h("th", { scope: "col", class: classOf(one) }, one.title));
    const element = h(
        "div",
        { class: "scroll", role: "region", "aria-label": label, tabindex: "0" },
        h("table", {}, h("thead", {}, h("tr", {}, ...head)), body),
    );
    const show = (rows) => {
        const cells = (row) =>
            row.map((value, at) =>
                h(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : null, class: classOf(columns[at]) }, value),
            );
        body.replaceChildren(...rows.map((row) => h("tr", {}, ...cells(row))));
    };
    return { element, show };
}

/** Says something to those who do not see the page. */
export function announce(text) {
    setText(document.getElementById("announcer"), text);
}

let lastId = 0;
/** An id for a label or a description. */
export function freshId(prefix) {
    lastId += 1;
    return `${prefix}-${lastId}`;
}

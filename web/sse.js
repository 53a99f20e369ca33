// Server-sent events out of a text that comes in pieces (HTML Standard, 9.2.6), as far as the service writes them.

export class SseParser {
    #rest = "";
    #type = "";
    #data = [];
    #id = null;

    /** The events that the piece completes: [{type, data, id}]; `id` is null where none was given. */
    push(piece) {
        const lines = (this.#rest + piece).split("\n");
        this.#rest = lines.pop();
        const events = [];
        for (const raw of lines) {
            const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
            if (line === "") {
                if (this.#data.length > 0) {
                    events.push({ type: this.#type || "message", data: this.#data.join("\n"), id: this.#id });
                }
                this.#type = "";
                this.#data = [];
                this.#id = null;
            } else if (!line.startsWith(":")) {
                this.#field(line);
            }
        }
        return events;
    }

    #field(line) {
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (name === "event") this.#type = value;
        if (name === "data") this.#data.push(value);
        if (name === "id") this.#id = value;
    }
}

// Figures: Plotly JSON from the server, a table with the same numbers, and both as files.

import { h, digits } from "./dom.js";

export const theme = () => (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const SETTINGS = { displayModeBar: false, responsive: true, doubleClick: "reset" };

export class Card {
  constructor(key, title, { wide = false, tall = false } = {}) {
    this.key = key;
    this.tall = tall;
    this.figure = null;
    this.plot = h("div", { class: tall ? "plot tall" : "plot", role: "img" });
    this.heading = h("h2");
    this.rows = h("div");
    this.details = h("details", { class: "data", ontoggle: () => this.fill() }, h("summary", {}, "Data table"), this.rows);
    const button = (name, text, does) => h("button", { type: "button", class: "small", "data-export": name, onclick: does }, text);
    this.note = h("p", { class: "quiet" });
    this.element = h("section", { class: wide ? "card wide" : "card", "data-figure": key },
      h("div", { class: "head" }, this.heading, button("png", "PNG", () => this.png()), button("csv", "CSV", () => save(`foretell-${key}.csv`, csv(rowsOf(this.figure)), "text/csv"))),
      this.plot, this.note, this.details);
    this.call(title);
  }

  // A card outlives the scenario that it was made for.
  call(title) {
    this.heading.textContent = title;
    this.plot.setAttribute("aria-label", title);
    for (const button of this.element.querySelectorAll("[data-export]")) button.setAttribute("aria-label", `${title} as ${button.textContent}`);
  }

  // Of nothing there is no figure; its place is kept for when there is something.
  nothing() { this.element.hidden = true; }

  wait() { this.element.hidden = false; this.plot.classList.add("waiting"); }

  async draw(figure) {
    this.figure = figure;
    this.plot.classList.remove("waiting");
    this.plot.style.height = "";
    const narrow = this.plot.clientWidth < 480;
    const small = (axis) => ({ ...axis, title: { ...axis?.title, font: { size: narrow ? 11 : 12 } } });
    const layout = { ...figure.layout, title: undefined, autosize: true, width: undefined, height: this.tall ? figure.layout.height : undefined,
      margin: { l: narrow ? 46 : 60, r: 16, t: 12, b: 48 }, hoverlabel: { align: "left" }, font: { size: 12 } };
    for (const name of Object.keys(layout)) if (/^[xy]axis\d*$/.test(name)) layout[name] = small(layout[name]);
    if (layout.showlegend) {
      const reversed = figure.layout.legend?.traceorder === "reversed" && !narrow;
      layout.legend = narrow || this.plot.clientWidth < 560 ? this.below(figure, layout)
        : { ...figure.layout.legend, traceorder: reversed ? "reversed" : "normal", font: { size: 12 } };
    }
    // Words beside a bar go into it where there is no room beside it.
    const data = figure.data.map((trace) => (trace.textposition === "outside" ? { ...trace, textposition: "auto" } : trace));
    await window.Plotly.react(this.plot, narrow ? this.squeezed(data, layout) : data, layout, SETTINGS);
    if (this.details.open) this.fill();
  }

  // A legend below the figure, with room for every row of it.
  below(figure, layout) {
    const names = figure.data.filter((trace) => trace.name && trace.showlegend !== false).map((trace) => trace.name);
    const longest = Math.max(...names.map((name) => name.length), 4);
    const columns = Math.max(1, Math.floor((this.plot.clientWidth - 46) / (52 + 5.2 * longest)));
    const rows = Math.ceil(names.length / columns);
    if (!this.tall) this.plot.style.height = `${290 + 19 * rows}px`;
    layout.margin = { ...layout.margin, b: 50 + 19 * rows };
    return { orientation: "h", yref: "container", yanchor: "bottom", y: 0.01, x: 0, font: { size: 11 } };
  }

  // What a phone needs: names of lying bars in two lines with room for them, panels further apart.
  squeezed(data, layout) {
    const lying = !this.tall && data.some((trace) => trace.type === "bar" && trace.orientation === "h");
    const rows = new Set(data.flatMap((trace) => (lying ? trace.y : [])));
    if (lying) this.plot.style.height = `${Math.max(330, 30 * rows.size + 130)}px`;
    // Words beside the longest bars need room on both sides.
    const ends = lying ? data.flatMap((trace) => (trace.type === "bar" ? trace.x : [])).filter(Number.isFinite) : [];
    const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
    if (low < 0) layout.xaxis = { ...layout.xaxis, range: [low - 0.42 * (high - low), high + 0.12 * (high - low)] };
    for (const name of Object.keys(layout)) if (/^xaxis\d*$/.test(name)) layout[name].title.text = folded(layout[name].title.text, 30);
    if (layout.xaxis2?.domain) { layout.xaxis.domain = [0, 0.38]; layout.xaxis2.domain = [0.62, 1]; }
    if (!lying) return data;
    layout.yaxis = { ...layout.yaxis, tickfont: { size: 10.5 } };
    return data.map((trace) => ({ ...trace, y: trace.y.map((name) => folded(name, 18)), textfont: { size: 10.5 } }));
  }

  fill() {
    if (!this.details.open || !this.figure) return;
    const rows = rowsOf(this.figure);
    const [head, ...body] = rows;
    const shown = body.slice(0, 400);
    this.rows.replaceChildren(h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Data of the figure" },
      h("table", {}, h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, cell)))),
        h("tbody", {}, shown.map((row) => h("tr", {}, row.map((cell) => h("td", { class: typeof cell === "number" ? "number" : undefined },
          typeof cell === "number" ? digits(cell, 5) : cell))))))),
      body.length > shown.length ? h("p", { class: "quiet" }, `${body.length - shown.length} more rows in the CSV file.`) : "");
  }

  async png() {
    const layout = { ...this.figure.layout, autosize: false };
    const size = { width: 1200, height: this.figure.layout.height ?? 700 };
    const address = await window.Plotly.toImage({ data: this.figure.data, layout }, { format: "png", scale: 2, ...size });
    download(`foretell-${this.key}.png`, address);
  }

  gone() { window.Plotly.purge(this.plot); }
}

// Every point of a figure as a row: series, x, y, and its words.
export function rowsOf(figure) {
  const title = (axis, otherwise) => plain(figure.layout[axis]?.title?.text) || otherwise;
  const across = figure.data.some((trace) => trace.orientation === "h");
  const rows = [["series", title("xaxis", across ? "value" : "x"), title("yaxis", across ? "row" : "y"), "about"]];
  for (const trace of figure.data) {
    if (trace.mode === "text" || trace.hoverinfo === "skip") continue;
    (trace.x ?? []).forEach((x, i) => rows.push([trace.name ?? "", plain(x), plain(trace.y?.[i]), plain(Array.isArray(trace.text) ? trace.text[i] : "")]));
  }
  return rows;
}

// A text in lines of so many letters where it has more.
function folded(text, most) {
  if (typeof text !== "string") return text;
  const lines = [];
  for (const word of text.split(" ")) {
    if (lines.length && `${lines.at(-1)} ${word}`.length <= most) lines.push(`${lines.pop()} ${word}`);
    else lines.push(word);
  }
  return lines.join("<br>");
}

function plain(value) {
  return typeof value === "string" ? value.replaceAll("<br>", " ").trim() : value ?? "";
}

export function csv(rows) {
  const cell = (value) => {
    // A text that a spreadsheet would take for a formula is kept a text.
    const text = typeof value === "string" && /^[=+\-@\t]/.test(value) ? `'${value}` : String(value ?? "");
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

export function save(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  download(name, address);
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function download(name, address) {
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}

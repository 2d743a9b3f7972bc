// Elements, numbers with units, and words that explain themselves. Text is always set as text, never as markup.

export function h(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// ---- numbers

export function digits(value, figures = 3) {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e15 || size < 1e-4)) return value.toExponential(figures - 1);
  const places = size === 0 ? 0 : Math.max(0, figures - 1 - Math.floor(Math.log10(size)));
  const most = Math.min(places, 12);
  const told = { maximumFractionDigits: most, minimumFractionDigits: Number.isInteger(value) ? 0 : most };
  return value.toLocaleString("en", told);
}

function scaled(value, steps) {
  for (const [factor, unit] of steps) if (Math.abs(value) >= factor) return `${digits(value / factor)} ${unit}`;
  const [factor, unit] = steps.at(-1);
  return `${digits(value / factor)} ${unit}`;
}

const KNOWN = {
  s: (v) => seconds(v),
  ms: (v) => `${digits(v)} ms`,
  bytes: (v) => scaled(v, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"], [1, "B"]]),
  rate: (v) => scaled(v, [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1, "B/s"]]),
  share: (v) => `${digits(100 * v)} %`,
  chance: (v) => (v > 0 && v < 0.01 ? "< 1 %" : v < 1 && v > 0.99 ? "> 99 %" : `${Math.round(100 * v)} %`),
  usd: (v) => (Math.abs(v) >= 1e9 ? `$${digits(v / 1e9)} billion` : Math.abs(v) >= 1e6 ? `$${digits(v / 1e6)} million` : `$${digits(v, v < 100 ? 3 : 4)}`),
  J: (v) => (Math.abs(v) >= 3.6e5 ? `${digits(v / 3.6e6)} kWh` : `${digits(v)} J`),
  count: (v) => digits(v, 4),
  tokens: (v) => scaled(v, [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"], [1, ""]]).trim(),
  signed: (v) => {
    const size = Math.abs(100 * v);
    return `${size < 0.005 ? "" : v > 0 ? "+" : "−"}${size < 10 ? size.toFixed(2) : digits(size)} %`;
  },
};

export function seconds(value) {
  const size = Math.abs(value);
  const [factor, unit] = size >= 172800 ? [86400, "days"] : size >= 7200 ? [3600, "h"] : size >= 600 ? [60, "min"]
    : size >= 1 ? [1, "s"] : size >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
  return `${digits(value / factor)} ${unit}`;
}

export function show(value, unit) {
  if (value === null || value === undefined) return "–";
  return (KNOWN[unit] ?? ((v) => `${digits(v)} ${unit ?? ""}`.trim()))(value);
}

// A number as the page shows it; the exact value stays in the element.
export function number(value, unit, name) {
  return h("data", { value: value ?? "", "data-name": name }, show(value, unit));
}

// Two ends with their unit once, where they share it.
export function range(ends, unit) {
  if (!ends) return "";
  const [low, high] = ends.map((end) => show(end, unit));
  const [own, other] = [low, high].map((text) => /^(.*\d)( \D*)$/.exec(text));
  return own && other && own[2] === other[2] ? `${own[1]} to ${high}` : `${low} to ${high}`;
}

// ---- names of parts as the server has them, in words

const PARTS = { lost: "fragmentation", exchanges: "communication", matrices: "matrix multiplications", head: "output head",
  host: "host", fixed: "fixed time of a step", adv: "advantages", logprob: "log-probabilities", old_logprob: "log-probabilities", ref_logprob: "reference log-probabilities",
  weight_sync: "weight synchronisation" };

export function partName(name) {
  return String(name).split(".").map((part) => PARTS[part] ?? part.replaceAll("_", " ")).join(".");
}

// ---- words of the glossary

let words = {};
export function learn(known) { words = known; }

export function word(text, key = text.toLowerCase()) {
  if (!words[key]) return h("span", {}, text);
  return h("span", { class: "word", tabindex: 0, "aria-describedby": `tip-${key.replaceAll(" ", "-")}`, "data-word": key }, text);
}

export function explainWords() {
  const all = h("div", { hidden: true });
  for (const [key, meaning] of Object.entries(words)) all.append(h("p", { id: `tip-${key.replaceAll(" ", "-")}` }, meaning));
  document.body.append(all);
  let tip = null;
  const close = () => { tip?.remove(); tip = null; };
  const open = (event) => {
    const target = event.target.closest?.("[data-word]");
    close();
    if (!target) return;
    tip = h("div", { id: "tip", "aria-hidden": "true" }, words[target.dataset.word]);
    document.body.append(tip);
    const at = target.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - tip.offsetWidth - 8)) + window.scrollX}px`;
    tip.style.top = `${at.bottom + 6 + window.scrollY}px`;
  };
  document.addEventListener("mouseover", open);
  document.addEventListener("focusin", open);
  document.addEventListener("focusout", close);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
}

// ---- tables

// Columns are {title, of: row => value, unit?, right?, word?}; a value may be an element.
export function table(caption, columns, rows, chosen = () => false, label = caption) {
  const numeric = (column) => (column.unit || column.right ? "number" : undefined);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h("table", {}, caption ? h("caption", {}, caption) : "",
      h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: numeric(c) }, c.word ? word(c.title, c.word) : c.title)))),
      h("tbody", {}, rows.map((row) => h("tr", { class: chosen(row) ? "chosen" : undefined }, columns.map((c) => {
        const value = c.of(row);
        if (value instanceof Node && value.tagName === "CODE" && value.textContent.length > 26) value.className = "several";
        const cell = value instanceof Node ? value : c.unit ? number(value, c.unit) : value ?? "–";
        return h("td", { class: c.long ? "long" : numeric(c) }, cell);
      }))))));
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value ?? "–"))));
}

// A minus B: two scenarios number by number, what was changed between them, and where the difference comes from.

import { h, number, partName, show } from "../dom.js";
import { flags, FIELDS, titleOf } from "../fields.js";
import { nameOf } from "../own.js";
import { NAMES, state } from "../state.js";

// The scenario in hand and the first; of the first, it and the second.
export function pair() {
  if (state.scenarios.length < 2) return null;
  return [0, state.at === 0 ? 1 : state.at];
}

// `metrics` are [words, unit, answer => value]; `parts` are [words, unit, answer => {name: value}].
export function differences(told, metrics, parts = [], planOf = (answer) => answer.plan) {
  const two = pair();
  if (!two) return "";
  const [a, b] = two.map((i) => told[i]);
  const known = (answer) => answer && !answer.refused && metrics.some(([, , of]) => of(answer) !== null && of(answer) !== undefined);
  if (!known(a) || !known(b)) return "";
  const [first, second] = two.map((i) => NAMES[i]);
  const rows = metrics.map(([words, unit, of]) => [words, unit, of(a) ?? null, of(b) ?? null]).filter(([, , x, y]) => x !== null && y !== null);
  return h("section", { class: "card", id: "difference" }, h("div", { class: "head" }, h("h2", {}, `${first} minus ${second}`)),
    changed(two, planOf(a), planOf(b)),
    grid(`Results of ${first} and ${second}`, first, second, rows),
    h("div", { class: "parts" }, parts.map(([words, unit, of]) => grid(words, first, second, leaves(of(a), of(b)).map(([name, x, y]) => [partName(name), unit, x, y])))));
}

// Parts of both, those that differ most first.
function leaves(a = {}, b = {}) {
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  const rows = names.map((name) => [name, a[name] ?? 0, b[name] ?? 0]);
  const most = Math.max(...rows.map(([, x, y]) => Math.max(Math.abs(x), Math.abs(y))), 0);
  return rows.filter(([, x, y]) => Math.max(Math.abs(x), Math.abs(y)) > 1e-4 * most).sort(([, p, q], [, x, y]) => Math.abs(x - y) - Math.abs(p - q));
}

function grid(caption, first, second, rows) {
  if (!rows.length) return "";
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, h("table", {}, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ["", first, second, `${first} − ${second}`, "relative"].map((title, i) => h("th", { scope: "col", class: i ? "number" : undefined }, title)))),
    h("tbody", {}, rows.map(([words, unit, x, y]) => h("tr", {}, h("td", {}, words), ...[x, y].map((value) => h("td", { class: "number" }, number(value, unit))),
      h("td", { class: "number" }, h("data", { value: x - y }, Math.abs(x - y) < 1e-9 * Math.abs(x) ? "0" : signed(x - y, unit))),
      h("td", { class: "number" }, y ? show(x / y - 1, "signed") : "–"))))));
}

const signed = (value, unit) => (value > 0 ? `+${show(value, unit)}` : value < 0 ? `−${show(-value, unit)}` : "0");

// Fields and words of the plan that are not the same.
function changed([a, b], planA, planB) {
  const [x, y] = [state.scenarios[a], state.scenarios[b]];
  const said = Object.keys(FIELDS).filter((name) => name !== "plan").map((name) => {
    const [one, other] = [x, y].map((scenario) => flags(scenario, [name])[FIELDS[name].flag ?? name]);
    const plain = (value) => (value === undefined ? "not given" : typeof value === "object" && !Array.isArray(value) ? nameOf(value) : [value].flat().join(", "));
    return JSON.stringify(one) === JSON.stringify(other) ? null : [FIELDS[name].label, plain(one), plain(other)];
  }).filter(Boolean);
  const words = (plan) => new Set((plan ?? "").split(/\s+/).filter(Boolean));
  const [p, q] = [words(planA), words(planB)];
  const lost = [...p].filter((word) => !q.has(word)).join(" ");
  const gained = [...q].filter((word) => !p.has(word)).join(" ");
  if (lost || gained) said.push(["Plan", lost || "nothing more", gained || "nothing more"]);
  if (!said.length) return h("p", { class: "quiet" }, "Nothing differs between the two questions.");
  return h("ul", { class: "said", "aria-label": "What changed" }, said.map(([label, one, other]) => h("li", {}, h("strong", {}, `${label}: `), `${one} → ${other}`)));
}

export { titleOf };

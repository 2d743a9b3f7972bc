// What can be taken along: the answers as JSON and CSV, and the command line and Python that give the same.

import { h } from "./dom.js";
import { csv, save } from "./figure.js";

const FIRST = { network: ["system"], "cost system": ["system"], compare: ["systems"], scaling: ["models"] };
const PYTHON = {
  sensitivity: ["import foretell", "foretell.sensitivity", {}],
  network: ["from foretell.api.network import collective", "collective", { bytes: "size" }],
  "cost run": ["from foretell.api.cost import RunQuestion, run_cost", "run_cost", {}, "RunQuestion"],
  "cost token": ["from foretell.api.cost import TokenQuestion, token_cost", "token_cost", {}, "TokenQuestion"],
  "cost system": ["from foretell.economics.ask_system import SystemQuestion, system_cost", "system_cost", {}, "SystemQuestion"],
};

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export function commandLine(verb, flags) {
  const words = ["foretell", ...verb.split(" ")];
  const first = FIRST[verb] ?? ["model"];
  for (const name of first) words.push(...[flags[name]].flat().map((one) => quoted(String(one))));
  for (const [name, value] of Object.entries(flags)) {
    if (first.includes(name)) continue;
    const flag = `--${name.replaceAll("_", "-")}`;
    if (value === true) words.push(flag);
    else if (value === false) words.push(`--no-${name.replaceAll("_", "-")}`);
    else for (const one of Array.isArray(value) ? value : [value]) words.push(flag, quoted(String(one)));
  }
  return words.join(" ");
}

const literal = (value) => (value === true ? "True" : value === false ? "False"
  : Array.isArray(value) ? `[${value.map(literal).join(", ")}]` : JSON.stringify(value));

export function python(verb, flags, name = "found") {
  const [load, call, renamed, question] = PYTHON[verb] ?? ["import foretell", `foretell.${verb.replaceAll("-", "_")}`, {}];
  const plain = question ? [] : flags.models ?? []; // which have no name there
  const own = Object.entries(flags).filter(([flag]) => flag !== "models").map(([flag, value]) => [renamed[flag] ?? flag, literal(value)]);
  const told = (pairs) => pairs.map(([flag, value]) => `${flag}=${value}`).join(", ");
  const line = question ? `${call}(${question}(${told(own)}))` : `${call}(${[...plain.map(literal), told(own)].filter(Boolean).join(", ")})`;
  return [load, `${name} = ${line}`, `print(${name}.to_dict())`];
}

function program(asked) {
  const parts = asked.map((one, i) => python(one.verb, one.flags, asked.length > 1 ? one.name.toLowerCase().replaceAll(/\W/g, "_") : "found"));
  return [...new Set(parts.map(([load]) => load)), ...parts.flatMap(([, ...rest]) => rest)].join("\n");
}

// {name, verb, flags, answer} of every scenario -> a card to take it from.
export function takeCard(view, asked) {
  const block = (title, text, id) => h("div", {}, h("h3", { class: "group" }, title),
    h("div", { class: "code" }, h("pre", { id, tabindex: 0 }, text), h("button", { type: "button", class: "small", "aria-label": `Copy: ${title}`, onclick: (event) => copy(text, event.target) }, "copy")));
  const many = asked.length > 1;
  return h("section", { class: "card take", id: "take" },
    h("div", { class: "head" }, h("h2", {}, "Take it along")),
    h("div", { class: "row" },
      h("button", { type: "button", id: "copy-link", onclick: (event) => copy(window.location.href, event.target) }, "Copy link"),
      h("button", { type: "button", id: "save-json", onclick: () => save(`foretell-${view}.json`, JSON.stringify(many ? asked.map(bare) : asked[0].answer, null, 2), "application/json") }, "JSON"),
      h("button", { type: "button", id: "save-csv", onclick: () => save(`foretell-${view}.csv`, csv(flatRows(asked)), "text/csv") }, "CSV")),
    block("Command line", asked.map((one) => commandLine(one.verb, one.flags)).join("\n"), "commands"),
    block("Python", program(asked), "python"));
}

const bare = ({ name, verb, flags, answer }) => ({ name, verb, flags, answer });

function flatRows(asked) {
  const columns = asked.map(({ answer }) => flat(answer));
  const names = [...new Set(columns.flatMap((column) => Object.keys(column)))];
  return [["field", ...asked.map(({ name }) => name)], ...names.map((name) => [name, ...columns.map((column) => column[name] ?? "")])];
}

// Numbers and texts of an answer by their dotted path; trees by the names of their parts.
function flat(value, path = "", found = {}) {
  if (Array.isArray(value)) value.forEach((item, i) => flat(item, `${path}.${item?.name ?? item?.path ?? i}`, found));
  else if (value && typeof value === "object") for (const [key, item] of Object.entries(value)) flat(item, path ? `${path}.${key}` : key, found);
  else found[path] = value;
  return found;
}

async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    button.textContent = "not allowed";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

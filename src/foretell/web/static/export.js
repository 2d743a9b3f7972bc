// Export: the answers as JSON and CSV, the command line and Python that give the same numbers, and the launch of
// every tool that the answer can be written for.

import { ask, get, Refused } from "./api.js";
import { h } from "./dom.js";
import { csv, save } from "./figure.js";
import { nameOf, toml } from "./own.js";

const FIRST = { network: ["system"], "cost system": ["system"], compare: ["systems"], scaling: ["models"] };
const PYTHON = {
  sensitivity: ["import foretell", "foretell.sensitivity", { model: "about" }],
  network: ["from foretell.api.network import collective", "collective", { bytes: "size" }],
  "cost run": ["from foretell.api.cost import RunQuestion, run_cost", "run_cost", {}, "RunQuestion"],
  "cost token": ["from foretell.api.cost import TokenQuestion, token_cost", "token_cost", {}, "TokenQuestion"],
  "cost system": ["from foretell.economics.ask_system import SystemQuestion, system_cost", "system_cost", {}, "SystemQuestion"],
};

// Verbs whose answer is a launch of another tool, and which tools.
const WRITTEN = { estimate: "training", search: "training", serve: "serving", size: "serving", "post-train": "post-training" };
const chosen = {}; // tool and launcher by verb: they stay when the question changes
let known = null;

// An object of the user's own is a file on the command line.
const fileOf = (name, value) => `${nameOf(value, `own-${name}`).replaceAll(/[^\w.-]+/g, "-")}.${name === "model" ? "json" : "toml"}`;
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const told = (name, value) => (isObject(value) ? fileOf(name.replace(/s$/, ""), value) : String(value));

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export function commandLine(verb, flags) {
  const words = ["foretell", ...verb.split(" ")];
  const first = FIRST[verb] ?? ["model"];
  for (const name of first) words.push(...[flags[name]].flat().map((one) => quoted(told(name, one))));
  for (const [name, value] of Object.entries(flags)) {
    if (first.includes(name)) continue;
    const flag = `--${name.replaceAll("_", "-")}`;
    if (value === true) words.push(flag);
    else if (value === false) words.push(`--no-${name.replaceAll("_", "-")}`);
    else for (const one of Array.isArray(value) ? value : [value]) words.push(flag, quoted(told(name, one)));
  }
  return words.join(" ");
}

const literal = (value) => (value === true ? "True" : value === false ? "False" : value === null ? "None"
  : isObject(value) ? `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${literal(one)}`).join(", ")}}`
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

// {name, verb, flags, answer, exact} of every scenario -> a card with every form of it.
export function exportCard(view, asked) {
  const block = (title, text, id) => h("div", {}, h("h3", { class: "group" }, title),
    h("div", { class: "code" }, h("pre", { id, tabindex: 0 }, text), h("button", { type: "button", class: "small", "aria-label": `Copy: ${title}`, onclick: (event) => copy(text, event.target) }, "copy")));
  const many = asked.length > 1;
  return h("section", { class: "card take", id: "take" },
    h("div", { class: "head" }, h("h2", {}, "Export")),
    h("div", { class: "row" },
      h("button", { type: "button", id: "copy-link", onclick: (event) => copy(window.location.href, event.target) }, "Copy link"),
      h("button", { type: "button", id: "save-json", onclick: () => save(`foretell-${view}.json`, JSON.stringify(many ? asked.map(bare) : asked[0].answer, null, 2), "application/json") }, "JSON"),
      h("button", { type: "button", id: "save-csv", onclick: () => save(`foretell-${view}.csv`, csv(flatRows(asked)), "text/csv") }, "CSV")),
    h("div", { class: "row" }, files(asked)),
    launches(asked),
    block("Command line", asked.map((one) => commandLine(one.verb, one.flags)).join("\n"), "commands"),
    block("Python", program(asked), "python"));
}

// Files that the command line reads: clusters and models of the user's own.
function files(asked) {
  const own = new Map();
  for (const { flags } of asked) {
    for (const [name, value] of Object.entries(flags)) for (const one of [value].flat()) if (isObject(one)) own.set(fileOf(name.replace(/s$/, ""), one), one);
  }
  return [...own].map(([file, value]) => h("button", { type: "button", onclick: () => save(file, file.endsWith(".toml") ? toml(value) : JSON.stringify(value, null, 2), "text/plain") }, `Save ${file}`));
}

// The launch of a scenario in a tool's own form.
function launches(asked) {
  const own = asked.filter(({ verb }) => WRITTEN[verb]);
  if (!own.length) return "";
  const kind = WRITTEN[own[0].verb];
  const scenario = h("select", { id: "export-of" }, own.map(({ name }, i) => h("option", { value: i }, name)));
  const tool = h("select", { id: "export-tool" });
  const launcher = h("select", { id: "export-launcher" });
  const text = h("div", { "aria-live": "polite" });
  const labelled = (input, words) => h("div", { class: "field" }, h("label", { for: input.id }, words), input);
  const show = async () => {
    chosen[kind] = { tool: tool.value, launcher: launcher.value };
    if (!tool.value) { text.replaceChildren(); return; }
    const { verb, flags, exact } = own[Number(scenario.value)];
    text.replaceChildren(h("p", { class: "quiet" }, `Writing for ${tool.value} …`));
    try {
      const found = await ask(verb, { ...flags, ...(exact?.plan ? { plan: exact.plan } : {}), export: tool.value, ...(launcher.value ? { launcher: launcher.value } : {}) });
      if (!found.export) throw new Refused(200, found.problems ?? [{ path: "", message: "the plan does not fit, so it is not written" }]);
      text.replaceChildren(h("div", { class: "code" }, h("pre", { id: "exported", tabindex: 0 }, found.export),
        h("button", { type: "button", class: "small", "aria-label": "Copy: launch", onclick: (event) => copy(found.export, event.target) }, "copy")),
      found.export_notes?.length ? h("ul", { class: "said quiet" }, found.export_notes.map((note) => h("li", {}, note))) : "");
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      text.replaceChildren(h("p", { class: "wrong" }, error.message));
    }
  };
  const fill = async () => {
    known ??= await get("api/tools");
    tool.append(h("option", { value: "" }, "choose a tool"), ...known[kind].map((one) => h("option", { value: one }, one)));
    launcher.append(h("option", { value: "" }, "the tool's own"), ...known.launchers.map((one) => h("option", { value: one }, one)));
    if (chosen[kind]) { tool.value = chosen[kind].tool; launcher.value = chosen[kind].launcher; show(); }
  };
  for (const input of [scenario, tool, launcher]) input.addEventListener("change", show);
  fill();
  return h("div", {}, h("h3", { class: "group" }, "Launch with"), h("div", { class: "trio" },
    own.length > 1 ? labelled(scenario, "Scenario") : "", labelled(tool, "Tool"), kind === "post-training" ? "" : labelled(launcher, "Start with")), text);
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

// The form: which fields a view has, what they are called, and how they become flags.

import { h, word } from "./dom.js";
import { chipsOf, CLUSTER, modelOf, nameOf, systemOf, USUAL } from "./own.js";
import { current, MOST, NAMES, state } from "./state.js";

const whole = (text) => (/^[+-]?\d{1,15}$/.test(text.trim()) ? Number(text) : text.trim());
const decimal = (text) => (text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text.trim());
const names = (text) => text.split(/[\n,]+/).map((name) => name.trim()).filter(Boolean);
const lines = (text) => text.split(/\n+/).map((line) => line.trim()).filter(Boolean);

// name in the state -> {label, flag, as, and what the input is}
export const FIELDS = {
  model: { label: "Model", word: "model", list: "models" },
  system: { label: "System or chip", word: "system", list: "systems" },
  gpus: { label: "GPUs", word: "chip", as: whole, half: true, mode: "numeric" },
  global_batch: { label: "Global batch", word: "batch", as: whole, half: true, hint: "≈ 4 M tokens", mode: "numeric" },
  seq_len: { label: "Sequence", as: whole, half: true, hint: "up to 4096", mode: "numeric" },
  tokens: { label: "Tokens of the run", as: decimal, half: true, hint: "such as 15T" },
  plan: { label: "Plan", word: "plan", hint: "best plan found" },
  // Words of the plan.
  framework: { label: "Framework", plan: "framework=", half: true, options: [["", "any"], ...["megatron-core", "torchtitan", "deepspeed", "fsdp2", "transformers", "nemo", "maxtext"].map((v) => [v, v])] },
  precision: { label: "Precision", plan: "precision=", half: true, options: [["", "bf16"], ...["fp8", "mxfp8", "nvfp4", "fp16"].map((v) => [v, v])] },
  tp: { label: "TP", plan: "tp", half: true, mode: "numeric" },
  pp: { label: "PP", plan: "pp", half: true, mode: "numeric" },
  ep: { label: "EP", plan: "ep", half: true, mode: "numeric" },
  zero: { label: "ZeRO stage", plan: "zero", half: true, mode: "numeric" },
  set: { label: "Overrides, one per line", as: lines, area: true, hint: "chip.memory_bytes=96 GB" },
  // Not part of the address, and kept nowhere.
  measured: { label: "Measured runs: paste a log, a table or lines (not stored)", as: (text) => [text], area: true, tall: 4, hint: "tp8 pp4 zero1 mbs1: 15.2 s" },
  c_chip: { label: "GPU", list: "systems", hint: USUAL.c_chip, paths: ["chip"] },
  c_each: { label: "GPUs per node", half: true, hint: String(USUAL.c_each), mode: "numeric", paths: ["network.node.size", "chips_per_node"] },
  c_nodes: { label: "Nodes", half: true, hint: String(USUAL.c_nodes), mode: "numeric", paths: ["network.cluster.size"] },
  c_link: { label: "Link in a node, per GPU", half: true, hint: USUAL.c_link, paths: ["network.node.bandwidth_bytes_per_s"] },
  c_net: { label: "Between nodes, per GPU", half: true, hint: USUAL.c_net, paths: ["network.cluster.bandwidth_bytes_per_s"] },
  c_topology: { label: "Network", half: true, options: [["", "fat tree"], ...["switch", "rail-clos", "dragonfly", "torus"].map((v) => [v, v])], paths: ["network.cluster.topology"] },
  c_price: { label: "Price of a node ($)", half: true, hint: "catalogue", mode: "decimal", paths: ["node_price_usd"] },
  s_gpus: { label: "GPUs", word: "chip", flag: "gpus", as: whole, half: true, hint: "8", mode: "numeric" },
  isl: { label: "Prompt tokens", as: decimal, half: true, hint: "1024", mode: "numeric" },
  osl: { label: "Output tokens", as: decimal, half: true, hint: "1024", mode: "numeric" },
  concurrency: { label: "Concurrency", as: decimal, half: true, hint: "32", mode: "numeric" },
  layout: { label: "Layout", flag: "plan", hint: "best found, or tp4 weights=fp8" },
  engine: { label: "Engine", half: true, options: [["", "vllm"], ["trtllm", "trtllm"], ["sglang", "sglang"]] },
  p_gpus: { label: "GPUs", word: "chip", flag: "gpus", as: whole, half: true, hint: "32", mode: "numeric" },
  algorithm: { label: "Algorithm", half: true, options: [["", "grpo"], ...["dapo", "ppo", "sft", "dpo", "reward"].map((v) => [v, v])] },
  prompts: { label: "Prompts per step", as: whole, half: true, hint: "512", mode: "numeric" },
  samples: { label: "Samples per prompt", as: whole, half: true, hint: "8", mode: "numeric" },
  mean_osl: { label: "Output, mean", flag: "osl", as: decimal, half: true, hint: "from the limit", mode: "numeric" },
  max_osl: { label: "Output, at most", as: whole, half: true, hint: "8192", mode: "numeric" },
  updates: { label: "Updates per step", as: whole, half: true, hint: "1", mode: "numeric" },
  placement: { label: "Placement", half: true, options: [["", "colocated"], ...["split", "async", "best"].map((v) => [v, v])] },
  staleness: { label: "Staleness", as: decimal, half: true, hint: "1", mode: "decimal" },
  loop: { label: "Framework", flag: "framework", half: true, options: [["", "any"], ...["verl", "nemo-rl", "trl", "openrlhf", "slime", "skyrl", "areal", "prime-rl"].map((v) => [v, v])] },
  rollout_plan: { label: "Rollout layout", hint: "the fastest, or tp2 memory_fraction=0.6" },
  rate: { label: "Requests/s", as: decimal, half: true, hint: "10", mode: "decimal" },
  ttft: { label: "TTFT at most (ms)", as: decimal, half: true, hint: "2000", mode: "numeric" },
  tpot: { label: "TPOT at most (ms)", as: decimal, half: true, hint: "50", mode: "numeric" },
  percentile: { label: "Percentile", half: true, options: [["p50", "p50"], ["", "p90"], ["p95", "p95"], ["p99", "p99"]] },
  what: { label: "Cost of", options: [["", "a training run"], ["token", "a million served tokens"], ["system", "the system itself"]] },
  rent: { label: "Payment", half: true, options: [["", "default"], ...["on-demand", "spot", "reserved", "1-year", "3-year", "own"].map((v) => [v, v])] },
  price: { label: "$ per GPU-hour", as: decimal, half: true, hint: "catalogue", mode: "decimal" },
  region: { label: "Region (grid)", half: true, hint: "world" },
  utilisation: { label: "Utilisation", as: decimal, half: true, hint: "0.8", mode: "decimal" },
  collective: { label: "Collective", word: "collective", options: ["", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send"].map((v) => [v, v || "all-reduce"]) },
  bytes: { label: "Message", hint: "64MiB", half: true },
  group: { label: "Group size", word: "group", as: whole, half: true, hint: "64", mode: "numeric" },
  systems: { label: "Systems, one per line", word: "system", as: names, area: true, tall: 4, hint: "h100-sxm\nh200-sxm\nb200-sxm\nmi300x" },
  budget: { label: "or budget ($)", as: decimal, half: true, hint: "such as 10M" },
  work: { label: "Work", options: [["", "a training step"], ["service", "a service"]] },
  by: { label: "Rank by", half: true, options: [["", "$ per token"], ["tokens", "tokens/s"]] },
  years: { label: "Years", as: decimal, half: true, hint: "5", mode: "decimal" },
  counts: { label: "Numbers of GPUs", flag: "gpus", hint: "1..512, or 8,16,24" },
  strategies: { label: "Strategies: plans without dp", word: "plan", hint: "zero1,zero3,tp8 zero1" },
  mode: { label: "Batch", word: "batch", options: [["", "grows with GPUs (weak)"], ["strong", "fixed (strong)"]] },
  held_batch: { label: "Global batch", flag: "global_batch", as: whole, half: true, hint: "1024", mode: "numeric" },
  batch_per_gpu: { label: "Batch per GPU", as: whole, half: true, hint: "one micro-batch", mode: "numeric" },
  micro_batch: { label: "Micro-batch", as: whole, half: true, hint: "1", mode: "numeric" },
  floor: { label: "Efficiency floor", as: decimal, half: true, hint: "0.8", mode: "decimal" },
  factor: { label: "Better and worse by factor", as: decimal, half: true, hint: "2", mode: "decimal" },
};

// The flags that a scenario gives for some fields; what is empty is left to the server.
export function flags(scenario, names) {
  const given = {};
  for (const name of names) {
    if (name === "system" || name === "model") {
      const thing = name === "system" ? systemOf(scenario) : modelOf(scenario);
      if (thing !== undefined) given[name] = thing;
      continue;
    }
    const text = scenario[name];
    if (text === undefined || text === "") {
      if (name === "gpus" && chipsOf(scenario) !== undefined) given.gpus = chipsOf(scenario);
      continue;
    }
    const { flag = name, as = (value) => value.trim(), plan } = FIELDS[name];
    if (plan) given.plan = `${given.plan ?? ""} ${plan}${text.trim()}`.trim();
    else given[flag] = as(text);
  }
  return given;
}

// What a scenario is about, in a line.
export function titleOf(scenario) {
  const gpus = scenario.gpus || chipsOf(scenario);
  return `${nameOf(modelOf(scenario), "your model")} on ${gpus ? `${gpus} × ` : ""}${nameOf(systemOf(scenario), "your system")}`;
}

export function drawForm(groups, changed, actions) {
  const root = document.getElementById("fields");
  root.replaceChildren(...groups.flatMap(([title, names]) => [
    title ? h("h2", { class: "group" }, title) : null, ...paired(names, changed, actions)]).filter(Boolean));
}

// A system or a model of the user's own takes the place of the field.
function own(name, changed, actions) {
  const scenario = current();
  const button = (id, text, does) => h("button", { type: "button", class: "link", id, onclick: does }, text);
  const pill = (held, key) => h("div", { class: "field" }, h("p", { class: "pill" }, h("strong", {}, held.file || held.name), ` ${held.about}`),
    button(`no-${key}`, "Use the catalogue instead", () => actions.set({ [key]: "" })));
  if (name === "model") {
    if (scenario.own_model === "file" && scenario.model_file) return [h("h2", { class: "label" }, "Model from a file"), pill(JSON.parse(scenario.model_file), "own_model")];
    return [field(name, changed, button("import-model", "or a config.json", actions.open))];
  }
  if (scenario.own === "file" && scenario.system_file) return [h("h2", { class: "label" }, "System from a file"), pill(JSON.parse(scenario.system_file), "own")];
  if (scenario.own === "form") {
    return [h("fieldset", { class: "own" }, h("legend", {}, "My cluster"), ...paired(CLUSTER, changed, actions),
      button("no-own", "Use the catalogue instead", () => actions.set({ own: "" })))];
  }
  return [field(name, changed, h("span", { class: "row" }, button("own-cluster", "describe my cluster", () => actions.set({ own: "form" })),
    button("import-system", "or a TOML file", actions.open)))];
}

function paired(names, changed, actions) {
  const rows = [];
  let half = null;
  for (const name of names) {
    if (name === "system" || name === "model") { half = null; rows.push(...own(name, changed, actions)); continue; }
    const made = field(name, changed);
    if (!FIELDS[name].half) { half = null; rows.push(made); continue; }
    if (half) { half.append(made); half = null; } else { half = h("div", { class: "pair" }, made); rows.push(half); }
  }
  return rows;
}

function field(name, changed, beside = "") {
  const about = FIELDS[name];
  const id = `field-${name}`;
  const value = current()[name] ?? "";
  const hint = name === "gpus" && chipsOf(current()) !== undefined ? `all ${chipsOf(current())}` : about.hint;
  const common = { id, name, "aria-describedby": `${id}-wrong` };
  let input;
  if (about.options) {
    input = h("select", common, about.options.map(([key, text]) => h("option", { value: key }, text)));
    input.value = value;
    if (input.selectedIndex < 0) input.selectedIndex = about.options.findIndex(([, text]) => text === value); // the usual one by its name
  } else if (about.area) {
    input = h("textarea", { ...common, rows: about.tall ?? 2, placeholder: about.hint, spellcheck: "false", value });
  } else {
    input = h("input", { ...common, list: about.list, placeholder: hint, inputmode: about.mode, spellcheck: "false", value });
  }
  input.addEventListener("input", () => { current()[name] = input.value; changed(name); });
  const title = about.word ? word(about.label, about.word) : about.label;
  return h("div", { class: "field" }, h("label", { for: id }, title), input, beside, h("div", { class: "wrong", id: `${id}-wrong` }));
}

// Put what is wrong beside the fields that it is about.
export function markWrong(errors) {
  for (const name of Object.keys(FIELDS)) {
    const input = document.getElementById(`field-${name}`);
    if (!input) continue;
    const flag = FIELDS[name].flag ?? name;
    const paths = FIELDS[name].paths ?? [flag];
    const own = errors.filter(({ path }) => paths.some((one) => path === one || path.startsWith(`${one}.`)) || (flag === "set" && path.startsWith("--set")));
    input.setAttribute("aria-invalid", own.length ? "true" : "false");
    document.getElementById(`field-${name}-wrong`).textContent = own.map(sentence).join(" ");
  }
}

export function sentence({ message, allowed, nearest }) {
  let text = message;
  // What would do instead is long and worth it; a list of names is not.
  if (nearest) text += `; did you mean ${nearest}?`;
  if (allowed && (allowed.startsWith("--") || (!nearest && allowed.length < 160))) text += `; allowed: ${allowed}`;
  return text;
}

export function drawScenarios(pick, add, remove) {
  const many = state.scenarios.length;
  const picks = state.scenarios.map((scenario, i) => h("button", {
    type: "button", class: `pick of-${i}`, "aria-pressed": i === state.at ? "true" : "false",
    "aria-label": `Scenario ${NAMES[i]}: ${titleOf(scenario)}`, title: titleOf(scenario), onclick: () => pick(i),
  }, NAMES[i]));
  document.getElementById("scenarios").replaceChildren(...picks,
    h("button", { type: "button", id: "add", disabled: many >= MOST, onclick: add, title: "Add a scenario like this one" }, "+ add"),
    h("button", { type: "button", id: "remove", disabled: many <= 1, onclick: remove, title: "Remove this scenario" }, "remove"));
}

// The form: which fields a view has, what they are called, and how they become flags.

import { h, word } from "./dom.js";
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
  tokens: { label: "Tokens of a run", as: decimal, half: true, hint: "such as 15T" },
  plan: { label: "Plan", word: "plan", hint: "the best" },
  set: { label: "Settings, one a line", as: lines, area: true, hint: "chip.memory_bytes=96 GB" },
  // Not part of the address, and kept nowhere.
  measured: { label: "Measured runs: paste a log, a table or lines", as: (text) => [text], area: true, tall: 4, hint: "tp8 pp4 zero1 mbs1: 15.2 s" },
  s_gpus: { label: "GPUs", word: "chip", flag: "gpus", as: whole, half: true, hint: "8", mode: "numeric" },
  isl: { label: "Prompt tokens", as: decimal, half: true, hint: "1024", mode: "numeric" },
  osl: { label: "Answer tokens", as: decimal, half: true, hint: "1024", mode: "numeric" },
  concurrency: { label: "In flight", as: decimal, half: true, hint: "32", mode: "numeric" },
  layout: { label: "Layout", flag: "plan", hint: "the best, or tp4 weights=fp8" },
  engine: { label: "Engine", half: true, options: [["", "vllm"], ["trtllm", "trtllm"], ["sglang", "sglang"]] },
  p_gpus: { label: "GPUs", word: "chip", flag: "gpus", as: whole, half: true, hint: "32", mode: "numeric" },
  algorithm: { label: "Algorithm", half: true, options: [["", "grpo"], ...["dapo", "ppo", "sft", "dpo", "reward"].map((v) => [v, v])] },
  prompts: { label: "Prompts a step", as: whole, half: true, hint: "512", mode: "numeric" },
  samples: { label: "Answers to each", as: whole, half: true, hint: "8", mode: "numeric" },
  mean_osl: { label: "Answer, mean", flag: "osl", as: decimal, half: true, hint: "by the limit", mode: "numeric" },
  max_osl: { label: "Answer, at most", as: whole, half: true, hint: "8192", mode: "numeric" },
  updates: { label: "Updates a step", as: whole, half: true, hint: "1", mode: "numeric" },
  placement: { label: "Placement", half: true, options: [["", "colocated"], ...["split", "async", "best"].map((v) => [v, v])] },
  staleness: { label: "Staleness", as: decimal, half: true, hint: "1", mode: "decimal" },
  loop: { label: "Framework", flag: "framework", half: true, options: [["", "any"], ...["verl", "nemo-rl", "trl", "openrlhf", "slime", "skyrl", "areal", "prime-rl"].map((v) => [v, v])] },
  rollout_plan: { label: "Rollout layout", hint: "the fastest, or tp2 memory_fraction=0.6" },
  rate: { label: "Requests/s", as: decimal, half: true, hint: "10", mode: "decimal" },
  ttft: { label: "TTFT at most (ms)", as: decimal, half: true, hint: "2000", mode: "numeric" },
  tpot: { label: "TPOT at most (ms)", as: decimal, half: true, hint: "50", mode: "numeric" },
  percentile: { label: "at", half: true, options: [["p50", "p50"], ["", "p90"], ["p95", "p95"], ["p99", "p99"]] },
  what: { label: "Cost of", options: [["", "a training run"], ["token", "a million served tokens"], ["system", "the system itself"]] },
  rent: { label: "Paid", half: true, options: [["", "as known"], ...["on-demand", "spot", "reserved", "1-year", "3-year", "own"].map((v) => [v, v])] },
  price: { label: "$ per GPU-hour", as: decimal, half: true, hint: "catalogue", mode: "decimal" },
  region: { label: "Region (grid)", half: true, hint: "world" },
  utilisation: { label: "Utilisation", as: decimal, half: true, hint: "0.8", mode: "decimal" },
  collective: { label: "Collective", word: "collective", options: ["", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send"].map((v) => [v, v || "all-reduce"]) },
  bytes: { label: "Message", hint: "64MiB", half: true },
  group: { label: "Members", word: "group", as: whole, half: true, hint: "64", mode: "numeric" },
  systems: { label: "Systems, one a line", word: "system", as: names, area: true, tall: 4, hint: "h100-sxm\nh200-sxm\nb200-sxm\nmi300x" },
  budget: { label: "or for $", as: decimal, half: true, hint: "such as 10M" },
  work: { label: "Work", options: [["", "a training step"], ["service", "a service"]] },
  by: { label: "In order of", half: true, options: [["", "tokens/s"], ["usd", "$ for a token"]] },
  years: { label: "Years", as: decimal, half: true, hint: "5", mode: "decimal" },
  counts: { label: "Numbers of GPUs", flag: "gpus", hint: "1..512, or 8,16,24" },
  strategies: { label: "Strategies: plans without dp", word: "plan", hint: "zero1,zero3,tp8 zero1" },
  mode: { label: "Batch", word: "batch", options: [["", "grows with the GPUs (weak)"], ["strong", "is held (strong)"]] },
  held_batch: { label: "Global batch", flag: "global_batch", as: whole, half: true, hint: "1024", mode: "numeric" },
  batch_per_gpu: { label: "Batch of a GPU", as: whole, half: true, hint: "a micro-batch", mode: "numeric" },
  micro_batch: { label: "Micro-batch", as: whole, half: true, hint: "1", mode: "numeric" },
  floor: { label: "Stops below", as: decimal, half: true, hint: "0.8", mode: "decimal" },
  factor: { label: "Better and worse by", as: decimal, half: true, hint: "2", mode: "decimal" },
};

// The flags that a scenario gives for some fields; what is empty is left to the server.
export function flags(scenario, names) {
  const given = {};
  for (const name of names) {
    const text = scenario[name];
    if (text === undefined || text === "") continue;
    const { flag = name, as = (value) => value.trim() } = FIELDS[name];
    given[flag] = as(text);
  }
  return given;
}

export function drawForm(groups, changed) {
  const root = document.getElementById("fields");
  root.replaceChildren(...groups.flatMap(([title, names]) => [
    title ? h("h2", { class: "group" }, title) : null, ...paired(names, changed)]).filter(Boolean));
}

function paired(names, changed) {
  const rows = [];
  let half = null;
  for (const name of names) {
    const made = field(name, changed);
    if (!FIELDS[name].half) { half = null; rows.push(made); continue; }
    if (half) { half.append(made); half = null; } else { half = h("div", { class: "pair" }, made); rows.push(half); }
  }
  return rows;
}

function field(name, changed) {
  const about = FIELDS[name];
  const id = `field-${name}`;
  const value = current()[name] ?? "";
  const common = { id, name, "aria-describedby": `${id}-wrong` };
  let input;
  if (about.options) {
    input = h("select", common, about.options.map(([key, text]) => h("option", { value: key }, text)));
    input.value = value;
  } else if (about.area) {
    input = h("textarea", { ...common, rows: about.tall ?? 2, placeholder: about.hint, spellcheck: "false", value });
  } else {
    input = h("input", { ...common, list: about.list, placeholder: about.hint, inputmode: about.mode, spellcheck: "false", value });
  }
  input.addEventListener("input", () => { current()[name] = input.value; changed(name); });
  const title = about.word ? word(about.label, about.word) : about.label;
  return h("div", { class: "field" }, h("label", { for: id }, title), input, h("div", { class: "wrong", id: `${id}-wrong` }));
}

// Put what is wrong beside the fields that it is about.
export function markWrong(errors) {
  for (const name of Object.keys(FIELDS)) {
    const input = document.getElementById(`field-${name}`);
    if (!input) continue;
    const flag = FIELDS[name].flag ?? name;
    const own = errors.filter(({ path }) => path === flag || path.startsWith(`${flag}.`) || (flag === "set" && path.startsWith("--set")));
    input.setAttribute("aria-invalid", own.length ? "true" : "false");
    document.getElementById(`field-${name}-wrong`).textContent = own.map(sentence).join(" ");
  }
}

export function sentence({ message, allowed, nearest }) {
  let text = message;
  if (nearest) text += `; did you mean ${nearest}?`;
  else if (allowed && allowed.length < 160) text += `; allowed: ${allowed}`;
  return text;
}

export function drawScenarios(pick, add, remove) {
  const many = state.scenarios.length;
  const picks = state.scenarios.map((scenario, i) => h("button", {
    type: "button", class: `pick of-${i}`, "aria-pressed": i === state.at ? "true" : "false",
    "aria-label": `Scenario ${NAMES[i]}: ${scenario.model ?? ""} on ${scenario.system ?? ""}`, onclick: () => pick(i),
  }, NAMES[i]));
  document.getElementById("scenarios").replaceChildren(...picks,
    h("button", { type: "button", id: "add", disabled: many >= MOST, onclick: add, title: "Add a scenario like this one" }, "+ add"),
    h("button", { type: "button", id: "remove", disabled: many <= 1, onclick: remove, title: "Remove this scenario" }, "remove"));
}

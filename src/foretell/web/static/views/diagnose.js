// Diagnose: a pasted log, benchmark, table or line of a measured run or service beside its prediction, and the likely causes of the gap.
// The text stays in this page: it is neither in the address nor kept by the server.

import { table } from "../dom.js";
import { facts, h, number, range, reasons, show } from "./shared.js";

const kept = { runs: "", model: "llama-3.1-70b", system: "h100-sxm", gpus: "", global_batch: "", seq_len: "", plan: "" };
// What the server calls a cause -> words.
const CALLED = { gemm: "matrix multiplications", experts: "expert matrix multiplications", memory_bound: "memory-bound work", tensor_parallel: "tensor-parallel communication",
  context_parallel: "context-parallel communication", expert_parallel: "expert-parallel communication", pipeline_parallel: "sends between stages", data_parallel: "data-parallel communication",
  inside_nodes: "links inside nodes", between_nodes: "links between nodes", fixed: "fixed time of a step", everything: "everything alike", unexplained: "not explained by a mechanism",
  passes: "forward and backward passes", forward_backward: "passes with their pipeline", pipeline_waits: "sends and waits of the pipeline", gradient_sync: "gradient and parameter communication", optimizer_step: "updates of the optimizer",
  decode_weights: "decode: weights", decode_cache: "decode: cached keys and values", step_overhead: "engine overhead of a step", cache_capacity: "tokens that the cache holds" };
// Figure of a service -> its name and unit.
const FIGURES = { ttft_ms: ["TTFT", "ms"], tpot_ms: ["TPOT", "ms"], e2e_ms: ["request latency", "ms"], output_tokens_per_s: ["output rate", "tokens/s"],
  output_tokens_per_s_per_gpu: ["output rate of a GPU", "tokens/s"], requests_per_s: ["request rate", "requests/s"], kv_cache_tokens: ["tokens that the cache holds", "tokens"],
  kv_bytes: ["cache of a GPU", "bytes"], weight_bytes: ["weights of a GPU", "bytes"], peak_memory_bytes: ["Peak memory", "bytes"], reserved_bytes: ["Reserved memory", "bytes"], allocated_bytes: ["Allocated memory", "bytes"], memory_used_bytes: ["Memory in use", "bytes"], power_watts: ["Power of a GPU", "W"] };
// Figures of an engine's memory: they have no load and no interval.
const HELD = ["kv_cache_tokens", "kv_bytes", "weight_bytes"];
// What was measured and predicted of a run, and its unit: a step in seconds, or a figure of a service.
const beside = (run) => (run.metric ? [run.measured, run.predicted, FIGURES[run.metric][1]] : [run.measured_s, run.predicted_s, "s"]);
const called = (name) => CALLED[name] ?? name.replaceAll("_", " ");
const whole = (text) => (/^\d{1,15}$/.test(text.trim()) ? Number(text) : text.trim() || undefined);

// Measured runs that were dropped on the page.
export function measured(text) { kept.runs = text; }

export default {
  title: "Diagnose",
  groups: () => [],

  async show(desk) {
    desk.put("trouble");
    desk.put("paste", box(desk));
    if (!kept.runs.trim()) { desk.put("summary"); desk.put("runs"); return "Paste or drop a log"; }
    try {
      const { runs, model, system, plan, ...numbers } = kept;
      const counts = Object.fromEntries(Object.entries(numbers).map(([name, text]) => [name, whole(text)]));
      const found = await desk.ask("diagnose", { runs: [runs], model: model || undefined, system: system || undefined, plan: plan || undefined, ...counts });
      desk.put("summary", found.runs.map((run) => card(run, found)));
      desk.put("runs", found.runs.flatMap((run) => causes(run)), next(found), notes(found));
    } catch (error) {
      if (!error.errors) throw error;
      desk.put("summary", h("section", { class: "card" }, h("h2", {}, "This run cannot be diagnosed"), reasons(error.errors)));
      desk.put("runs");
    }
    return "";
  },
};

function box(desk) {
  const text = h("textarea", { id: "runs-text", rows: 9, spellcheck: "false", placeholder: "tp8 pp4 zero1 mbs1: 19.5 s\nor the lines of a log: Megatron-LM, torchtitan, DeepSpeed, Hugging Face, verl, vLLM, SGLang, nvidia-smi ...\nor a service: c64 tp4 isl=1024 osl=256: ttft 310 ms, tpot 18 ms, or the JSON of vllm bench serve\nor a table in CSV or JSON lines; a file may also be dropped here" });
  text.value = kept.runs;
  const LABELS = { model: "Model", system: "System or chip", gpus: "GPUs", global_batch: "Global batch", seq_len: "Sequence", plan: "Plan" };
  const HINTS = { model: "from the log", system: "from the log", gpus: "from the log", global_batch: "from the log", seq_len: "from the log", plan: "from the log" };
  const inputs = Object.fromEntries(Object.keys(LABELS).map((name) => [name, h("input", { id: `run-${name}`, value: kept[name], placeholder: HINTS[name],
    list: { model: "models", system: "systems" }[name], inputmode: ["gpus", "global_batch", "seq_len"].includes(name) ? "numeric" : undefined, spellcheck: "false" })]));
  const go = h("button", { type: "button", id: "runs-go", class: "main" }, "Diagnose");
  go.addEventListener("click", () => {
    Object.assign(kept, { runs: text.value }, Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value])));
    desk.again();
  });
  const named = (id, words, field) => h("div", { class: "field" }, h("label", { for: id }, words), field);
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Why is a run or a service slower than predicted?")),
    h("p", { class: "quiet" }, "The text is not stored: not in the link, and not on the server."),
    named("runs-text", "A log, a table, a benchmark's JSON or a line of a measured run or service", text),
    h("div", { class: "trio" }, Object.entries(inputs).map(([name, input]) => named(input.id, LABELS[name], input))),
    h("div", { class: "row" }, go));
}

// How far the run is from its prediction, in a word.
function verdict(run) {
  const [measured, predicted] = beside(run);
  const [low, high] = run.interval?.p90 ?? [predicted, predicted];
  if (run.gap === null) return ["No step time in the log", ""];
  if (HELD.includes(run.metric)) return [Math.abs(run.gap) < 0.1 ? "As predicted" : "Another size than predicted", ` ${show(run.gap, "share")} from the prediction`];
  const rate = run.metric?.includes("_per_s");
  const apart = `${show(Math.abs(run.gap), "share")} ${run.gap < 0 !== Boolean(rate) ? "faster" : "slower"} than predicted`;
  if (rate ? measured < low : measured > high) return ["Slower than it should be", ` ${apart}, outside the 90 % interval`];
  if (rate ? measured > high : measured < low) return ["Faster than expected", ` ${apart}, outside the 90 % interval`];
  return ["Within the interval", ` ${apart}`];
}

function card(run, found) {
  const [big, rest] = verdict(run);
  const [measured, predicted, unit] = beside(run);
  const load = run.rate ? `${show(run.rate)} requests/s` : `concurrency ${show(run.concurrency)}`;
  return h("section", { class: "card" }, h("h2", {}, `${found.model} on ${found.system}${run.metric ? `: ${FIGURES[run.metric][0]}` : ""}`),
    h("p", { class: "big words" }, big, h("small", {}, rest)),
    h("p", { class: "plan" }, run.plan), HELD.includes(run.metric) ? h("p", { class: "plan" }, run.profile) : run.metric ? h("p", { class: "plan" }, `${run.profile}: ${load}, ${show(run.isl)} tokens in, ${show(run.osl)} out`) : "", run.rollout_plan ? h("p", { class: "plan" }, `rollout  ${run.rollout_plan}`) : "",
    facts([
      ["Measured", measured === null ? "not logged" : number(measured, unit, run.metric ?? "measured_s")],
      ["Predicted", number(predicted, unit, run.metric ? `${run.metric}_predicted` : "predicted_s")],
      ["90 % interval", range(run.interval?.p90, unit)],
      ...(run.watched ?? []).map((one) => [FIGURES[one.metric][0], h("span", {}, number(one.measured, FIGURES[one.metric][1], one.metric), `, predicted ${show(one.predicted, FIGURES[one.metric][1])}`)]),
    ]));
}

function causes(run) {
  const over = run.over_time?.said ?? [];
  return [
    run.causes?.length ? h("section", { class: "card" }, h("h2", {}, run.metric ? `Likely causes: ${FIGURES[run.metric][0]}` : "Likely causes"),
      table("The likeliest first", [
        { title: "cause", of: (row) => called(row.mechanism) },
        { title: "probability", unit: "chance", of: (row) => row.probability },
        { title: "then takes", unit: "count", of: (row) => h("span", {}, `× ${row.factor.toFixed(2)}`) },
        { title: "gain if fixed", unit: "share", of: (row) => row.gain },
        { title: "check", long: true, of: (row) => row.check },
      ], run.causes),
      run.not_told_apart.length ? h("p", { class: "quiet" }, `This measurement cannot tell apart: ${run.not_told_apart.map((pair) => pair.map(called).join(" and ")).join("; ")}.`) : "") : "",
    run.phases?.length ? h("section", { class: "card" }, h("h2", {}, "Phases of the step"),
      run.said?.length ? h("ul", { class: "said" }, run.said.map((line) => h("li", {}, line))) : "",
      table("The longest first", [
        { title: "phase", of: (row) => CALLED[row.phase] ?? row.phase },
        { title: "logged", unit: "s", of: (row) => row.measured_s },
        { title: "expected", unit: "s", of: (row) => row.predicted_s },
        { title: "verdict", of: (row) => (row.verdict === "as expected" ? row.verdict : `${row.ratio.toFixed(1)} × expected`) },
        { title: "check", long: true, of: (row) => row.check },
      ], run.phases)) : "",
    over.length ? h("section", { class: "card" }, h("h2", {}, `Over ${run.over_time.steps} steps`), h("ul", { class: "said" }, over.map((line) => h("li", {}, line)))) : "",
  ];
}

function next(found) {
  if (!found.best_plan) return "";
  if (found.best_step_s === undefined) return nextOfService(found);
  const own = [["Best plan given this run", h("span", {}, h("code", {}, found.best_plan), ", ", number(found.best_step_s, "s"), " per step")]];
  if (found.next) own.push(["Measure next", h("span", {}, h("code", {}, found.next.plan), `, predicted ${show(found.next.step_s, "s")}; it narrows the interval of the best plan by ${show(found.next.narrower, "share")}`)]);
  return h("section", { class: "card" }, h("h2", {}, "What to do next"), h("ul", { class: "said" }, own.map(([words, text]) => h("li", {}, h("strong", {}, `${words}: `), text))));
}

function nextOfService(found) {
  const latencies = (one) => `TTFT ${show(one.ttft_ms, "ms")}, TPOT ${show(one.tpot_ms, "ms")}`;
  const best = latencies({ ttft_ms: found.best_ttft_ms, tpot_ms: found.best_tpot_ms });
  const own = [["Best layout given this service", h("span", {}, h("code", {}, found.best_plan), `, ${best}`)]];
  if (found.next) own.push(["Measure next", h("span", {}, h("code", {}, found.next.plan), `, concurrency ${show(found.next.concurrency)}, ${show(found.next.isl)} tokens in, ${show(found.next.osl)} out, predicted ${latencies(found.next)}; it narrows the doubt about the causes by ${show(found.next.narrower, "share")}`)]);
  return h("section", { class: "card" }, h("h2", {}, "What to do next"), h("ul", { class: "said" }, own.map(([words, text]) => h("li", {}, h("strong", {}, `${words}: `), text))));
}

function notes(found) {
  const told = [...(found.notes ?? []), ...found.runs.flatMap((run) => run.assumptions ?? [])];
  return told.length ? h("details", { class: "card" }, h("summary", {}, `Notes (${told.length})`), h("ul", { class: "said" }, told.map((text) => h("li", {}, text)))) : "";
}

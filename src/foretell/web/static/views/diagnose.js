// Diagnose: a pasted log, benchmark, table or line of a measured run or service beside its prediction, and the likely causes of the gap.
// The text stays in this page: it is neither in the address nor kept by the server.

import { assumed, h, reasons, restOf, tableOf } from "./shared.js";

const kept = { runs: "", model: "llama-3.1-70b", system: "h100-sxm", gpus: "", global_batch: "", seq_len: "", plan: "" };
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
      desk.put("summary", card(found));
      desk.put("runs", ...restOf(found, ["Measured and predicted"]), assumed([found]));
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

// The answer's headline, what was run, and how far it is from its prediction.
function card(found) {
  const { headline, lines = [] } = found.presentation;
  const at = headline.lastIndexOf(": ");
  return h("section", { class: "card" }, h("h2", {}, headline.slice(at + 2)), h("p", { class: "big words" }, headline.slice(0, at)),
    lines.map((line) => h("p", { class: "plan" }, line)), tableOf(found, "Measured and predicted"));
}

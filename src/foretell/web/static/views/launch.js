// Launch: a pasted command, script or config of another tool, what it would gain, and which flags to change.
// The text stays in this page: it is neither in the address nor kept by the server.

import { table } from "../dom.js";
import { facts, h, number, range, reasons } from "./shared.js";

const kept = { launch: "", system: "h100-sxm", gpus: "", accept_unknown: false };

// A launch that was dropped on the page.
export function pasted(text) { kept.launch = text; }

export default {
  title: "Launch",
  groups: () => [],

  async show(desk) {
    desk.put("trouble");
    desk.put("paste", box(desk));
    if (!kept.launch.trim()) { desk.put("summary"); desk.put("changes"); return "Paste or drop a launch"; }
    try {
      const asked = { ...kept, gpus: kept.gpus || undefined, system: kept.system || undefined };
      const found = await desk.ask("improve", asked);
      desk.put("summary", card(found));
      desk.put("changes", changes(found), readBack(found));
    } catch (error) {
      if (!error.errors) throw error;
      desk.put("summary", h("section", { class: "card" }, h("h2", {}, "This launch cannot be read"), reasons(error.errors)));
      desk.put("changes");
    }
    return "";
  },
};

function box(desk) {
  const text = h("textarea", { id: "launch", rows: 10, spellcheck: "false", placeholder: "torchrun ... pretrain_gpt.py --tensor-model-parallel-size 8 ...\nor vllm serve ...\nor a config in YAML, TOML or JSON; a file may also be dropped here" });
  text.value = kept.launch;
  const system = h("input", { id: "launch-system", list: "systems", value: kept.system });
  const gpus = h("input", { id: "launch-gpus", inputmode: "numeric", value: kept.gpus, placeholder: "from the launch" });
  const accept = h("input", { id: "launch-accept", type: "checkbox" });
  accept.checked = kept.accept_unknown;
  const go = h("button", { type: "button", id: "launch-go", class: "main" }, "Improve");
  go.addEventListener("click", () => {
    Object.assign(kept, { launch: text.value, system: system.value, gpus: gpus.value, accept_unknown: accept.checked });
    desk.again();
  });
  const named = (id, words, field) => h("div", { class: "field" }, h("label", { for: id }, words), field);
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "What would a launch gain?")),
    h("p", { class: "quiet" }, "The text is not stored: not in the link, and not on the server."),
    named("launch", "A launch command, script or config of another tool", text),
    h("div", { class: "trio" }, named("launch-system", "System", system), named("launch-gpus", "GPUs", gpus)),
    h("div", { class: "row" }, go, h("div", { class: "check" }, accept, h("label", { for: "launch-accept" }, "Continue where an argument is not understood"))));
}

function card(found) {
  const unit = found.metric === "tokens_per_s" ? "tokens/s" : "output tokens/s";
  return h("section", { class: "card" }, h("h2", {}, `${found.model} on ${found.gpus} × ${found.system}`),
    h("p", { class: "big" }, found.gain === null ? "Does not run as launched" : found.gain < 0.0005 ? "Already the best found" : [`${(100 * found.gain).toFixed(1)} %`, h("small", {}, " more throughput")]),
    found.conclusions.map((text) => h("p", {}, text)),
    facts([
      [`Launch, ${unit}`, found.before === null ? "none" : number(found.before, "count")],
      [`Better, ${unit}`, number(found.after, "count")],
      ["90 % interval of the gain", found.gain_interval ? range(found.gain_interval.p90, "share") : ""],
    ]),
    h("p", { class: "plan" }, h("strong", {}, "launch  "), found.plan_before), h("p", { class: "plan" }, h("strong", {}, "better  "), found.plan_after));
}

function changes(found) {
  if (!found.changes.length) return "";
  return h("section", { class: "card" }, h("h2", {}, `Flags to change, for ${found.export_tool}`),
    table("Flags of the launch and of the better one", [
      { title: "flag", of: (row) => row.flag },
      { title: "launch", of: (row) => row.before ?? "not set" },
      { title: "better", of: (row) => row.after ?? "leave out" },
    ], found.changes),
    h("pre", { class: "export" }, found.export));
}

function readBack(found) {
  return h("details", { class: "card" }, h("summary", {}, `What was read (${found.read_back.length} values)`),
    table("Every value of the question, and where it comes from", [
      { title: "value of", of: (row) => row.name },
      { title: "value", of: (row) => row.value },
      { title: "from", of: (row) => row.origin },
      { title: "argument", of: (row) => row.key },
      { title: "line", of: (row) => row.line ?? "" },
    ], found.read_back));
}

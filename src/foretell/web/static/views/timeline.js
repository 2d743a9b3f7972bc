// Timeline: one step simulated event by event, as a picture and as a file that Perfetto opens.

import { file } from "../api.js";
import { save } from "../figure.js";
import { assumed, facts, h, headingOf, named, noCard, planned, restOf, scenarioCard, shown, surely, word } from "./shared.js";

const OVER_STEP = "memory-over-step";

export default {
  title: "Timeline",
  groups: () => [["", ["model", "system", "gpus", "global_batch", "seq_len", "plan"]], ["More", ["set"]]],

  async show(desk) {
    const told = await desk.each(async (i) => {
      const plan = await planned(desk, i);
      if (!plan.step_s || plan.fits === "no") return plan;
      return { ...plan, played: await desk.ask("simulate", plan.exact) };
    });
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.played ? card(answer, i) : noCard(i, answer, headingOf(answer, desk.flags(["model", "system", "gpus"], i))))));
    const active = told[desk.at];
    const name = desk.names[desk.at];
    const question = active.played ? active.exact : null;
    const [shown] = await Promise.all([
      desk.figureOf("timeline", `One step of ${name}`, [question], [name], { wide: true, tall: true }),
      desk.has(OVER_STEP) ? overStep(desk, question, name) : null, // once asked for, it stays in step
    ]);
    if (shown) shown.note.textContent = "One rank of each pipeline stage; drag to look closer, double click to look at all of it.";
    desk.put("keep", question ? keep(desk, question, name) : "");
    desk.put("stages", ...(active.played ? restOf(active.played) : [""]));
    desk.put("assumed", assumed(told));
    desk.export(told.map((answer, i) => ({ name: desk.names[i], verb: "simulate", flags: answer.exact, answer: answer.played })).filter(({ answer }) => answer));
    return "";
  },
};

function card(answer, i) {
  const played = answer.played;
  return scenarioCard(i, headingOf(answer, {}),
    h("p", { class: "big" }, named(played, "step_s"), h("small", {}, " simulated")),
    h("p", { class: "plan", "data-name": "plan" }, played.plan),
    facts([[word("90 % interval", "interval"), surely(played, "step_s")], ...shown(played, ["step_s"])]));
}

function overStep(desk, question, name) {
  return desk.figureOf(OVER_STEP, `Memory of ${name} over a step`, [question], [name], { wide: true });
}

function keep(desk, question, name) {
  const button = (id, text, does) => h("button", { type: "button", id, onclick: async (event) => {
    const own = event.target;
    own.disabled = true;
    try { await does(); } catch (error) { if (error.name !== "AbortError") desk.say(error.message); }
    own.disabled = false;
  } }, text);
  return h("section", { class: "card" }, h("div", { class: "row" },
    button("save-trace", "Download the trace", async () => save(`foretell-step-${name}.json.gz`, await file("simulate trace", question))),
    button("memory-over-step", "Memory over the step", () => overStep(desk, question, name)),
    h("span", { class: "quiet" }, "The trace opens in ui.perfetto.dev and in chrome://tracing.")));
}

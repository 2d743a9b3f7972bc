// Post-training: a step of fine-tuning or reinforcement learning, its phases, memory and placements.

import { differences } from "./differences.js";
import { assumed, before, facts, h, headingOf, howSure, named, noCard, scenarioCard, shown, surely, tableOf, withUsual, word } from "./shared.js";

const JOB = ["model", "system", "p_gpus", "algorithm", "prompts", "samples", "isl", "mean_osl", "max_osl", "updates", "placement", "staleness", "loop", "plan", "rollout_plan", "set", "measured"];

export default {
  title: "Post-training",
  groups: () => [["", ["model", "system", "p_gpus", "algorithm"]], ["Trajectories", ["prompts", "samples", "isl", "mean_osl", "max_osl", "updates"]],
    ["Placement", ["placement", "staleness", "loop"]], ["More", ["plan", "rollout_plan", "measured", "set"]]],

  async show(desk) {
    const questions = desk.names.map((_, i) => withUsual(desk.flags(JOB, i), { gpus: 32, algorithm: "grpo", max_osl: 8192 }));
    const told = await desk.each((i) => desk.ask("post-train", questions[i]));
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.phases ? card(answer, i) : noCard(i, answer, headingOf(answer, questions[i]), "Does not fit"))));
    desk.put("difference", differences(told, METRICS, [["Where the step differs", "s", (answer) => Object.fromEntries((answer.phases ?? []).map((row) => [row.name, row.exposed]))]]));
    const shown = told[desk.at];
    const asked = questions.map((question, i) => (told[i].phases ? question : null));
    await Promise.all([
      desk.figureOf("phases", "Where the time of a step goes", asked, desk.names),
      desk.figureOf("phase-memory", `Memory of ${desk.names[desk.at]} by phase`, [asked[desk.at]], [desk.names[desk.at]]),
    ]);
    desk.put("phase-table", tableOf(shown, "Phases", "Phases of a step", "Duration of each phase, and the part that is not hidden behind another"));
    desk.put("memory-table", tableOf(shown, "Memory", "Memory by phase", "Peak of one GPU of each pool"));
    desk.put("placements", tableOf(shown, "Placements", "Placements", "Every split, the fastest that fits first"));
    desk.put("assumed", assumed(told));
    desk.export(told.map((answer, i) => ({ name: desk.names[i], verb: "post-train", flags: questions[i], answer })).filter(({ answer }) => answer.phases));
    return "";
  },
};

const METRICS = [["Step time", "s", (a) => a.step_s], ["Tokens/s per GPU", "count", (a) => a.tokens_per_s_per_gpu], ["Idle", "share", (a) => a.idle_share],
  ["Generation tail", "share", (a) => a.tail_share], ["$ per step", "usd", (a) => a.usd_per_step]];
const FITS = { yes: "fits", no: "does not fit", too_close: "borderline" };

function card(answer, i) {
  return scenarioCard(i, `${answer.algorithm} of ${answer.model} on ${answer.gpus} GPUs`,
    h("p", { class: "big" }, named(answer, "step_s"), h("small", {}, " per step")),
    h("p", { class: "quiet" }, word("90 % interval", "interval"), ` ${surely(answer, "step_s")}`),
    howSure(answer),
    h("p", { class: "plan", "data-name": "plan" }, answer.plan),
    answer.rollout_plan ? h("p", { class: "plan", "data-name": "rollout_plan" }, answer.rollout_plan) : "",
    facts([
      ...before(answer, answer.prior?.step_s, "s"),
      ["Placement", answer.placement],
      ...shown(answer, ["step_s", "plan", "rollout_plan"]),
      ["Memory", h("span", { class: `tag ${answer.fits}` }, `${FITS[answer.fits] ?? answer.fits}${answer.fits === "no" && answer.fails_in ? ` in ${answer.fails_in.replaceAll("_", " ")}` : ""}`)],
    ]));
}

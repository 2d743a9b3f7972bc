// Post-training: a step of fine-tuning or reinforcement learning, its phases, memory and placements.

import { table } from "../dom.js";
import { assumed, before, facts, h, headingOf, noCard, number, range, scenarioCard, withUsual } from "./shared.js";

const JOB = ["model", "system", "p_gpus", "algorithm", "prompts", "samples", "isl", "mean_osl", "max_osl", "updates", "placement", "staleness", "loop", "plan", "rollout_plan", "set", "measured"];

export default {
  title: "Post-training",
  groups: () => [["", ["model", "system", "p_gpus", "algorithm"]], ["Trajectories", ["prompts", "samples", "isl", "mean_osl", "max_osl", "updates"]],
    ["Placement", ["placement", "staleness", "loop"]], ["More", ["plan", "rollout_plan", "measured", "set"]]],

  async show(desk) {
    const questions = desk.names.map((_, i) => withUsual(desk.flags(JOB, i), { gpus: 32, max_osl: 8192 }));
    const told = await desk.each((i) => desk.ask("post-train", questions[i]));
    desk.put("trouble");
    desk.put("summary", told.map((answer, i) => (answer.phases ? card(answer, i) : noCard(i, answer, headingOf(answer, questions[i])))));
    const shown = told[desk.at];
    await desk.figureOf("phases", "What a step waits for", questions.map((question, i) => (told[i].phases ? question : null)), desk.names);
    desk.put("phase-table", shown?.phases ? phases(shown) : "");
    desk.put("memory-table", shown?.phases ? memory(shown) : "");
    desk.put("placements", shown?.alternatives?.length ? placements(shown) : "");
    desk.put("assumed", assumed(told));
    desk.take(told.map((answer, i) => ({ name: desk.names[i], verb: "post-train", flags: questions[i], answer })).filter(({ answer }) => answer.phases));
    return "";
  },
};

function card(answer, i) {
  return scenarioCard(i, `${answer.algorithm} of ${answer.model} on ${answer.gpus} GPUs`,
    h("p", { class: "big" }, number(answer.step_s, "s", "step_s"), h("small", {}, " a step")),
    h("p", { class: "plan", "data-name": "plan" }, answer.plan),
    answer.rollout_plan ? h("p", { class: "plan" }, answer.rollout_plan) : "",
    facts([
      ...before(answer, answer.prior?.step_s, "s"),
      ["90 % interval", range(answer.interval?.p90, "s")],
      ["Placement", answer.placement],
      ["Tokens/s per GPU", number(answer.tokens_per_s_per_gpu, "count", "tokens_per_s_per_gpu")],
      ["Idle", number(answer.idle_share, "share", "idle_share")],
      answer.rollout_plan ? ["Tail of the generation", number(answer.tail_share, "share", "tail_share")] : null,
      answer.usd_per_step === null ? null : ["$ a step", number(answer.usd_per_step, "usd", "usd_per_step")],
      ["Fits", h("span", { class: `tag ${answer.fits === "no" ? "no" : "yes"}` }, answer.fits === "no" ? answer.fails_in : answer.fits)],
    ]));
}

function phases(answer) {
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Phases of a step")),
    table("Seconds by themselves, and what the step waits for", [
      { title: "phase", of: (row) => row.name },
      { title: "seconds", unit: "s", of: (row) => row.seconds },
      { title: "90 %", of: (row) => range(row.interval, "s") },
      { title: "exposed", unit: "s", of: (row) => row.exposed },
      { title: "pool", of: (row) => row.pool },
    ], answer.phases));
}

function memory(answer) {
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Memory by phase")),
    table("What one chip of a pool holds", [
      { title: "phase", of: (row) => row.phase },
      { title: "pool", of: (row) => row.pool },
      { title: "held", unit: "bytes", of: (row) => row.bytes },
      { title: "of", unit: "bytes", of: (row) => row.capacity_bytes },
      { title: "fits", of: (row) => h("span", { class: `tag ${row.fits === "no" ? "no" : "yes"}` }, row.fits) },
    ], answer.memory.phases));
}

function placements(answer) {
  return h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, "Placements")),
    h("ul", { class: "said" }, answer.placement_reasons.map((text) => h("li", {}, text))),
    table("Every ratio, the fastest that fits first", [
      { title: "placement", of: (row) => row.placement },
      { title: "trainer GPUs", unit: "count", of: (row) => row.trainer_gpus },
      { title: "rollout GPUs", unit: "count", of: (row) => row.rollout_gpus },
      { title: "step", unit: "s", of: (row) => row.step_s },
      { title: "idle", unit: "share", of: (row) => row.idle_share },
    ], answer.alternatives, (row) => row === answer.alternatives[0]));
}

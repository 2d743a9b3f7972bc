// Questions to the server that this page came from, and to no other. Answers come as Server-Sent Events: how far
// a long one is, then the answer. Whoever aborts cancels the work on the server too.

export class Refused extends Error {
  constructor(status, errors) {
    super(errors.map((e) => (e.path ? `${e.path}: ${e.message}` : e.message)).join("; "));
    this.status = status;
    this.errors = errors;
  }
}

async function answered(response) {
  if (response.ok) return response;
  let errors = [{ path: "", message: `the server answered ${response.status}` }];
  try { errors = (await response.json()).errors ?? errors; } catch { /* not JSON: the line above is shown */ }
  throw new Refused(response.status, errors);
}

const post = (verb, flags, signal, accept) => fetch(`api/${verb.replaceAll(" ", "/")}`, {
  method: "POST", headers: { "content-type": "application/json", accept }, body: JSON.stringify(flags), signal,
});

// The nearest plan that works takes longer to find than that one does not: it is asked for once the answer is
// there, and filled in where the reason is shown.
export async function ask(verb, flags, signal, progress = () => {}) {
  // What is shown of an answer comes with it, and is no part of what is exported.
  const asked = verb.startsWith("figures ") ? verb : `${verb}?shown=true`;
  const { presentation = null, ...answer } = held(await reply(asked, flags, signal, progress));
  showing(answer, presentation);
  if (presentation === null && answer.array) return answer.array;
  if (answer?.hint_on_request) hint(verb, flags, signal, answer.problems);
  return answer;
}

// What is shown of an answer beside it.
export const showing = (answer, presentation) => Object.defineProperty(answer, "presentation", { value: presentation });

const held = (answer) => (Array.isArray(answer) ? { array: answer } : answer);

async function hint(verb, flags, signal, problems) {
  let found = [];
  try { found = (await reply(`${verb}?hint=true`, flags, signal)).problems ?? []; } catch { /* the reason alone is shown */ }
  found.forEach((problem, i) => { Object.assign(problems[i], problem); problems[i].shown?.(); });
}

// `progress` is called with {state, seconds, done, total} while the answer is on its way.
async function reply(verb, flags, signal, progress = () => {}) {
  const response = await answered(await post(verb, flags, signal, "text/event-stream, application/json"));
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return response.json();
  for await (const [name, data] of events(response.body)) {
    if (name === "progress") progress(JSON.parse(data));
    else if (name === "answer") return JSON.parse(data);
    else if (name === "errors") { const { status, errors } = JSON.parse(data); throw new Refused(status, errors); }
  }
  throw new Refused(503, [{ path: "", message: "the server closed the connection before it answered" }]);
}

// [name, data] of every event of a stream.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const blocks = held.split("\n\n");
    held = blocks.pop();
    for (const block of blocks) {
      const field = (name) => block.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? "";
      yield [field("event"), field("data")];
    }
  }
}

export async function get(path, signal) {
  return (await answered(await fetch(path, { signal }))).json();
}

export async function file(verb, flags) {
  return (await answered(await post(verb, flags, undefined, "application/gzip, application/json"))).blob();
}

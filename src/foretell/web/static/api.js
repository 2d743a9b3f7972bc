// Questions to the server that this page came from, and to no other.

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
  try { errors = (await response.json()).errors ?? errors; } catch { /* not JSON: what stands above is said */ }
  throw new Refused(response.status, errors);
}

export async function ask(verb, flags, signal) {
  const body = JSON.stringify(flags);
  const response = await fetch(`api/${verb.replaceAll(" ", "/")}`, {
    method: "POST", headers: { "content-type": "application/json" }, body, signal,
  });
  return (await answered(response)).json();
}

export async function get(path, signal) {
  return (await answered(await fetch(path, { signal }))).json();
}

export async function file(verb, flags) {
  const response = await fetch(`api/${verb.replaceAll(" ", "/")}`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(flags),
  });
  return (await answered(response)).blob();
}

// Drives OpenAI's library for Node against the API of a gateway.
//
// Reads one JSON object per line, `{"case", "base", "key", "retries", ...}`, and carries it out
// before it reads the next. Prints JSON lines: `{"now": ...}` while a case is under way, and at its
// end `{"gave": ...}`, or `{"raised": ...}` with all that a program could tell from the error.

import { createInterface } from "node:readline";

import OpenAI, * as library from "openai";

const print = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);
const now = (what) => print({ now: what });

const cases = {
  async chat(client, { body }) {
    const answer = await client.chat.completions.create(body);
    const [choice] = answer.choices;
    const { id, object, model, usage } = answer;
    return { id, object, model, usage, finish: choice.finish_reason, ...choice.message };
  },

  async stream(client, { body }) {
    const stream = await client.chat.completions.create({ ...body, stream: true });
    const seen = { text: "", finish: [], roles: [], empty: 0, usage: null, ids: [] };
    try {
      for await (const chunk of stream) read(chunk, seen);
    } catch (error) {
      now(seen); // what came before the error stays
      throw error;
    }
    return { ...seen, ids: seen.ids.length };
  },

  async helper(client, { body }) {
    const heard = { connect: 0, chunk: 0, "content.delta": 0, "content.done": 0, end: 0 };
    const stream = client.chat.completions.stream(body);
    for (const name of Object.keys(heard)) stream.on(name, () => (heard[name] += 1));
    const texts = [];
    stream.on("content", (delta, snapshot) => texts.push([delta, snapshot]));
    const content = await stream.finalContent();
    const whole = await stream.finalChatCompletion();
    const said = texts.map(([delta]) => delta).join("");
    const last = texts.at(-1)?.[1];
    const usage = (await stream.totalUsage()).total_tokens;
    return { content, said, last, heard, finish: whole.choices[0].finish_reason, usage };
  },

  async models(client, { name }) {
    const listed = [];
    for await (const each of client.models.list()) listed.push(each.id);
    const { id, object, owned_by } = await client.models.retrieve(name);
    return { listed, id, object, owned_by };
  },

  async leave(client, { body }) {
    const stream = await client.chat.completions.create({ ...body, stream: true });
    let text = "";
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      if (text) stream.controller.abort();
    }
    return { text, aborted: stream.controller.signal.aborted };
  },

  async leaveHelper(client, { body }) {
    const stream = client.chat.completions.stream(body);
    stream.on("content", () => stream.abort());
    return { content: await stream.finalContent() };
  },

  async headers(client, { body, headers }) {
    const { data, response } = await client.chat.completions
      .create(body, { headers })
      .withResponse();
    return { text: data.choices[0].message.content, state: response.headers.get("x-session-state") };
  },

  async respond(client, { body }) {
    return answered(await client.responses.create(body));
  },

  async respondStream(client, { body }) {
    const stream = await client.responses.create({ ...body, stream: true });
    const seen = { text: "", types: [], numbers: [], response: null };
    for await (const event of stream) {
      seen.types.push(event.type);
      seen.numbers.push(event.sequence_number);
      if (event.type === "response.output_text.delta") seen.text += event.delta;
      if (event.response) seen.response = answered(event.response);
    }
    return seen;
  },

  async respondHelper(client, { body }) {
    const deltas = [];
    const stream = client.responses.stream(body);
    stream.on("response.output_text.delta", (event) => deltas.push([event.delta, event.snapshot]));
    const final = await stream.finalResponse();
    const response = answered(final);
    const reasoning = final.output
      .filter((item) => item.type === "reasoning")
      .flatMap((item) => item.summary.map((part) => part.text));
    const said = deltas.map(([delta]) => delta).join("");
    return { response, said, last: deltas.at(-1)?.[1], reasoning };
  },

  async retrieve(client, { id }) {
    return answered(await client.responses.retrieve(id));
  },

  async forget(client, { id }) {
    await client.responses.delete(id);
    return answered(await client.responses.retrieve(id));
  },

  async leaveResponse(client, { body }) {
    const stream = await client.responses.create({ ...body, stream: true });
    const seen = { text: "" };
    for await (const event of stream) {
      if (event.type !== "response.output_text.delta") continue;
      seen.text += event.delta;
      stream.controller.abort();
    }
    return seen;
  },
};

function answered(response) {
  const { id, object, status, previous_response_id: previous, output_text: text } = response;
  const code = response.error?.code ?? null;
  return { id, object, status, previous, text: text ?? null, code, usage: response.usage };
}

function read(chunk, seen) {
  const [choice] = chunk.choices; // throws where an event is none that this library can read
  if (chunk.id && !seen.ids.includes(chunk.id)) seen.ids.push(chunk.id);
  if (chunk.usage) seen.usage = chunk.usage;
  if (!choice) {
    seen.empty += 1;
    return;
  }
  seen.text += choice.delta.content ?? "";
  if (choice.delta.role) seen.roles.push(choice.delta.role);
  if (choice.finish_reason) seen.finish.push(choice.finish_reason);
}

function described(error) {
  const kinds = Object.entries(library)
    .filter(([name, kind]) => name.endsWith("Error") && typeof kind === "function")
    .filter(([, kind]) => error instanceof kind)
    .map(([name]) => name);
  const { status, code, type, param, message } = error;
  const header = (name) => error.headers?.get?.(name) ?? null;
  const headers = { "retry-after": header("retry-after"), "x-should-retry": header("x-should-retry") };
  return { name: error.constructor.name, kinds, status, code, type, param, message, headers };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { case: name, base, key, retries, ...asked } = JSON.parse(line);
  const client = new OpenAI({ baseURL: base, apiKey: key, maxRetries: retries, logLevel: "off" });
  try {
    print({ gave: await cases[name](client, asked) });
  } catch (error) {
    print({ raised: described(error) });
  }
}

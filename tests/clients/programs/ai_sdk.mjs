// One task of the AI SDK: `node ai_sdk.mjs TASK MODULE EXPORT`; prints the outcome as JSON.
import { Output, generateObject, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const [task, module, name] = process.argv.slice(2);
const model = (await import(`./${module}`))[name];
const prompt = "How is the weather in Berlin?";
const run = [];
const weather = tool({
  description: "Look up the weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    run.push(city);
    return { city, sky: "clear" };
  },
});
const city = z.object({ city: z.string(), people: z.number() });

async function streamed(options) {
  const errors = [];
  const result = streamText({
    model,
    prompt,
    system: "Be brief.",
    maxRetries: 0,
    includeRawChunks: true,
    onError: ({ error }) => errors.push(String(error)),
    ...options,
  });
  const parts = [];
  for await (const part of result.toUIMessageStream({ onError: String })) parts.push(part);
  const raw = [];
  for await (const part of result.fullStream) if (part.type === "raw") raw.push(part.rawValue);
  return {
    errors,
    raw: JSON.stringify(raw),
    parts: parts.map((part) => part.type),
    text: await result.text,
    reason: await result.finishReason,
    steps: (await result.steps).length,
    tokens: (await result.totalUsage).totalTokens,
    run,
  };
}

const tasks = {
  stream: () => streamed({}),
  stream_tools: () => streamed({ tools: { weather }, stopWhen: isStepCount(5) }),
  tools: async () => {
    const result = await generateText({
      model, prompt, maxRetries: 0, tools: { weather }, stopWhen: isStepCount(5),
    });
    return { text: result.text, steps: result.steps.length, run };
  },
  output: async () => {
    const output = Output.object({ schema: city });
    return (await generateText({ model, prompt, maxRetries: 0, output })).output;
  },
  object: async () => (await generateObject({ model, prompt, maxRetries: 0, schema: city })).object,
  picture: async () => {
    const image = { type: "image", image: Buffer.from(process.env.PICTURE, "base64") };
    const content = [{ type: "text", text: "Which colour is this?" }, image];
    return (await generateText({ model, maxRetries: 0, messages: [{ role: "user", content }] })).text;
  },
  look: async () => {
    const look = tool({
      description: "Take a photo.",
      inputSchema: z.object({}),
      execute: async () => process.env.PICTURE,
      toModelOutput: ({ output }) => ({
        type: "content",
        value: [
          { type: "text", text: "the photo" },
          { type: "file", mediaType: "image/png", data: { type: "data", data: output } },
        ],
      }),
    });
    const stopWhen = isStepCount(5);
    return (await generateText({ model, prompt, maxRetries: 0, tools: { look }, stopWhen })).text;
  },
  abort: async () => {
    const stopping = new AbortController();
    const result = streamText({
      model, prompt, maxRetries: 0, abortSignal: stopping.signal, onError: () => {},
    });
    const parts = [];
    for await (const part of result.toUIMessageStream()) {
      if (part.type === "text-delta") stopping.abort();
      parts.push(part.type);
    }
    return parts;
  },
  error: async () => {
    try {
      await generateText({ model, prompt, maxRetries: 0 });
    } catch (error) {
      const { name, statusCode: status, isRetryable: retry, responseBody: body } = error;
      return { name, status, retry, body };
    }
  },
};
console.log(JSON.stringify(await tasks[task]()));

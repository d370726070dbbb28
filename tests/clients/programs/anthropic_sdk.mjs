// One task of Anthropic's library: `node anthropic_sdk.mjs TASK`; prints the outcome as JSON.
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { z } from "zod";
import { client } from "./anthropic.mjs";

const run = [];
const weather = betaZodTool({
  name: "weather",
  description: "Look up the weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  run: ({ city }) => {
    run.push(city);
    return `${city}: clear`;
  },
});
const request = {
  model: process.env.GATEWAY_MODEL,
  max_tokens: 1000,
  messages: [{ role: "user", content: "How is the weather in Berlin?" }],
};
const text = (message) => message.content.map((part) => part.text ?? "").join("");

const tasks = {
  stream: async () => {
    const stream = client.messages.stream(request);
    let streamed = "";
    stream.on("text", (delta) => (streamed += delta));
    const message = await stream.finalMessage();
    return { streamed, text: text(message), reason: message.stop_reason };
  },
  tools: async () => {
    const message = await client.beta.messages.toolRunner({ ...request, tools: [weather] });
    return { text: text(message), reason: message.stop_reason, run };
  },
  tools_stream: async () => {
    const runner = client.beta.messages.toolRunner({ ...request, tools: [weather], stream: true });
    const reasons = [];
    let last;
    for await (const stream of runner) {
      last = await stream.finalMessage();
      reasons.push(last.stop_reason);
    }
    return { text: text(last), reasons, run };
  },
};
console.log(JSON.stringify(await tasks[process.argv[2]]()));

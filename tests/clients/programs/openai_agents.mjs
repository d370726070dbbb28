// One task of the OpenAI Agents SDK: `node openai_agents.mjs TASK API`; prints the outcome as JSON.
import { Agent, OpenAIChatCompletionsModel, run, tool } from "@openai/agents";
import { z } from "zod";
import { model as responses } from "./agents.mjs";
import { client } from "./openai-client.mjs";

const [task, api] = process.argv.slice(2);
const model =
  api === "responses" ? responses : new OpenAIChatCompletionsModel(client, process.env.GATEWAY_MODEL);
const cities = [];
const weather = tool({
  name: "weather",
  description: "Look up the weather of a city.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    cities.push(city);
    return `${city}: clear`;
  },
});
const prompt = "How is the weather in Berlin?";
const settings = { name: "reporter", instructions: "Be brief.", model };

const tasks = {
  tools: async () => {
    const result = await run(new Agent({ ...settings, tools: [weather] }), prompt);
    return { text: result.finalOutput, run: cities };
  },
  stream: async () => {
    const result = await run(new Agent({ ...settings, tools: [weather] }), prompt, { stream: true });
    let streamed = "";
    for await (const piece of result.toTextStream()) streamed += piece;
    await result.completed;
    return { text: result.finalOutput, streamed, run: cities };
  },
  structured: async () => {
    const outputType = z.object({ city: z.string(), people: z.number() });
    return (await run(new Agent({ ...settings, outputType }), prompt)).finalOutput;
  },
};
console.log(JSON.stringify(await tasks[task]()));

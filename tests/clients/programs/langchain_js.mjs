// One task of LangChain: `node langchain_js.mjs TASK`; prints the outcome as JSON.
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";
import { model as documented } from "./langchain.mjs";

const [task, api, method] = process.argv.slice(2);
const model =
  api === "chat" ? documented : new ChatOpenAI({ ...documented.lc_kwargs, useResponsesApi: true });
const run = [];
const weather = tool(
  ({ city }) => {
    run.push(city);
    return `${city}: clear`;
  },
  {
    name: "weather",
    description: "Look up the weather of a city.",
    schema: z.object({ city: z.string() }),
  },
);
const question = new HumanMessage("How is the weather in Berlin?");

const tasks = {
  stream: async () => {
    let text = "";
    for await (const chunk of await model.stream([question])) text += chunk.text;
    return { text };
  },
  tools: async () => {
    const bound = model.bindTools([weather]);
    const messages = [question];
    for (;;) {
      const answer = await bound.invoke(messages);
      messages.push(answer);
      if (!answer.tool_calls?.length) return { text: answer.text, run };
      for (const call of answer.tool_calls) {
        const content = await weather.invoke(call.args);
        messages.push(new ToolMessage({ content, tool_call_id: call.id }));
      }
    }
  },
  structured: async () => {
    const schema = z.object({ city: z.string(), people: z.number() });
    return model.withStructuredOutput(schema, { name: "city", method }).invoke([question]);
  },
};
console.log(JSON.stringify(await tasks[task]()));

// The page of a node: its agent, its jobs, and the charts of the node itself and of a job there.

import { element } from "../shared/text.js";
import { agentText } from "./agent_health.js";
import { get } from "./api.js";
import { isReady, openPage, run } from "./frame.js";
import { jobTable } from "./job_rows.js";
import { nodeCharts } from "./node_charts.js";
import { repeat } from "./repeat.js";

const REFRESH_S = 10;
const PAST_MAX = 25;

run(async () => {
    const { main, user } = await openPage();
    const node = new URLSearchParams(location.search).get("name");
    if (!node) throw new Error("the address has no name of a node");
    document.title = `Node ${node} · Polymeter`;
    const agent = element("p", { className: "state" });
    const running = jobTable("running", "Running jobs");
    const past = jobTable("ended", "Ended jobs");
    const charts = nodeCharts(node, user.sees_all);
    main.append(element("h1", {}, "Node ", element("bdi", {}, node)), agent, running, charts, past);

    const load = async () => {
        const [{ nodes }, now, ended, health] = await Promise.all([
            get("nodes"), get("jobs", { node, state: "running" }), get("jobs", { node, state: "ended", limit: PAST_MAX }),
            user.sees_all ? get("agents", { node }) : { agents: [] },
        ]);
        const found = nodes.find((one) => one.node === node);
        agent.textContent = agentText(health.agents[0], health.now_us, found);
        running.show(now.jobs);
        past.show(ended.jobs);
        await charts.offer([...now.jobs, ...ended.jobs]);
    };
    await load();
    isReady();
    await repeat(REFRESH_S, async () => {
        await load();
        await charts.update();
    }, { isVital: false });
});

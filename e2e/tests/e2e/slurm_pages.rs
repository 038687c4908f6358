//! Two ordinary users of a real Slurm, each with her own browser: one is named by a proxy, the other one has
//! a token. Each follows her job while it runs, changes its sampling, and reads its outcome; of the other job
//! she sees nothing.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use polymeter_e2e::browser::Browser;
use polymeter_e2e::daemons::{Daemon, collector_with};
use polymeter_e2e::site::{Proxy, api_config};
use polymeter_e2e::slurm::{Cluster, OTHER_USER, TAKE_MEMORY, USER, agent_config};
use polymeter_e2e::{Need, TestEnvironment, install, program, require, stored, tests, wait_until};
use polymeter_store::reader::{PlanChangeRow, SeriesScope};
use serde_json::{Value, json};

tests![exclusive two_users_follow_their_jobs_in_the_browser];

const BASELINE: &str =
    "[baseline]\n\"cpu.usage\" = \"1s\"\n\"memory.current\" = \"1s\"\n\"memory.peak\" = \"1s\"\n";

const NO_JOB: i64 = 4_000_000_000;

/// Uses a part of a core until a file exists.
fn busy_until(released: &Path) -> String {
    format!(
        "until [ -e {} ]; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.05; done",
        released.display()
    )
}

struct Fixture {
    cluster: Cluster,
    _collector: Daemon,
    proxy: Proxy,
    polymeter: PathBuf,
    env: TestEnvironment,
}

struct Session {
    user: (u32, u32, &'static str),
    id: String,
    key: i64,
    name: &'static str,
    browser: Browser,
}

impl Fixture {
    fn new() -> Self {
        let env = TestEnvironment::new();
        // Ordinary users run the command, and reach the collector.
        fs::set_permissions(env.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        let polymeter = env.path("polymeter");
        install(program("polymeter").get_program(), &polymeter);
        let (socket, api) = (env.path("control.sock"), env.path("api.sock"));
        let control = format!("control_socket = \"{}\"\n", socket.display());
        // Each of the API's resources is tried several times.
        let more = format!("{control}{}user_requests_per_second = 1000\n", api_config(&api));
        let (collector, endpoint) = collector_with(&env, &env.endpoint(), &more);
        let cluster = Cluster::start(&socket, |node, _| agent_config(node, &endpoint, BASELINE));
        let proxy = Proxy::start(&api);
        Self { cluster, _collector: collector, proxy, polymeter, env }
    }

    /// Submits a job and waits until it is stored. Returns its id and its key.
    fn submit(&self, user: (u32, u32, &str), name: &str, options: &[&str], script: &str) -> (String, i64) {
        let options = [&["-J", name][..], options].concat();
        let id = self.cluster.submit_as(Some((user.0, user.1)), &options, script);
        wait_until(&format!("job {id} has samples"), || self.times_us(&id, "cpu.usage").len() > 2);
        let key = stored::job(&mut self.env.reader(), &id).unwrap().job_key;
        (id, key)
    }

    fn points(&self, id: &str, metric: &str) -> Vec<(i64, f64)> {
        let mut reader = self.env.reader();
        let Some(job) = stored::job(&mut reader, id) else { return Vec::new() };
        let mut samples = stored::samples(&mut reader, SeriesScope::Job(job.job_key));
        samples.remove(&(metric.to_owned(), String::new())).map(|series| series.points).unwrap_or_default()
    }

    fn times_us(&self, id: &str, metric: &str) -> Vec<i64> {
        self.points(id, metric).into_iter().map(|(time_us, _)| time_us).collect()
    }

    /// Finds the stored change of a metric's plan to a period.
    fn change_to(&self, key: i64, metric: &str, period_us: i64) -> Option<PlanChangeRow> {
        let changes = self.env.reader().plan_changes(key).unwrap();
        changes.into_iter().find(|change| change.metric == metric && change.new_period_us == Some(period_us))
    }

    fn token(&self, (uid, gid, _): (u32, u32, &str)) -> String {
        let output = Command::new("setpriv")
            .args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()])
            .arg(&self.polymeter)
            .args(["token", "create", "--scope", "control", "--collector"])
            .arg(self.env.path("control.sock"))
            .current_dir("/")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn signed_in(&self, user: (u32, u32, &str)) -> Browser {
        let mut browser = self.proxy.browser(None);
        browser.open_url(&self.proxy.url(""));
        browser.wait_until("document.querySelector('.sign-in input') !== null");
        let token = json!(self.token(user));
        browser.eval(&format!(
            "document.querySelector('#token').value = {token}; document.querySelector('.sign-in').requestSubmit()"
        ));
        browser.wait_until("document.documentElement.dataset.ready");
        // The browser logs the refusal of the request without a token.
        browser.forget();
        browser
    }

    fn open(&self, session: &mut Session, page: &str) {
        session.browser.open_url(&self.proxy.url(page));
        session.browser.wait_until("document.documentElement.dataset.ready");
    }
}

/// Checks that the overview lists the user's job and no other one, in the table of this class.
fn assert_listed(fixture: &Fixture, session: &mut Session, table: &str) {
    fixture.open(session, "");
    let browser = &mut session.browser;
    let ids = "[...document.querySelectorAll('.jobs tbody th a')].map((link) => link.textContent)";
    browser.wait_until(&format!("{ids}.length > 0"));
    assert_eq!(browser.eval(ids), json!([session.id]), "{}", session.user.2);
    let own = "document.querySelectorAll('.jobs.TABLE tbody tr').length".replace("TABLE", table);
    assert_eq!(browser.eval(&own), 1);
    assert_eq!(browser.eval("document.querySelector('#account bdi').textContent"), session.user.2);
    assert_eq!(browser.eval("document.querySelector('.job-name').textContent"), session.name);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn follow(fixture: &Fixture, session: &mut Session) {
    fixture.open(session, &format!("job?key={}", session.key));
    let browser = &mut session.browser;
    assert_eq!(browser.eval("document.querySelector('h1 bdi').textContent"), session.id);
    assert_eq!(browser.eval("document.querySelector('.verdict').dataset.state"), "running");
    browser.wait_until("Number(document.querySelector('.charts').dataset.live) > 2");
    browser.wait_until(&format!("{} > 0.01", last_value("cores")));
    // With one sample a second the newest point of a gauge is a sample, of which a loaded course has six
    // digits.
    let memory = browser.eval(&last_value("bytes")).as_f64().unwrap();
    wait_until("the value on the page is a stored one", || {
        let points = fixture.points(&session.id, "memory.current");
        points.iter().any(|(_, value)| (value - memory).abs() <= memory * 1e-5)
    });

    browser.wait_until(&format!("{} !== null", period_key("more")));
    let told = "document.querySelector('.told').textContent";
    browser.eval(&format!("{0}.click(); {0}.click()", period_key("more")));
    browser.wait_until(&format!("{told}.includes('cpu.usage every 200ms')"));
    wait_until("the change is stored", || fixture.change_to(session.key, "cpu.usage", 200_000).is_some());
    let change = fixture.change_to(session.key, "cpu.usage", 200_000).unwrap();
    let actor = format!("uid {}", session.user.0);
    assert_eq!((change.cause.as_str(), change.actor.as_deref()), ("lease", Some(actor.as_str())));
    wait_until("the samples are closer", || {
        let times = fixture.times_us(&session.id, "cpu.usage");
        times.windows(2).rev().take(5).filter(|pair| pair[1] - pair[0] < 400_000).count() == 5
    });
    browser.wait_until(&format!("{}.closest('tr').textContent.includes('lease')", period_key("less")));
    browser.eval(&format!("{}.click()", period_key("less")));
    browser.wait_until(&format!("{told}.includes('cpu.usage every 500ms')"));
    wait_until("the change back is stored", || {
        fixture
            .change_to(session.key, "cpu.usage", 500_000)
            .is_some_and(|after| after.time_ns > change.time_ns)
    });
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn period_key(verb: &str) -> String {
    format!("document.querySelector('.keys button[title^=\"Sample cpu.usage {verb} often\"]')")
}

fn last_value(unit: &str) -> String {
    format!(
        "document.querySelector('.charts').data.charts.find((chart) => chart.is_main && chart.unit === '{unit}').whole.lines[1].at(-1)"
    )
}

/// Checks that the user sees nothing of another user's job: on the pages, at its address, and in each
/// resource of the API.
fn assert_hidden(fixture: &Fixture, session: &mut Session, (id, key, name): (&str, i64, &str)) {
    let node = &fixture.cluster.nodes[0];
    for page in ["", "status", &format!("node?name={node}")] {
        fixture.open(session, page);
        let shown = session.browser.eval("document.body.textContent");
        assert!(!shown.as_str().unwrap().contains(name), "{page}: {shown}");
    }
    fixture.open(session, &format!("job?key={key}"));
    let browser = &mut session.browser;
    assert_eq!(browser.eval("document.documentElement.dataset.ready"), "failed");
    let told = browser.eval("document.querySelector('.notice').textContent");
    assert!(told.as_str().unwrap().contains("unknown job"), "{told}");
    let shown = "[document.querySelectorAll('.uplot').length, document.body.textContent.includes('NAME')]";
    assert_eq!(browser.eval(&shown.replace("NAME", name)), json!([0, false]));

    let answers = browser.eval(
        &"(async () => {
            const token = sessionStorage.getItem('polymeter-token');
            const own = token ? { Authorization: `Bearer ${token}` } : {};
            const headers = { ...own, 'Content-Type': 'application/json' };
            const { paths } = await (await fetch('api/openapi.json', { headers: own })).json();
            const answers = [];
            for (const [path, methods] of Object.entries(paths).filter(([path]) => path.includes('{key}'))) {
                for (const method of ['get', 'post'].filter((one) => methods[one])) {
                    const body = path.endsWith('/periods') ? '{\"plan\": {\"cpu.usage\": \"500ms\"}}' : '{}';
                    const ask = async (key) => {
                        const options = method === 'post' ? { method: 'POST', headers, body } : { headers: own };
                        const answer = await fetch(path.slice(1).replace('{key}', key), options);
                        return [answer.status, await answer.text()];
                    };
                    answers.push([`${method} ${path}`, await ask('OTHER'), await ask('NONE')]);
                }
            }
            return answers;
        })()"
            .replace("OTHER", &key.to_string())
            .replace("NONE", &NO_JOB.to_string()),
    );
    let answers = answers.as_array().unwrap();
    assert!(answers.len() > 12, "{answers:?}");
    for answer in answers {
        assert_eq!(answer[1][0], 404, "{answer}");
        assert_eq!(answer[1], answer[2], "it is refused as a job that does not exist");
    }
    let lists = browser.eval(
        &"(async () => {
            const token = sessionStorage.getItem('polymeter-token');
            const headers = token ? { Authorization: `Bearer ${token}` } : {};
            const text = async (path) => (await fetch(path, { headers })).text();
            return [await text('api/v1/jobs'), await text('api/v1/jobs?id=ID'), await text('metrics?job_id=ID'), await text('api/v1/nodes')];
        })()"
            .replace("ID", id),
    );
    for list in lists.as_array().unwrap() {
        let list = list.as_str().unwrap();
        assert!(!list.contains(name) && !list.contains(&format!("\"{id}\"")), "{list}");
    }
}

/// Checks that the page of the ended job has its state, its charts and its findings, and returns these.
fn assert_ended(fixture: &Fixture, session: &mut Session, state: &str) -> Value {
    wait_until(&format!("job {} is stored as {state}", session.id), || {
        stored::job(&mut fixture.env.reader(), &session.id)
            .is_some_and(|row| row.state.as_deref().is_some_and(|known| state.starts_with(known)))
    });
    fixture.open(session, &format!("job?key={}", session.key));
    let browser = &mut session.browser;
    browser.wait_until("document.documentElement.dataset.complete");
    let shown = browser.eval("document.querySelector('.verdict').dataset.state");
    assert!(shown.as_str().unwrap().starts_with(state), "{shown}");
    browser.wait_until("Number(document.querySelector('.charts').dataset.loaded) > 0");
    assert_eq!(browser.eval("document.querySelectorAll('.keys button').length"), 0);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    browser.eval("document.querySelector('#findings').parentElement.textContent")
}

fn two_users_follow_their_jobs_in_the_browser() {
    require(&[Need::Root, Need::Slurm, Need::Chromium]);
    let fixture = Fixture::new();
    let released = fixture.env.path("released");
    let over_limit = format!("{}; {TAKE_MEMORY}", busy_until(&released));
    let failing = format!("{}; exit 3", busy_until(&released));
    let (first, second) = ("simulation-of-games", "analysis-of-man");
    let (first_id, first_key) = fixture.submit(USER, first, &["--mem=30"], &over_limit);
    let (second_id, second_key) = fixture.submit(OTHER_USER, second, &["--mem=30"], &failing);
    let jobs = [(first_id, first_key, first), (second_id, second_key, second)];
    let browsers = [fixture.proxy.open(USER.2, ""), fixture.signed_in(OTHER_USER)];
    let mut sessions: Vec<Session> = [USER, OTHER_USER]
        .into_iter()
        .zip(jobs.clone())
        .zip(browsers)
        .map(|((user, (id, key, name)), browser)| Session { user, id, key, name, browser })
        .collect();
    let others = [&jobs[1], &jobs[0]];

    for (session, (id, key, name)) in sessions.iter_mut().zip(others) {
        assert_listed(&fixture, session, "running");
        assert_hidden(&fixture, session, (id.as_str(), *key, *name));
        // Also the browser logs the refusals.
        session.browser.forget();
        follow(&fixture, session);
    }
    File::create(&released).unwrap();
    for session in &mut sessions {
        // The page that is open tells of the end.
        session.browser.wait_until("document.querySelector('#notices').textContent.includes('has ended')");
    }
    let out_of_memory = "The job ran out of memory";
    for ((session, (id, key, name)), state) in
        sessions.iter_mut().zip(others).zip(["OUT_OF_MEMORY", "FAILED, exit 3"])
    {
        let findings = assert_ended(&fixture, session, state);
        let is_found = findings.as_str().unwrap().contains(out_of_memory);
        assert_eq!(is_found, state == "OUT_OF_MEMORY", "{findings}");
        assert_listed(&fixture, session, "ended");
        let cell = "document.querySelector('.jobs.ended td.findings-cell')";
        session.browser.wait_until(&format!("{cell} !== null && {cell}.textContent !== ''"));
        let shown = session.browser.eval(&format!("{cell}.textContent"));
        assert_eq!(shown.as_str().unwrap().contains(out_of_memory), is_found, "{shown}");
        assert_hidden(&fixture, session, (id.as_str(), *key, *name));
        fixture.proxy.assert_own_requests(&mut session.browser);
    }
    drop(fixture.cluster);
}

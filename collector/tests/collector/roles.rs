//! Tests of the roles: managers read the jobs of their accounts as the owners do, support staff read all, and
//! neither changes anything. To everyone else these jobs do not exist.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use polymeter_collector::roles::RolesConfig;
use polymeter_proto::control::{ReadAccess, Scope};
use polymeter_proto::read::{JobFilter, Query, RowBlock};
use polymeter_service::users::uid_of;
use serde_json::json;

use crate::api::{get, key, parts_of_a_job, request};
use crate::api_tokens::{create, jobs, with_token};
use crate::reading::{Fixture, USERS, queries, stored};
use crate::support::events::Client;
use crate::support::http::Request;
use crate::support::reading::ReadClient;
use crate::support::{TestEnvironment, wait_until};

/// Each test runs with a store of each kind of rights. The database has roles of its own.
pub(crate) const TESTS: &[polymeter_test_harness::Test] = &[
    scenarios!(@one "sqlite", Sqlite, roles_read_jobs_through_sessions),
    scenarios!(@one "postgres", Postgres, roles_read_jobs_through_sessions),
    scenarios!(@one "sqlite", Sqlite, roles_read_jobs_over_http),
    scenarios!(@one "postgres", Postgres, a_database_knows_the_managers),
];

/// Users of every Debian: the manager of one account, that of two, by a group, and the support staff.
const MANAGERS: [&str; 2] = ["games", "mail"];
const SUPPORT: &str = "news";

/// User with a job in an account without managers, one whose job is in an account with a similar name, and
/// one without a job.
const OTHERS: [u32; 3] = [64_004, 64_005, 64_006];

/// Accounts of the jobs `1` to `5`. Job 3 has no owner.
const ACCOUNTS: [&str; 5] = ["chem", "bio", "chem", "geo", "chem2"];

fn config() -> RolesConfig {
    let entries = ["chem|games", "bio|@mail,no.such", "geology|mail"];
    RolesConfig {
        support: vec![SUPPORT.to_owned()],
        managers: entries.map(|entry| entry.parse().unwrap()).into(),
        ..RolesConfig::default()
    }
}

/// Starts a collector with five jobs. Returns the ids of the jobs that each user sees; all for support staff.
fn fixture(environment: &mut TestEnvironment) -> (Fixture, HashMap<u32, Vec<&'static str>>) {
    let fixture = Fixture::with(environment, |config| config.roles = self::config());
    for (id, uid) in ["4", "5"].into_iter().zip(OTHERS) {
        environment.execute(&format!(
            "INSERT INTO job (job_id, owner_uid, started) SELECT '{id}', {uid}, started FROM job WHERE job_id = '1'"
        ));
        environment.execute(&format!(
            "INSERT INTO job_node (job_key, node, started) SELECT job_key, 'n1', started FROM job WHERE job_id = '{id}'"
        ));
    }
    for (account, id) in ACCOUNTS.iter().zip(1..) {
        environment.execute(&format!("UPDATE job SET account = '{account}' WHERE job_id = '{id}'"));
    }
    let uid = |name| uid_of(name).unwrap();
    let seen = [
        (USERS[0], vec!["1"]),
        (USERS[1], vec!["2"]),
        (OTHERS[0], vec!["4"]),
        (OTHERS[1], vec!["5"]),
        (OTHERS[2], vec![]),
        (uid(MANAGERS[0]), vec!["1", "3"]),
        (uid(MANAGERS[1]), vec!["2"]),
        (uid(SUPPORT), vec!["1", "2", "3", "4", "5"]),
    ];
    (fixture, seen.into_iter().collect())
}

fn list_jobs(client: &mut ReadClient, filter: JobFilter) -> Vec<String> {
    let blocks = client.ask(&Query::Jobs(Box::new(JobFilter { limit: 10, ..filter }))).0;
    let rows = blocks.into_iter().flat_map(|block| match block {
        RowBlock::Jobs(rows) => rows,
        other => panic!("{other:?}"),
    });
    let mut found: Vec<String> = rows.map(|job| job.job_id).collect();
    found.sort();
    found
}

fn roles_read_jobs_through_sessions(environment: &mut TestEnvironment) {
    let (fixture, seen) = fixture(environment);
    let jobs = stored(environment);
    let support = uid_of(SUPPORT).unwrap();
    let mut root = fixture.client(0);
    let of_owners: HashMap<i64, Vec<Vec<u8>>> = jobs
        .iter()
        .filter_map(|(job, series)| {
            let mut owner = fixture.client(u32::try_from(job.owner_uid?).unwrap());
            let queries = queries(job.job_key, &job.job_id, series);
            Some((job.job_key, queries.iter().map(|query| owner.ask(query).1).collect()))
        })
        .collect();
    assert_eq!(of_owners.len(), 4, "job 3 has no owner");
    for (uid, ids) in seen {
        let mut client = fixture.client(uid);
        let access = if uid == support { ReadAccess::All } else { ReadAccess::Own };
        assert_eq!(client.access, access);
        for (job, series) in &jobs {
            let of_job = queries(job.job_key, &job.job_id, series);
            let of_none = queries(99, "9", series);
            for (position, (query, missing)) in of_job.iter().zip(&of_none).enumerate() {
                let bytes = client.ask(query).1;
                let place = format!("{uid}, job {}: {query:?}", job.job_id);
                if uid == support {
                    assert_eq!(bytes, root.ask(query).1, "{place}");
                } else if query.name() == "candidate_ids" {
                    let RowBlock::JobIds(mut found) =
                        client.ask(query).0.pop().unwrap_or(RowBlock::JobIds(vec![]))
                    else {
                        panic!("{place}")
                    };
                    found.sort();
                    let others = ids.iter().filter(|id| **id != job.job_id);
                    assert!(others.eq(found.iter().filter(|id| **id != job.job_id)), "{place}: {found:?}");
                } else if ids.contains(&job.job_id.as_str()) {
                    let of_owner = of_owners.get(&job.job_key).and_then(|answers| answers.get(position));
                    assert!(of_owner.is_none_or(|of_owner| *of_owner == bytes), "{place}");
                } else {
                    assert_eq!(bytes, client.ask(missing).1, "{place}");
                }
            }
        }
        assert_eq!(list_jobs(&mut client, JobFilter::default()), ids, "{uid}");
        for (id, account) in (1..).zip(ACCOUNTS) {
            let filter = JobFilter { account: Some(account.to_owned()), ..JobFilter::default() };
            let found = list_jobs(&mut client, filter);
            let is_seen = ids.contains(&id.to_string().as_str());
            assert_eq!(found.contains(&id.to_string()), is_seen, "{uid}: {account}");
            assert!(found.iter().all(|id| ids.contains(&id.as_str())), "{uid}: {account}: {found:?}");
        }
    }
    fixture.collector.stop().unwrap();
}

fn jobs_on_node(api: &Path, uid: u32) -> BTreeSet<String> {
    let jobs = get(uid, api, "/api/v1/nodes").json()["nodes"][0]["jobs"].take();
    jobs.as_array().unwrap().iter().map(|job| job.as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
}

fn roles_read_jobs_over_http(environment: &mut TestEnvironment) {
    let (fixture, seen) = fixture(environment);
    let api = &fixture.api;
    let [games, mail, support] = [MANAGERS[0], MANAGERS[1], SUPPORT].map(|name| uid_of(name).unwrap());
    // First, since jobs leave the node when its agent is silent for long.
    assert!(
        jobs_on_node(api, games).iter().eq(["1", "3"])
            && jobs_on_node(api, support).iter().eq(["1", "2", "3"])
    );
    assert_eq!(get(OTHERS[2], api, "/api/v1/nodes").json()["nodes"], json!([]));
    let owners = [("1", USERS[0]), ("2", USERS[1]), ("4", OTHERS[0]), ("5", OTHERS[1])];
    let keys: HashMap<&str, i64> =
        ["1", "2", "3", "4", "5"].into_iter().map(|id| (id, key(&fixture, id))).collect();
    // As early: a job ends minutes after its agent was heard last.
    for (uid, ids) in &seen {
        for (id, _) in owners.iter().filter(|(id, _)| ids.contains(id)) {
            let path = format!("/api/v1/jobs/{}/live", keys[id]);
            assert_eq!(Client::open(*uid, api, &path).status, 200, "{uid} {path}");
        }
    }
    for (uid, ids) in &seen {
        let list = get(*uid, api, "/api/v1/jobs").json();
        let listed = list["jobs"].as_array().unwrap().len();
        assert_eq!(listed, ids.len(), "{uid}: {list}");
        for part in parts_of_a_job(&fixture) {
            let query = match part.as_str() {
                "/samples" => "?until_us=4000000000000000",
                "/course" => "?metric=cpu.usage&until_us=4000000000000000",
                _ => "",
            };
            let path = |key: i64| format!("/api/v1/jobs/{key}{part}{query}");
            let unknown = get(*uid, api, &path(i64::MAX));
            for (id, owner) in owners {
                let key = keys[id];
                if !ids.contains(&id) {
                    let hidden = get(*uid, api, &path(key));
                    assert_eq!((hidden.status, &hidden.bytes), (404, &unknown.bytes), "{uid} {id}{part}");
                } else if !["/plan", "/sampling", "/live"].contains(&part.as_str()) {
                    let (own, theirs) = (get(owner, api, &path(key)), get(*uid, api, &path(key)));
                    assert_eq!((theirs.status, &theirs.bytes), (own.status, &own.bytes), "{uid} {id}{part}");
                    // Two of the jobs have no series.
                    assert!(own.status == 200 || ["4", "5"].contains(&id), "{uid} {id}{part}: {own:?}");
                }
            }
        }
        // Kwollect's query. Without samples there is no job, either.
        for id in ["1", "2"] {
            let of = |id: &str| get(*uid, api, &format!("/metrics?job_id={id}"));
            let is_seen = ids.contains(&id) || *uid == support;
            assert_eq!(of(id).bytes != of("9").bytes, is_seen, "{uid} {id}");
        }
    }
    // A manager learns the plan that is stored: agents answer the owner.
    for uid in [games, support] {
        let sampling = get(uid, api, &format!("/api/v1/jobs/{}/sampling", keys["1"]));
        assert_eq!(sampling.status, 200, "{sampling:?}");
    }
    assert_roles_are_told(&fixture, [games, mail, support]);
    // They change nothing: a job of others is not theirs.
    for (verb, body) in [("reset", "{}"), ("periods", r#"{"plan":{"cpu.usage":"1s"}}"#)] {
        let path = format!("/api/v1/jobs/{}/{verb}", keys["1"]);
        for uid in [games, mail, support] {
            assert_eq!(request(uid, api, "POST", &path, Some(body)).status, 404, "{uid}");
        }
        assert_ne!(request(USERS[0], api, "POST", &path, Some(body)).status, 404);
    }
    assert_tokens(&fixture, games, support);
    fixture.collector.stop().unwrap();
}

/// Each user is told the role, and support staff read the nodes.
fn assert_roles_are_told(fixture: &Fixture, [games, mail, support]: [u32; 3]) {
    let api = &fixture.api;
    for (uid, role, accounts, sees_all) in [
        (games, "manager", json!(["chem"]), false),
        (mail, "manager", json!(["bio", "geology"]), false),
        (support, "support", json!([]), true),
        (USERS[0], "user", json!([]), false),
        (0, "administrator", json!([]), true),
    ] {
        let me = get(uid, api, "/api/v1/whoami").json();
        assert_eq!(
            (&me["role"], &me["accounts"], &me["sees_all"], &me["is_administrator"]),
            (&json!(role), &accounts, &json!(sees_all), &json!(uid == 0))
        );
        let nodes = get(uid, api, "/api/v1/nodes/n1/series");
        assert_eq!(nodes.status, if sees_all { 200 } else { 403 }, "{role}");
        let agents = get(uid, api, "/api/v1/agents").json();
        assert_eq!(agents["agents"].as_array().unwrap().len(), usize::from(sees_all), "{role}");
    }
}

/// A token reads own jobs, or all that its user may read, and has no more rights than these.
fn assert_tokens(fixture: &Fixture, manager: u32, support: u32) {
    let (api, control) = (&fixture.api, &fixture.socket);
    for (uid, seen) in [(manager, &["1", "3"][..]), (support, &["1", "2", "3", "4", "5"]), (USERS[0], &["1"])]
    {
        let token = create(uid, control, Scope::ReadAll).unwrap();
        assert_eq!(jobs(api, &token), seen, "{uid}");
        let reset = Request { method: "POST", target: "/api/v1/jobs/1/reset", headers: "", body: Some("{}") };
        assert_eq!(with_token(api, &token, &reset).status, 403, "{uid}");
        let own = create(uid, control, Scope::Read).unwrap();
        assert_eq!(jobs(api, &own).len(), usize::from(uid == USERS[0]), "{uid}");
        assert_eq!(create(uid, control, Scope::Admin).unwrap_err().code, "forbidden");
    }
}

/// The managers of the configuration are in the database, also after a reload.
fn a_database_knows_the_managers(environment: &mut TestEnvironment) {
    let mut config = environment.config();
    config.roles = self::config();
    let collector = polymeter_collector::Collector::start(&config, &environment.context).unwrap();
    let select = "SELECT account || ' ' || manager FROM account_manager ORDER BY 1";
    let is = |environment: &mut TestEnvironment, expected: &[&str]| {
        wait_until("the managers are stored", || environment.lines(select) == expected);
    };
    // The primary members of a group are not in its list.
    is(environment, &["bio no.such", "chem games", "geology mail"]);
    config.roles.managers = vec!["chem|games,mail".parse().unwrap()];
    assert!(collector.reload(&config).is_empty(), "the change needs no restart");
    is(environment, &["chem games", "chem mail"]);
    config.roles.managers.clear();
    collector.reload(&config);
    is(environment, &[]);
    collector.stop().unwrap();
}

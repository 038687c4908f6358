//! The jobs of a store, as the pages list them.

use std::error::Error;

use polymeter_e2e::browser::Browser;
use polymeter_e2e::site::Proxy;
use serde_json::Value;

/// User in whose name the pages are opened: an administrator, whom every Debian has.
pub(crate) const USER: &str = "daemon";

pub(crate) fn page(job: &Value) -> String {
    format!("job?key={}", job.get("key").and_then(Value::as_i64).unwrap_or_default())
}

/// Finds the job with an id, or the one with the most nodes.
pub(crate) fn job(proxy: &Proxy, id: Option<&str>) -> Result<Value, Box<dyn Error>> {
    let query = id.map_or_else(String::new, |id| format!("?id={id}"));
    jobs(&mut proxy.open(USER, ""), &query)
        .into_iter()
        .max_by_key(|job| job["nodes"].as_array().map_or(0, Vec::len))
        .ok_or_else(|| "the store has no such job".into())
}

/// Lists the jobs that a query selects, as a page asks for them.
pub(crate) fn jobs(browser: &mut Browser, query: &str) -> Vec<Value> {
    let jobs = browser.eval(&format!(
        "fetch('api/v1/jobs{query}').then((answer) => answer.json()).then((answer) => answer.jobs)"
    ));
    jobs.as_array().cloned().unwrap_or_default()
}

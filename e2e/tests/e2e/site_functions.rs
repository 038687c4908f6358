//! The functions of a job on its page: of a range, of a process, and the differences of two choices and of
//! two jobs, with the keyboard, in narrow windows and in each colour scheme.

use polymeter_e2e::accessibility::assert_suits_all_windows;
use polymeter_e2e::browser::Browser;
use polymeter_e2e::{stored, tests, wait_until};

use crate::site_fixture::{Ended, OWNER, assert_calm};

tests![functions_are_shown_by_range_and_process_and_compared];

/// Adds another job of the same length. Then adds call stacks to the first half of each job, of the process
/// 42, and to the second half of the first job, of the process 43.
const STACKS: &str = "
    INSERT INTO job (job_id, owner, owner_uid, name, state, cores, started, ended)
        SELECT 'other', owner, owner_uid, name, state, cores, started - 1000000000, ended - 1000000000 FROM job;
    INSERT INTO job_node (job_key, node, started, ended)
        SELECT job_key, 'n1', started, ended FROM job WHERE job_id = 'other';
    CREATE TEMP TABLE part AS SELECT job_key, started + (ended - started) / 4 AS at, 1 AS part FROM job
    UNION ALL SELECT job_key, started + (ended - started) / 4 * 3, 2 FROM job;
    INSERT INTO stack_function SELECT job_key, id, called, 'a.out' FROM job, (
        SELECT 1 AS id, 'main' AS called UNION ALL SELECT 2, 'solve' UNION ALL SELECT 3, '<b>output');
    INSERT INTO stack_node SELECT job_key, id, parent, id FROM job, (
        SELECT 1 AS id, NULL AS parent UNION ALL SELECT 2, 1 UNION ALL SELECT 3, 1);
    INSERT INTO stack_interval SELECT job_key, at, part, 'n1', 'stacks.cpu', 1000, 10000, 100, 0, 0, 0, 0 FROM part;
    INSERT INTO stack_sample SELECT job_key, at, part, 41 + part, id, count FROM part JOIN (
        SELECT 1 AS part, 1 AS id, 10 AS count UNION ALL SELECT 1, 2, 90 UNION ALL SELECT 2, 2, 20
        UNION ALL SELECT 2, 3, 80) USING (part);
    DELETE FROM stack_sample WHERE process = 43 AND job_key = (SELECT job_key FROM job WHERE job_id = 'other');
    DROP TABLE part;";

fn figure(browser: &mut Browser, function: &str, column: &str) -> f64 {
    let script = format!(
        "(() => {{ const heads = [...document.querySelectorAll('.flame-table thead th')].map((head) => head.textContent); \
         const row = [...document.querySelectorAll('.flame-table tbody tr')].find((row) => \
         row.querySelector('bdi').textContent === '{function}'); const column = heads.indexOf('{column}'); \
         return row && column >= 0 ? parseFloat(row.children[column].textContent.replace('−', '-')) : -1000; }})()"
    );
    browser.eval(&script).as_f64().unwrap()
}

fn wait_for(browser: &mut Browser, function: &str, column: &str, expected: f64) {
    wait_until(&format!("{function} has {expected} as {column}"), || {
        (figure(browser, function, column) - expected).abs() < 0.1
    });
}

fn press(browser: &mut Browser, button: &str) {
    browser.eval(&format!(
        "[...document.querySelectorAll('button')].find((button) => button.textContent === '{button}').focus()"
    ));
    browser.enter();
}

fn choose_process(browser: &mut Browser, process: &str) {
    browser.eval(&format!(
        "(() => {{ const choice = document.querySelector('select[aria-label=\"Process\"]'); choice.value = '{process}'; \
         choice.dispatchEvent(new Event('change')); }})()"
    ));
}

fn functions_are_shown_by_range_and_process_and_compared() {
    let site = Ended::with("job", |store| store.execute_batch(STACKS).unwrap());
    let pages = site.pages();
    let page = pages.iter().find(|page| page.starts_with("job")).unwrap();
    let mut browser = site.proxy.open(OWNER.0, page);
    wait_for(&mut browser, "solve", "Itself", 55.0);
    assert!((figure(&mut browser, "<b>output", "Itself") - 40.0).abs() < 0.1);

    // A process, against all.
    press(&mut browser, "Compare with this");
    choose_process(&mut browser, "43 on n1");
    wait_for(&mut browser, "solve", "After", 20.0);
    assert!((figure(&mut browser, "solve", "Before") - 55.0).abs() < 0.1);
    assert!((figure(&mut browser, "solve", "Change") + 35.0).abs() < 0.1);
    assert_suits_all_windows(&mut browser);
    press(&mut browser, "Stop comparing");
    wait_for(&mut browser, "solve", "Itself", 20.0);

    // The second half by the keys of a chart, and the whole against it.
    choose_process(&mut browser, "");
    browser.eval("document.querySelector('.chart .plot').focus()");
    browser.key("+");
    browser.wait_until("document.querySelector('.range').textContent !== ''");
    for _ in 0..8 {
        browser.key("ArrowRight");
    }
    wait_for(&mut browser, "<b>output", "Itself", 80.0);
    press(&mut browser, "Compare with this");
    browser.eval("document.querySelector('.chart .plot').focus()");
    browser.key("0");
    wait_for(&mut browser, "<b>output", "Before", 80.0);
    wait_for(&mut browser, "<b>output", "After", 40.0);

    let key = page.split_once('=').unwrap().1;
    let mut reader = site.env.reader();
    let other = stored::job(&mut reader, "other").unwrap().job_key;
    browser.open_url(&site.proxy.url(&format!("compare?a={other}&b={key}")));
    wait_for(&mut browser, "solve", "Before", 90.0);
    assert!((figure(&mut browser, "solve", "Change") + 35.0).abs() < 0.1);
    browser.wait_until("document.documentElement.dataset.complete");
    assert_calm(&site.proxy, &mut browser);
}

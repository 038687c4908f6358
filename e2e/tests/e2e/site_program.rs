//! The regions and the roofline of a job on its page, in narrow windows and in each colour scheme.

use polymeter_e2e::accessibility::assert_suits_all_windows;
use polymeter_e2e::tests;

use crate::site_fixture::{Ended, OWNER, assert_calm};

tests![regions_and_the_roofline_are_on_the_page_of_the_job];

/// Adds to the first node of the job its roofs, a region, and counters: 3.2 G floating-point operations, and
/// 5 M commands of the memory, of 64 bytes each.
const PROGRAM: &str = r#"
    UPDATE session SET roof_memory_bytes_per_s = 1000000000000, roof_double_flop_per_s = 100000000000000,
        roof_single_flop_per_s = 200000000000000;
    INSERT OR IGNORE INTO metric (metric, unit, kind) VALUES ('perf.event.fp_ret_sse_avx_ops.all', 'count', 'counter'),
        ('region.entries', 'count', 'counter'), ('region.time', 'nanoseconds', 'counter'),
        ('region.self_time', 'nanoseconds', 'counter'), ('region.threads', 'count', 'gauge'),
        ('node.pmu.amd_umc.umc_cas_cmd.rd', 'count', 'counter'), ('node.pmu.amd_umc.umc_cas_cmd.wr', 'count', 'counter');
    CREATE TEMP TABLE added AS SELECT 9000 AS shape_id, 0 AS position, 'perf.event.fp_ret_sse_avx_ops.all' AS metric, '{}' AS labels, 3.2e9 AS total
    UNION ALL SELECT 9000, 1, 'region.entries', '{"process": "7", "rank": "0", "region": "<b>solve"}', 1000
    UNION ALL SELECT 9000, 2, 'region.time', '{"process": "7", "rank": "0", "region": "<b>solve"}', 2e8
    UNION ALL SELECT 9000, 3, 'region.self_time', '{"process": "7", "rank": "0", "region": "<b>solve"}', 1.5e8
    UNION ALL SELECT 9000, 4, 'region.threads', '{"process": "7", "rank": "0", "region": "<b>solve"}', 1
    UNION ALL SELECT 9001, 0, 'node.pmu.amd_umc.umc_cas_cmd.rd', '{"cpu": "0"}', 4e6
    UNION ALL SELECT 9001, 1, 'node.pmu.amd_umc.umc_cas_cmd.wr', '{"cpu": "0"}', 1e6;
    INSERT INTO series_shape (shape_id, digest) VALUES (9000, 'of the job'), (9001, 'of the node');
    INSERT INTO series_shape_member (shape_id, position, metric, labels) SELECT shape_id, position, metric, labels FROM added;
    INSERT INTO series_block (first_id, shape_id, job_key, node, job_id)
        SELECT 9000000, 9000, job_key, node, job_id FROM job JOIN job_node USING (job_key) WHERE session_id IS NOT NULL
        UNION ALL SELECT 9001000, 9001, NULL, node, NULL FROM job_node WHERE session_id IS NOT NULL;
    INSERT INTO samples (time, series_id, value)
        SELECT started + (ended - started) * part / 5, first_id + position, total * part / 4.0
        FROM job_node, (SELECT 0 AS part UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4), added
        JOIN series_block USING (shape_id) WHERE session_id IS NOT NULL;
    DROP TABLE added;"#;

fn regions_and_the_roofline_are_on_the_page_of_the_job() {
    let site = Ended::with("job", |store| store.execute_batch(PROGRAM).unwrap());
    let pages = site.pages();
    let page = pages.iter().find(|page| page.starts_with("job")).unwrap();
    let mut browser = site.proxy.open(OWNER.0, page);
    browser.wait_until("document.querySelector('svg.roofline circle') !== null");
    // 3.2e9 operations / (5e6 commands of 64 bytes).
    for (heading, column, expected) in [
        ("roofline", "Phase", "1 (whole job)"),
        ("roofline", "FLOP/byte", "10"),
        ("roofline", "Bound by", "memory"),
        ("regions", "Region", "<b>solve"),
        ("regions", "Entries", "1000"),
        ("regions", "Time", "200 ms"),
        ("regions", "Self", "150 ms"),
    ] {
        let cell = format!(
            "(() => {{ const table = document.querySelector('table[aria-labelledby=\"{heading}\"]'); \
             const heads = [...table.querySelectorAll('thead th')].map((head) => head.textContent); \
             return table.querySelector('tbody tr').children[heads.indexOf('{column}')].textContent; }})()"
        );
        let shown = browser.eval(&cell);
        // Ten within the accuracy of the counters' times.
        assert_eq!(
            shown.as_str().map(|text| text.strip_suffix(".0").unwrap_or(text)),
            Some(expected),
            "{column}"
        );
    }
    assert_eq!(browser.eval("document.querySelectorAll('svg.roofline circle').length"), 1);
    // The point lies under the roofs, and within the picture.
    let is_under = "(() => { const box = (of) => document.querySelector(of).getBoundingClientRect(); \
         const [point, roof, all] = [box('svg.roofline circle'), box('svg.roofline .roof'), box('svg.roofline')]; \
         return point.top > roof.top && point.left > all.left && point.right < all.right && point.bottom < all.bottom; })()";
    assert_eq!(browser.eval(is_under), true);
    assert_suits_all_windows(&mut browser);
    assert_calm(&site.proxy, &mut browser);
}

//! The accessibility of a page in the browser: its tree as screen readers get it, its computed colours, and
//! its order of focus.

use serde_json::{Value, json};

use crate::browser::Browser;

/// Checks of computed styles and references, run in the page.
const STYLES: &str = include_str!("accessibility.js");

/// Roles of elements that a user operates, and of pictures.
const NAMED: [&str; 14] = [
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "checkbox",
    "radio",
    "slider",
    "listbox",
    "image",
    "img",
    "DisclosureTriangle",
    "region",
    "navigation",
];

#[derive(Debug)]
pub struct Tree(Vec<Value>);

impl Tree {
    pub fn of(browser: &mut Browser) -> Self {
        let mut answer = browser.call("Accessibility.getFullAXTree", json!({}));
        let nodes = answer["nodes"].take();
        let nodes = nodes.as_array().cloned().unwrap_or_default();
        Self(nodes.into_iter().filter(|node| node["ignored"] == false).collect())
    }

    pub fn of_role<'a>(&'a self, role: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |node| role_of(node) == role)
    }

    pub fn levels(&self) -> Vec<u64> {
        self.of_role("heading")
            .filter_map(|node| {
                let properties = node["properties"].as_array()?;
                properties.iter().find(|property| property["name"] == "level")?["value"]["value"].as_u64()
            })
            .collect()
    }

    /// Finds controls without a name, skipped levels of headings and missing landmarks.
    pub fn faults(&self) -> Vec<String> {
        let unnamed =
            self.0.iter().filter(|node| NAMED.contains(&role_of(node)) && name_of(node).trim().is_empty());
        let mut faults: Vec<String> = unnamed.map(|node| format!("no name: {node}")).collect();
        let levels = self.levels();
        if levels.first() != Some(&1) || levels.iter().filter(|level| **level == 1).count() != 1 {
            faults.push(format!("not one first heading: {levels:?}"));
        }
        if levels.windows(2).any(|pair| pair[1] > pair[0] + 1) {
            faults.push(format!("levels of headings are left out: {levels:?}"));
        }
        for landmark in ["main", "banner", "navigation"] {
            let count = self.of_role(landmark).count();
            if count != 1 {
                faults.push(format!("{count} landmarks {landmark}"));
            }
        }
        faults
    }
}

fn role_of(node: &Value) -> &str {
    node["role"]["value"].as_str().unwrap_or_default()
}

pub fn name_of(node: &Value) -> &str {
    node["name"]["value"].as_str().unwrap_or_default()
}

/// Checks a page in wide and narrow windows and in both colour schemes: it has no faults and is no wider than
/// its window.
pub fn assert_suits_all_windows(browser: &mut Browser) {
    for scheme in ["light", "dark"] {
        browser.set_media(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]);
        for width in [1280, 400] {
            browser.resize(width, 900);
            browser.wait_until(&format!("innerWidth === {width}"));
            assert_eq!(faults(browser), Vec::<String>::new(), "{scheme}, {width} px");
            let fits = "document.documentElement.scrollWidth <= innerWidth";
            assert_eq!(browser.eval(fits), true, "{scheme}, {width} px");
        }
    }
}

/// Finds the faults of the open page, in its tree and its computed styles.
pub fn faults(browser: &mut Browser) -> Vec<String> {
    let mut faults = Tree::of(browser).faults();
    let styles = browser.eval(&format!("({STYLES})()"));
    faults.extend(styles.as_array().unwrap().iter().map(|fault| fault.as_str().unwrap().to_owned()));
    faults
}

/// Finds charts without a name, or without tables of figures that are filled when they are opened.
pub fn chart_faults(browser: &mut Browser) -> Vec<String> {
    let found = browser.eval(
        "[...document.querySelectorAll('.plot')].map((plot) => { \
             const tables = document.getElementById(plot.getAttribute('aria-details') ?? ''); \
             if (tables && !tables.open) tables.open = true; \
             return [plot.getAttribute('role'), plot.getAttribute('aria-label') ?? '', Boolean(tables)]; })",
    );
    let found = found.as_array().unwrap();
    let mut faults: Vec<String> = found
        .iter()
        .filter(|chart| chart[0] != "img" || chart[1].as_str() == Some("") || chart[2] != true)
        .map(|chart| format!("a chart without alternative: {chart}"))
        .collect();
    if found.is_empty() {
        faults.push("no charts".to_owned());
    }
    // The tables are filled after their values are loaded.
    browser.wait_until("document.querySelectorAll('.figures[open] table').length >= 2");
    let titles = browser.eval(
        "[...document.querySelectorAll('.grid .chart:not([id$=heat-map]) h3')].map((title) => title.firstChild.textContent.trim()) \
             .filter((title) => ![...document.querySelectorAll('.figures tbody th')].some((head) => head.textContent === title))",
    );
    faults.extend(titles.as_array().unwrap().iter().map(|title| format!("no figures of {title} in a table")));
    faults
}

/// Moves the focus with the Tab key through the whole page. Finds elements without a visible focus, elements
/// that come before their predecessor in the document, and controls that are not reached. One tab of a list
/// stands for the others, which the arrow keys reach.
pub fn focus_faults(browser: &mut Browser) -> Vec<String> {
    browser.eval("(() => { document.activeElement?.blur(); scrollTo(0, 0); window.focusSteps = []; })()");
    let mut faults = Vec::new();
    let limit = browser
        .eval("document.querySelectorAll('a[href], button, input, select, summary, [tabindex]').length");
    for step in 0..=limit.as_u64().unwrap() {
        browser.tab();
        let at = browser.eval(
            "(() => { const at = document.activeElement; const last = window.focusSteps.at(-1); window.focusSteps.push(at); \
                 if (at === document.body || window.focusSteps.indexOf(at) < window.focusSteps.length - 1) return null; \
                 const style = getComputedStyle(at); \
                 const isVisible = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2; \
                 const isAfter = !last || last === document.body || Boolean(last.compareDocumentPosition(at) & 4); \
                 return [isVisible, isAfter, at.outerHTML.slice(0, 120)]; })()",
        );
        if at.is_null() {
            // The focus has left the page.
            if step == 0 {
                faults.push("nothing has the focus".to_owned());
            }
            break;
        }
        if at[0] != true || at[1] != true {
            faults.push(format!("the focus is invisible or out of order: {at}"));
        }
    }
    let missed = browser.eval(
        "[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')] \
             .filter((element) => !element.disabled && element.checkVisibility() && !window.focusSteps.includes(element)) \
             .filter((element) => !element.matches('[role=tab]') || ![...element.parentElement.children].some((tab) => window.focusSteps.includes(tab))) \
             .map((element) => element.outerHTML.slice(0, 120))",
    );
    let missed = missed.as_array().unwrap();
    faults.extend(missed.iter().map(|element| format!("the Tab key does not reach {element}")));
    faults
}

//! A report as one page of HTML, which needs no network.
//!
//! Headline, meters, findings and tables are static. Charts are drawn by the script from the data in the
//! page. Names are text: they are escaped in the HTML and in the data, and the page permits only its own
//! script and style.

mod data;
mod element;
mod figures;
mod flame_page;
mod head;
mod html_tables;
mod markup;
#[cfg(test)]
mod tests;

use polymeter_analysis::advice::facts::Facts;
use polymeter_analysis::charts;
use polymeter_analysis::model::Report;
use polymeter_page::report as assets;

pub(crate) use flame_page::flame_page;
pub(crate) use markup::Output;

/// `now_us`: when the page is made, in microseconds since the epoch.
pub(crate) fn page(report: &Report, now_us: i64) -> String {
    let facts = Facts::of(report);
    let charts = data::printable_charts(charts::of(report));
    let mut body = String::new();
    head::header(&mut body, report);
    head::kept(&mut body, report);
    body.push_str("<main id=\"report\">\n");
    head::findings(&mut body, report);
    head::firings(&mut body, report);
    head::meters(&mut body, report, &facts);
    html_tables::phases(&mut body, report);
    html_tables::regions(&mut body, report);
    html_tables::distributions(&mut body, report);
    html_tables::roofline(&mut body, report);
    html_tables::functions(&mut body, report);
    figures::section(&mut body, &charts);
    html_tables::sections(&mut body, report, &charts);
    head::data_section(&mut body, report, &facts);
    body.push_str("</main>\n");
    head::footer(&mut body, now_us);
    let data = data::scripts(&charts);
    let title = element::text(&head::title(report));
    document(&title, &(assets::style(), assets::script()), &format!("{body}{data}"))
}

/// A page that loads nothing, with its style and script. The title and the body are HTML.
fn document(title: &str, (style, script): &(String, String), body: &str) -> String {
    let policy = assets::policy(style, script);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}<script>{script}</script>\n</body>\n</html>\n"
    )
}

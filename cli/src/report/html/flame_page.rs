//! A flame graph as one page of HTML, which needs no network. Names are text, as on the page of a report.

use polymeter_analysis::stacks::{Difference, Tree, page_data};
use polymeter_page::flame;

use super::{data, document, element};

pub(crate) fn flame_page(
    title: &str,
    remarks: &[String],
    tree: &Tree,
    difference: Option<&Difference>,
) -> String {
    let (title, data) = (element::text(title), data::escaped(&page_data(tree, difference).to_string()));
    let remarks: String =
        remarks.iter().map(|remark| format!("<p class=\"remark\">{}</p>\n", element::text(remark))).collect();
    // The script takes the namespace of SVG from an element.
    let body = format!(
        "<header>\n<h1>{title}</h1>\n{remarks}</header>\n<main id=\"flame\"><svg width=\"0\" height=\"0\"></svg>\
         <p class=\"remark\">The graph needs JavaScript.</p></main>\n\
         <script type=\"application/json\" id=\"flame-data\">{data}</script>\n"
    );
    document(&title, &(flame::style(), flame::script()), &body)
}

#[cfg(test)]
mod tests {
    use polymeter_analysis::stacks::{Function, Weight};

    use super::*;

    #[test]
    fn names_are_text() {
        let function =
            Function { name: "</script><script>alert(1)//\u{202e}".to_owned(), module: "<b>".to_owned() };
        let tree = Tree::of_paths([(vec![&function], Weight { samples: 1, time_us: 10 })]);
        let page = flame_page("job <i>", &["a & b".to_owned()], &tree, Some(&Difference::of(&tree, &tree)));
        assert_eq!(page.matches("</script").count(), 2, "the data and the script");
        assert!(!page.contains("alert(1)</") && !page.contains('\u{202e}'));
        assert!(page.contains("<h1>job &lt;i&gt;</h1>") && page.contains("a &amp; b"));
        let data = page.split_once("id=\"flame-data\">").unwrap().1.split_once("</script>").unwrap().0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["functions"][0][0], "</script><script>alert(1)//\\u{202e}");
    }
}

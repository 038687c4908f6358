//! Weight of a visit: what a browser with an empty cache receives until all that its reader sees is there.

use std::collections::BTreeMap;

use polymeter_benches::table;
use polymeter_e2e::browser::Transfer;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sum {
    answers: u32,
    transferred_kb: f64,
    decoded_kb: f64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.answers += other.answers;
        self.transferred_kb += other.transferred_kb;
        self.decoded_kb += other.decoded_kb;
    }
}

/// Heads and bodies of answers, by resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct Weight(BTreeMap<String, Sum>);

impl Weight {
    pub(crate) fn of(transfers: &[Transfer]) -> Self {
        let mut weight = Self::default();
        for transfer in transfers.iter().filter(|transfer| transfer.url.starts_with("http")) {
            weight.0.entry(resource(&transfer.url)).or_default().add(Sum {
                answers: 1,
                transferred_kb: transfer.transferred_bytes / 1e3,
                decoded_kb: transfer.decoded_bytes / 1e3,
            });
        }
        weight
    }

    fn total(&self) -> Sum {
        let mut total = Sum::default();
        for sum in self.0.values() {
            total.add(*sum);
        }
        total
    }

    pub(crate) fn transferred_kb(&self) -> f64 {
        self.total().transferred_kb
    }

    pub(crate) fn print(&self) {
        table::head(&["resource", "answers", "kB transferred", "kB decoded"]);
        for (name, sum) in &self.0 {
            row(name, *sum);
        }
        row("all", self.total());
    }
}

fn row(name: &str, sum: Sum) {
    table::row(&[
        name.to_owned(),
        sum.answers.to_string(),
        format!("{:.1}", sum.transferred_kb),
        format!("{:.1}", sum.decoded_kb),
    ]);
}

/// Path of a URL without its origin, the digest of the pages and the keys of jobs.
fn resource(url: &str) -> String {
    let path = url.split('?').next().unwrap_or_default();
    let mut parts: Vec<&str> = path.split('/').skip(3).collect();
    if parts.first() == Some(&"assets") && parts.len() > 2 {
        parts.remove(1);
    }
    for part in &mut parts {
        if part.parse::<u64>().is_ok() {
            *part = "{key}";
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(url: &str, transferred_bytes: f64, decoded_bytes: f64) -> Transfer {
        Transfer { url: url.to_owned(), transferred_bytes, decoded_bytes }
    }

    #[test]
    fn answers_are_added_up_by_resource() {
        let weight = Weight::of(&[
            transfer("http://[::1]:80/job?key=7", 1_000.0, 2_000.0),
            transfer("http://[::1]:80/assets/0123/site/job.js", 10_000.0, 40_000.0),
            transfer("http://[::1]:80/api/v1/jobs/7/course?quantity=cores", 500.0, 600.0),
            transfer("http://[::1]:80/api/v1/jobs/7/course?quantity=memory", 500.0, 600.0),
            transfer("about:blank", 9e9, 9e9),
        ]);
        let names: Vec<&str> = weight.0.keys().map(String::as_str).collect();
        assert_eq!(names, ["/api/v1/jobs/{key}/course", "/assets/site/job.js", "/job"]);
        assert_eq!(
            weight.0["/api/v1/jobs/{key}/course"],
            Sum { answers: 2, transferred_kb: 1.0, decoded_kb: 1.2 }
        );
        assert_eq!(weight.transferred_kb(), 12.0);
    }
}

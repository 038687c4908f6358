//! Series that a request is about.

use polymeter_proto::name::Selector;
use polymeter_store::reader::SeriesRow;

/// Series that a request is about. Absent parts select all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SeriesFilter {
    metrics: Option<Vec<Selector>>,
    node: Option<String>,
    /// Sorted.
    ids: Option<Vec<i64>>,
}

impl SeriesFilter {
    pub(crate) fn new(metrics: Option<&[Selector]>, node: Option<&str>, ids: Option<&[i64]>) -> Self {
        let mut ids = ids.map(<[i64]>::to_vec);
        ids.iter_mut().for_each(|ids| ids.sort_unstable());
        Self { metrics: metrics.map(<[Selector]>::to_vec), node: node.map(str::to_owned), ids }
    }

    /// None for all.
    pub(crate) fn metrics(&self) -> Option<&[Selector]> {
        self.metrics.as_deref()
    }

    /// True if series of the node may be selected.
    pub(crate) fn has_node(&self, node: &str) -> bool {
        self.node.as_deref().is_none_or(|of| of == node)
    }

    /// True if series of the metric on the node may be selected.
    pub(crate) fn has_metric(&self, node: &str, metric: &str) -> bool {
        self.has_node(node) && is_selected(metric, self.metrics.as_deref())
    }

    pub(crate) fn has(&self, row: &SeriesRow) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.binary_search(&row.series_id).is_ok())
            && self.has_metric(&row.node, &row.metric)
    }
}

/// Without selectors all metrics are selected.
pub(crate) fn is_selected(metric: &str, selectors: Option<&[Selector]>) -> bool {
    selectors.is_none_or(|selectors| selectors.iter().any(|selector| selector.matches(metric)))
}

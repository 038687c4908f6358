//! Common parts of the tests of delivery.

use std::sync::Arc;

use polymeter_agent::delivery::session::DeliverySession;
use polymeter_agent::lanes::SampleBatch;
use polymeter_proto::batch::{Column, Instant, Shape};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, SessionDescriptor, SessionId, ShapeId, Unit,
};

pub(crate) const SESSION: SessionId = SessionId(7);

pub(crate) fn descriptor() -> SessionDescriptor {
    SessionDescriptor {
        node: "n1".try_into().unwrap(),
        agent_version: "1".try_into().unwrap(),
        started_us: 0,
        processors: Default::default(),
    }
}

/// Makes a session whose outbox never fills.
pub(crate) fn delivery() -> DeliverySession {
    DeliverySession::new(SESSION, descriptor(), 64 << 20, 0)
}

/// Batch with one row for each of `shapes` shapes of `columns` columns; no series is in two shapes.
pub(crate) fn flushed(shapes: u32, columns: u32) -> SampleBatch {
    let mut flushed = SampleBatch::default();
    for id in 0..shapes {
        let column = |number| {
            let name = MetricName::new("node.vm.pgfault").unwrap();
            let metric =
                MetricDescriptor { name, unit: Unit::Count, kind: Kind::Counter, number: Number::Unsigned };
            let series = SeriesId(id * columns + number);
            Column { series, metric: (MetricId(1), metric), labels: Labels::default() }
        };
        let columns: Vec<_> = (0..columns).map(column).collect();
        let shape = Arc::new(Shape {
            id: ShapeId(id),
            job: None,
            source: "stat".try_into().unwrap(),
            period: Period::SECOND,
            window: None,
            columns,
        });
        let index = flushed.batch.add_shape(&shape);
        let values = shape.columns.iter().map(|column| Some(u64::from(column.series.0)));
        flushed.batch.push(index, Instant { deadline: None, time_us: 1 }, values).unwrap();
    }
    flushed
}

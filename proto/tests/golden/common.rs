//! Batches and frames for tests.

use std::sync::Arc;

use polymeter_proto::batch::{Batch, Column, Instant, Shape};
use polymeter_proto::name::MetricName;
use polymeter_proto::period::Period;
use polymeter_proto::series::{
    Kind, Labels, MetricDescriptor, MetricId, Number, SeriesId, SessionId, ShapeId, Unit,
};
use polymeter_proto::wire::dictionary::Announced;
use polymeter_proto::wire::frame::{Encoder, Extras};

/// Returns a shape with a column for each of `numbers`, with one metric per kind of number.
pub(crate) fn shape(id: u32, period_us: u64, numbers: &[Number]) -> Arc<Shape> {
    let columns = (0..)
        .zip(numbers)
        .map(|(position, number)| {
            let name = MetricName::new(format!("test.{number:?}").to_lowercase()).unwrap();
            let descriptor = MetricDescriptor { name, unit: Unit::Bytes, kind: Kind::Gauge, number: *number };
            let labels = Labels::new(vec![("column".to_owned(), position.to_string())]).unwrap();
            Column { series: SeriesId(position), metric: (MetricId(*number as u32), descriptor), labels }
        })
        .collect();
    let source = "memory.stat".try_into().unwrap();
    Arc::new(Shape {
        id: ShapeId(id),
        job: None,
        source,
        period: Period::from_micros(period_us).unwrap(),
        window: None,
        columns,
    })
}

pub(crate) fn batch_of(shape: &Arc<Shape>, rows: &[(Instant, Vec<Option<u64>>)]) -> Batch {
    let mut batch = Batch::default();
    let index = batch.add_shape(shape);
    for (instant, values) in rows {
        batch.push(index, *instant, values.iter().copied()).unwrap();
    }
    batch
}

/// Returns a frame whose body is `sections`, with a valid checksum.
pub(crate) fn frame_of(sections: &[u8]) -> Vec<u8> {
    let mut bytes = b"PLM\x01\x01\0\0\0\0\0\0\0\x01\0".to_vec();
    bytes.extend_from_slice(sections);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

#[derive(Debug, Default)]
pub(crate) struct Wire {
    encoder: Encoder,
    sequence: u64,
    pub(crate) announced: Announced,
}

impl Wire {
    pub(crate) fn encode(&mut self, batch: &Batch) -> Vec<u8> {
        self.encode_with(batch, Extras::default())
    }

    pub(crate) fn encode_with(&mut self, batch: &Batch, extras: Extras<'_>) -> Vec<u8> {
        self.sequence += 1;
        let mut bytes = Vec::new();
        self.encoder.encode(&mut bytes, SessionId(0xfeed), self.sequence, batch, extras).unwrap();
        bytes
    }
}

//! Rows of a batch, as the encoder accesses them.

use crate::batch::{Batch, Row, RowHistogram};

pub(super) struct Rows<'a> {
    batch: &'a Batch,
    /// Index of the first absent column of each row in the batch's list; one more at the end.
    absent_from: Vec<u32>,
}

impl<'a> Rows<'a> {
    /// Indexes the absent columns of `batch` in `absent_from`, whose contents are replaced.
    pub(super) fn new(batch: &'a Batch, mut absent_from: Vec<u32>) -> Self {
        absent_from.clear();
        let mut at = 0;
        for number in 0..=batch.rows.len() {
            while batch.absent.get(at).is_some_and(|(row, _)| (*row as usize) < number) {
                at += 1;
            }
            absent_from.push(u32::try_from(at).unwrap_or(u32::MAX));
        }
        Self { batch, absent_from }
    }

    /// Returns the list of [`Rows::new`], so that the next batch can use its memory.
    pub(super) fn into_absent_from(self) -> Vec<u32> {
        self.absent_from
    }

    pub(super) fn get(&self, number: u32) -> Option<&'a Row> {
        self.batch.rows.get(number as usize)
    }

    pub(super) fn values(&self, number: u32, width: usize) -> &'a [u64] {
        let at = self.get(number).map_or(0, |row| row.values_at as usize);
        self.batch.values.get(at..at + width).unwrap_or_default()
    }

    pub(super) fn value(&self, number: u32, column: usize) -> u64 {
        let value = self.get(number).and_then(|row| self.batch.values.get(row.values_at as usize + column));
        value.copied().unwrap_or_default()
    }

    pub(super) fn absent_columns(&self, number: u32) -> &'a [(u32, u32)] {
        let at = |row: usize| self.absent_from.get(row).map_or(0, |start| *start as usize);
        self.batch.absent.get(at(number as usize)..at(number as usize + 1)).unwrap_or_default()
    }

    /// Returns the histograms of a row in the order of their columns, with their buckets and counts.
    pub(super) fn histograms(
        &self,
        number: u32,
    ) -> impl Iterator<Item = (&'a RowHistogram, &'a [(u16, u32)])> {
        let Batch { histograms, buckets, .. } = self.batch;
        let from = histograms.partition_point(|histogram| histogram.row < number);
        let of_row = histograms.iter().skip(from).take_while(move |histogram| histogram.row == number);
        of_row.map(|histogram| {
            let at = histogram.buckets_at as usize;
            (histogram, buckets.get(at..at + histogram.buckets as usize).unwrap_or_default())
        })
    }

    pub(super) fn are_alike(&self, a: u32, b: u32) -> bool {
        let on_grid = |number| self.get(number).is_some_and(|row| row.instant.deadline.is_some());
        let columns = |number| self.absent_columns(number).iter().map(|(_, column)| *column);
        on_grid(a) == on_grid(b) && columns(a).eq(columns(b))
    }
}

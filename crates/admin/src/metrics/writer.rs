//! Series on their way to the encoder of `prometheus-client`.

use std::fmt::Error;

use base::histogram::{BOUNDS, Histogram};
use node::status::{COMMAND_TIME_BOUNDS, CommandReading};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry;

/// Base units of Prometheus; part of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    None,
    Bytes,
    Seconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// Series of one name. A counter's name gets `_total`, and every name its unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family<'a> {
    pub(super) name: &'a str,
    pub(super) unit: Unit,
    pub(super) help: &'a str,
}

pub(super) type Labels = Vec<(&'static str, String)>;

#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Integer(u64),
    Float(f64),
}

impl From<u64> for Number {
    fn from(number: u64) -> Number {
        Number::Integer(number)
    }
}

impl From<usize> for Number {
    fn from(number: usize) -> Number {
        Number::Integer(number as u64)
    }
}

impl From<bool> for Number {
    fn from(is: bool) -> Number {
        Number::Integer(u64::from(is))
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Number {
        Number::Float(number)
    }
}

/// A cumulative histogram before it is summed up: durations per bucket.
pub(super) struct Durations {
    /// Upper bound in seconds, and how many durations lie between it and the bound before.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) sum: f64,
}

impl From<&Histogram> for Durations {
    fn from(histogram: &Histogram) -> Durations {
        let bounds = BOUNDS.iter().map(|bound| bound.0 as f64 / 1e9).chain([f64::INFINITY]);
        Durations {
            buckets: bounds.zip(histogram.counts().iter().copied()).collect(),
            sum: histogram.sum().0 as f64 / 1e9,
        }
    }
}

/// Buckets of a command start here: no command that asks another node is faster.
const FIRST_COMMAND_BUCKET: usize = 5;

impl From<&CommandReading> for Durations {
    fn from(reading: &CommandReading) -> Durations {
        let mut below = 0;
        let bounds = COMMAND_TIME_BOUNDS.iter().map(|bound| bound.0 as f64 / 1e9);
        let bounds = bounds.zip(reading.buckets).skip(FIRST_COMMAND_BUCKET);
        // Readings are taken while commands run: a bucket may be ahead of the number of calls.
        let bounds = bounds.chain([(f64::INFINITY, reading.calls)]);
        let buckets = bounds.map(|(bound, upto)| {
            let within = upto.saturating_sub(below);
            below = below.max(upto);
            (bound, within)
        });
        Durations { buckets: buckets.collect(), sum: reading.time.0 as f64 / 1e9 }
    }
}

pub(super) struct Writer<'a>(pub(super) DescriptorEncoder<'a>);

impl Writer<'_> {
    /// Writes one number without labels.
    pub(super) fn one(
        &mut self,
        kind: Kind,
        family: Family<'_>,
        number: impl Into<Number>,
    ) -> Result<(), Error> {
        self.each(kind, family, [(Labels::new(), number.into())])
    }

    /// Writes a number for each set of labels. A family without any is left out.
    pub(super) fn each(
        &mut self,
        kind: Kind,
        family: Family<'_>,
        series: impl IntoIterator<Item = (Labels, Number)>,
    ) -> Result<(), Error> {
        let metric_type = match kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
        };
        self.family(family, metric_type, series, |encoder, number| match (kind, number) {
            (Kind::Counter, Number::Integer(number)) => {
                encoder.encode_counter::<NoLabelSet, _, f64>(&number, None)
            }
            (Kind::Counter, Number::Float(number)) => {
                encoder.encode_counter::<NoLabelSet, _, f64>(&number, None)
            }
            (Kind::Gauge, Number::Integer(number)) => encoder.encode_gauge(&number),
            (Kind::Gauge, Number::Float(number)) => encoder.encode_gauge(&number),
        })
    }

    /// Writes a histogram for each set of labels.
    pub(super) fn histograms(
        &mut self,
        family: Family<'_>,
        series: impl IntoIterator<Item = (Labels, Durations)>,
    ) -> Result<(), Error> {
        self.family(family, MetricType::Histogram, series, |encoder, durations| {
            let count = durations.buckets.iter().map(|(_, count)| count).sum();
            encoder.encode_histogram::<NoLabelSet>(durations.sum, count, &durations.buckets, None)
        })
    }

    fn family<T>(
        &mut self,
        family: Family<'_>,
        metric_type: MetricType,
        series: impl IntoIterator<Item = (Labels, T)>,
        encode: impl Fn(&mut MetricEncoder<'_>, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let unit = match family.unit {
            Unit::None => None,
            Unit::Bytes => Some(registry::Unit::Bytes),
            Unit::Seconds => Some(registry::Unit::Seconds),
        };
        let Family { name, help, .. } = family;
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), metric_type)?;
        for (labels, value) in series {
            match labels.is_empty() {
                true => encode(&mut encoder, value)?,
                false => encode(&mut encoder.encode_family(&labels)?, value)?,
            }
        }
        Ok(())
    }
}
